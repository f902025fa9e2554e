"""Kernel -> its code for each target of an artifact: every version, compiled for all its sizes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tcsym.compiler import compile_program
from tcsym.dispatch.making import Making
from tcsym.dispatch.policy import Policy
from tcsym.errors import OptionError
from tcsym.index.expr import Condition
from tcsym.ir.compiled import Compiled, Layout
from tcsym.options import Options
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.stats import Stats
from tcsym.target.cpu import KINDS
from tcsym.target.host import processor
from tcsym.target.names import resolve_target
from tcsym.target.target import Target


class Code(Struct, frozen=True):
    """One version: the sizes it serves where none before it does, and its code."""

    context: Condition
    compiled: Compiled


class Level(Struct, frozen=True):
    """The versions for one kind of processor. `features`: LLVM's names of what it must have."""

    target: Target
    codes: tuple[Code, ...]

    @property
    def name(self) -> str:
        return self.target.name.partition(":")[2]


def levels_of(plan: CallPlan, options: Options, targets: Sequence[str]) -> tuple[Level, ...]:
    """Best first. Errors: OptionError for what is no kind of processor."""
    order = {f"cpu:{kind.name}": k for k, kind in enumerate(KINDS)}
    for name in targets:
        if name not in order:
            hint = f"use {', '.join(order)}"
            raise OptionError(f"no artifacts are made for target `{name}`", hint=hint)
    return tuple(
        _level(plan, options, resolve_target(name))
        for name in sorted({*targets}, key=order.get)  # type: ignore[arg-type]
    )


def _level(plan: CallPlan, options: Options, target: Target) -> Level:
    table = Policy(Making(plan, target, options, Stats())).first()
    dense: Layout = "dense"
    layouts = (dense,) * (len(plan.inputs) + len(plan.outputs))
    codes = []
    for version in table.versions:
        made = version.variants
        given = made.options, made.fixed, layouts, made.context
        codes.append(Code(version.context, compile_program(plan.program, target, *given)))
    return Level(target, tuple(codes))


def default_targets(target: Target | str | None) -> tuple[str, ...]:
    """A kind of processor that the kernel's target runs on: not one with more than is usual."""
    name = target.name if isinstance(target, Target) else target
    if name is not None and name != "cpu":
        return (name,)
    here = processor().features
    return (f"cpu:{next(k for k in KINDS if here.issuperset(k.features)).name}",)
