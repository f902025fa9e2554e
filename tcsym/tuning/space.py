# SPDX-License-Identifier: Apache-2.0
"""Program -> the options worth trying for it: axes that change its code, and a rough cost model.

An axis belongs to the space if one of its values changes the mapped loops of the default schedule:
so the space follows the schedules without knowing them, and nearly every candidate is new code.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tcsym.compiler import Lowering
from tcsym.frontend.program import Program
from tcsym.ir.compiled import Layout
from tcsym.ir.loops import Loop
from tcsym.ir.text import kernel_text
from tcsym.ir.traverse import walk
from tcsym.mapping.text import plan_of, with_nest
from tcsym.options import Options
from tcsym.process.recursion import depth_checked
from tcsym.schedule.wanted import offered_in
from tcsym.target.target import Target
from tcsym.tuning.plans import plans_of

Value = Any
Values = tuple[int, ...]

AXES: Mapping[str, tuple[Value, ...]] = {
    "fusion": ("max", "preserve-coincident", "min"),
    "inner_fusion": ("same", "min"),
    "scheduler": ("align", "isl"),
    "parallel_loops": (3, 1, 2),
    "min_work_per_thread": (131072, 32768, 65536, 262144, 1048576),
}
_PLAN = re.compile(r"plan(?:\[(.+)\])?")
_SCHEDULING = ("fusion", "inner_fusion", "scheduler")
_THREADING = ("parallel_loops", "min_work_per_thread")
PRUNED_BEYOND = 2.0


def value_of(options: Options, axis: str) -> Value:
    """That of a field, the plan of a nest, `plan[m]`, or of all others, `plan`."""
    plan = _PLAN.fullmatch(axis)
    return getattr(options, axis) if plan is None else plan_of(options.plan, plan[1] or "")


def with_values(options: Options, changes: Mapping[str, Value]) -> Options:
    """With other values on axes."""
    fields, text = dict[str, Value](), options.plan
    for axis, value in changes.items():
        if plan := _PLAN.fullmatch(axis):
            text = with_nest(text, plan[1] or "", value)
        else:
            fields[axis] = value
    return replace(options, **fields, plan=text)


class Space(Struct, frozen=True):
    """Axes with their values, the default first. Points are options; other fields are defaults.

    starts: what to try first.
    """

    axes: tuple[tuple[str, tuple[Value, ...]], ...]
    starts: tuple[Options, ...] = ()

    @property
    def size(self) -> int:
        n = 1
        for _, values in self.axes:
            n *= len(values)
        return n

    def drawn(self, rng: random.Random) -> Options:
        return self.at({name: rng.choice(values) for name, values in self.axes})

    def mutated(self, options: Options, rng: random.Random, n_changes: int = 1) -> Options:
        """Other values on some axes."""
        if not self.axes:
            return options
        changes: dict[str, Value] = {}
        for name, values in rng.sample(self.axes, min(n_changes, len(self.axes))):
            others = [v for v in values if v != value_of(options, name)]
            changes[name] = rng.choice(others)
        return self.at(changes, options)

    def crossed(self, a: Options, b: Options, rng: random.Random) -> Options:
        """Each axis from either parent."""
        return self.at({name: value_of(rng.choice((a, b)), name) for name, _ in self.axes})

    def at(self, changes: Mapping[str, Value], options: Options | None = None) -> Options:
        return with_values(options or Options(), changes)

    def widened(self, points: Iterable[Options]) -> Space:
        """Axes that have the values of these points, too: somebody chose them."""
        given = list(points)
        axes = [
            (name, tuple(dict.fromkeys((*values, *(value_of(p, name) for p in given)))))
            for name, values in self.axes
        ]
        return replace(self, axes=tuple(axes))

    def without(self, names: Collection[str]) -> Space:
        """Fewer axes."""
        return replace(self, axes=tuple(axis for axis in self.axes if axis[0] not in names))

    def predicted(self, options: Options, default: Options, sizes: tuple[Values, ...]) -> float:
        """How many times slower than the default options must be: 1.0 is no opinion."""
        return 1.0

    def __str__(self) -> str:
        return "\n".join(f"{name}: {', '.join(map(str, values))}" for name, values in self.axes)


@depth_checked
def space_of(program: Program, target: Target, default: Options, threads: int) -> Space:
    """The axes along which the code of the program changes."""
    dense: Layout = "dense"
    layouts = (dense,) * (len(program.inputs) + len(program.outputs))

    def mapped(options: Options, scheduled: Any = None) -> tuple[str, Any, Any]:
        stages = Lowering(program, target, options, {}, layouts, (), {})
        scheduled = scheduled or stages.scheduled()
        found = stages.mapped(scheduled)
        return kernel_text(found.kernel), scheduled, found

    text, scheduled, usual = mapped(default)
    is_parallel = any(
        isinstance(x, Loop) and x.kind == "parallel" for x, _ in walk(usual.kernel.body)
    )

    def changes(name: str, value: Value) -> bool:
        options = replace(default, **{name: value})
        if name in _SCHEDULING:
            return mapped(options)[0] != text
        return mapped(options, scheduled)[0] != text

    def is_another(plan: str) -> bool:
        return mapped(replace(default, plan=plan), scheduled)[0] != text

    offered = offered_in(usual.choices).values()
    plans = dict.fromkeys(plan for nest in offered for plan in nest)
    axes: list[tuple[str, tuple[Value, ...]]] = []
    if kept := tuple(filter(is_another, plans)):
        axes.append(("plan", ("", *kept)))
    starts = [Options(plan=name) for name in kept]
    directives = list(plans_of(scheduled.kernel, target.machine, default))
    for nest in dict.fromkeys(x.nest for x in directives):
        given = [x for x in directives if x.nest == nest]
        texts = dict.fromkeys(text for x in given for text in (x.text, *x.others))
        if len(texts) > 1:  # else there is but the one that it has
            starts += [with_values(Options(), {f"plan[{nest}]": x.text}) for x in given]
            axes.append((f"plan[{nest}]", ("", *texts)))
    for name, values in AXES.items():
        here = getattr(default, name)
        others = tuple(v for v in values if v != here)
        if name in _THREADING:
            kept = others if is_parallel and threads > 1 else ()
        elif len(others) <= 2:
            kept = tuple(v for v in others if changes(name, v))
        else:  # the ends tell if the axis matters at all
            kept = others if changes(name, others[0]) or changes(name, others[-1]) else ()
        if kept:
            axes.append((name, (here, *kept)))
    return Space(tuple(axes), tuple(starts))
