# SPDX-License-Identifier: Apache-2.0
"""Kernel -> its code for each target of an artifact: every version, compiled for all its sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from tcsym.compiler import Lowering, compile_program
from tcsym.dispatch.choose import policy_for
from tcsym.dispatch.making import Making
from tcsym.dispatch.table import Table
from tcsym.dispatch.version import Version
from tcsym.errors import OptionError
from tcsym.index.expr import FALSE, TRUE, Condition, Index, all_of, eq, negate, var
from tcsym.ir.compiled import Compiled, Layout
from tcsym.ir.loops import Kernel
from tcsym.options import Options
from tcsym.process.recursion import depth_checked
from tcsym.runtime.device import device_of
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.stats import Counters
from tcsym.sizes.context import Interval, decided, ranges_of
from tcsym.strategy import Strategy, Symbolic
from tcsym.target.cpu import KINDS, host_kind
from tcsym.target.cuda import KINDS as DEVICES
from tcsym.target.host import processor
from tcsym.target.names import resolve_target
from tcsym.target.target import Target

Grids = tuple[tuple[str, Index, int], ...]


class Code(Struct, frozen=True):
    """One version: the sizes it serves where none before it does, and its code.

    about: what it is, as text. grids: of a device, the functions that it launches: blocks, threads.
    """

    context: Condition
    compiled: Compiled
    about: str = ""
    grids: Grids = ()


class Level(Struct, frozen=True):
    """The versions for one kind of processor or device; those that run when constants are bound."""

    target: Target
    codes: tuple[Code, ...]
    binding: tuple[Code, ...] = ()

    @property
    def name(self) -> str:
        return self.target.name.partition(":")[2]

    @property
    def is_device(self) -> bool:
        return self.target.machine.multiprocessor is not None


def levels_of(
    plan: CallPlan,
    options: Options | None,
    targets: Sequence[str],
    strategy: Strategy = Symbolic(),  # noqa: B008 (frozen)
    table: Table | None = None,
    binding: CallPlan | None = None,
) -> tuple[Level, ...]:
    """Best first, devices last.

    strategy: whose first versions these are, if `table`, of calls on this kind, has no others.
    binding: what runs when constants are bound.
    Errors: OptionError for what is no kind of processor or device, or if the strategy cannot say
    its versions before calls come.
    """
    kinds = [f"cpu:{k.name}" for k in KINDS] + [f"cuda:{k.name}" for k in reversed(DEVICES)]
    order = {name: k for k, name in enumerate(kinds)}
    for name in targets:
        if name not in order:
            hint = f"use {', '.join(order)}"
            raise OptionError(f"no artifacts are made for target `{name}`", hint=hint)
    found = [resolve_target(name) for name in sorted({*targets}, key=lambda name: order[name])]
    families = {t.triple: t.name for t in found if t.machine.multiprocessor is None}
    if len(families) > 1:
        hint = "export a folder for each; CC and OBJCOPY say what links for other processors"
        what = " and ".join(f"`{name}`" for name in families.values())
        raise OptionError(f"one library has no code for both {what}", hint=hint)

    def codes(own: CallPlan, t: Target, table: Table | None) -> tuple[Code, ...]:
        return tuple(_codes(own, options, t, _table(own, options, t, strategy, table)))

    return tuple(
        Level(t, codes(plan, t, table), codes(binding, t, None) if binding else ()) for t in found
    )


def _table(
    plan: CallPlan, options: Options | None, target: Target, strategy: Strategy, table: Table | None
) -> Table:
    is_own = plan.device is device_of(target)
    if table is not None and is_own and len(table.versions) > 1:
        return table
    return policy_for(strategy, Making(plan, target, options, Counters())).first()


def _codes(plan: CallPlan, options: Options | None, target: Target, table: Table) -> Iterator[Code]:
    """The versions in the order in which a call asks for them; the last serves what is left."""
    making = Making(plan, target, options, Counters())
    ranges = dict.fromkeys(plan.sizes, Interval(0, None)) | ranges_of(making.declared())
    unusual = negate(decided(all_of(plan.limits.usual), ranges))
    if unusual != FALSE and target.machine.multiprocessor is None:
        yield _code(plan, target, unusual, making.wide())
    versions = list(_versions(plan, table))
    if not versions or versions[-1][0] != TRUE:
        versions.append((TRUE, making.symbolic(making.regions[0])))
    for context, version in versions:
        if context != FALSE:
            yield _code(plan, target, context, version)


def _versions(plan: CallPlan, table: Table) -> Iterator[tuple[Condition, Version]]:
    """Those for single sizes first. What runs on padded copies is left to the others."""
    points = {k: p.version for k, p in table.points.items() if p.is_adopted and table.key is None}
    for values, version in {**table.measured, **points}.items():
        at = all_of(eq(var(n), v) for n, v in zip(plan.sizes, values, strict=True))
        if version.padding is None:
            yield at, version
    *others, last = table.ranges.versions or (None,)
    for v in others:
        assert v is not None
        yield v.context, v
    if last is not None:
        yield TRUE, last


@depth_checked
def _code(plan: CallPlan, target: Target, context: Condition, version: Version) -> Code:
    made, program = version.variants, plan.program
    dense: Layout = "dense"
    layouts = (dense,) * (len(plan.inputs) + len(plan.outputs))
    given = program, target, made.options, made.fixed, layouts, made.context
    wide = made.wide
    grids: Grids = ()
    if target.machine.multiprocessor is not None:
        stages = Lowering(*given, {}, wide)
        grids = _grids(stages.mapped(stages.scheduled(), whole=True).kernel)
    compiled = compile_program(*given, wide)
    made.require_plans(layouts, compiled)
    return Code(context, compiled, str(version), grids)


def _grids(kernel: Kernel) -> Grids:
    """Of each launch in the text of the kernel."""
    from tcsym.codegen.device.launch import blocks_of, threads_of
    from tcsym.ir.regions import outline

    return tuple((r.name, blocks_of(r.loop), threads_of(r.loop)) for r in outline(kernel).regions)


def default_targets(target: Target | str | None) -> tuple[str, ...]:
    """The kernel's own; a kind of processor that it runs on: not one with more than is usual."""
    name = target.name if isinstance(target, Target) else target
    if name is not None and name.startswith("cuda"):
        return (resolve_target(name).name,)
    if name is not None and name != "cpu":
        return (name,)
    return (f"cpu:{host_kind(processor()).name}",)
