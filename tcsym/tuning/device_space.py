# SPDX-License-Identifier: Apache-2.0
"""Program, device -> the plans worth trying for its nests, with what each is predicted to take.

Nests are axes, plans their values: what no multiprocessor can hold is not among them. Cycles are
those of the cost by which the default chooses (`schedule.device.cost`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from msgspec import Struct

from tcsym.compiler import Lowering
from tcsym.frontend.program import Program
from tcsym.index.expr import TRUE, Condition, all_of, negate
from tcsym.index.values import evaluate, holds
from tcsym.ir.compiled import Layout
from tcsym.options import Options
from tcsym.process.recursion import depth_checked
from tcsym.schedule.chosen import Choice, Note, Taken
from tcsym.schedule.device.plan import GridCost, Version
from tcsym.schedule.map_gpu import map_gpu
from tcsym.target.target import Target
from tcsym.tuning.distribution import Values
from tcsym.tuning.space import Space, value_of


class DeviceNest(Struct, frozen=True):
    """`plans`: by name, in the order of the proposals; none of a loop in order. taken: what sizes
    choose. under: when it runs."""

    plans: Mapping[str, tuple[Version, ...]]
    taken: tuple[Taken, ...]
    under: Condition

    def cost(self, name: str, known: Mapping[str, int]) -> GridCost | None:
        """Of the plan of that name, where it can be; else of the one that these sizes get."""
        if not self.plans or not holds(self.under, known):
            return None
        asked = self.plans.get(name, ())
        usable = next((v for v in asked if holds(v.when, known)), None)
        if usable is None:
            plan = next(v.plan for v in self.taken if holds(v.when, known))
            name = plan.name  # type: ignore[union-attr]
            usable = next(v for v in self.plans[name])
        return usable.cost


class DeviceSpace(Space, frozen=True, kw_only=True):
    """`nests`: by their outermost loops, in the order in which they run."""

    program: Program
    target: Target
    nests: Mapping[str, DeviceNest]

    def costs(self, options: Options, values: Values) -> tuple[GridCost | None, ...]:
        """Of each nest, for arrays that are well aligned."""
        program = self.program
        known = dict(zip(program.sizes, values, strict=True))
        known |= {f"{t.name}.phase": 0 for t in (*program.inputs, *program.outputs)}
        return tuple(nest.cost(value_of(options, axis(k)), known) for k, nest in self.nests.items())

    def cycles(self, options: Options, values: Values) -> int:
        """Of all nests one after the other; those that the host repeats count once."""
        known = dict(zip(self.program.sizes, values, strict=True))
        costs = self.costs(options, values)
        return max(1, sum(evaluate(c.cycles, known) for c in costs if c is not None))

    def predicted(self, options: Options, default: Options, sizes: tuple[Values, ...]) -> float:
        return max(self.cycles(options, v) / self.cycles(default, v) for v in sizes)


def axis(nest: str) -> str:
    return f"plan[{nest}]"


@lru_cache(8)
@depth_checked
def device_space(program: Program, target: Target) -> DeviceSpace:
    dense: Layout = "dense"
    layouts = (dense,) * (len(program.inputs) + len(program.outputs))
    scheduled = Lowering(program, target, Options(), {}, layouts, (), {}).scheduled()
    mapped = map_gpu(scheduled.kernel, target.machine, tells_all=True)
    nests = dict(_nests(mapped.choices))
    axes = tuple((axis(k), ("", *nest.plans)) for k, nest in nests.items())
    several = tuple((name, values) for name, values in axes if len(values) > 2)
    return DeviceSpace(several, program=program, target=target, nests=nests)


def _nests(
    choices: Iterable[Choice | Note], under: Condition = TRUE
) -> Iterator[tuple[str, DeviceNest]]:
    """Those of loops in order before what is in them."""
    for x in choices:
        if not isinstance(x, Choice):
            continue
        plans: dict[str, tuple[Version, ...]] = {}
        for name, version in x.offered:
            plans[name] = (*plans.get(name, ()), version)
        taken = tuple(v for v in x.versions if isinstance(v, Taken))
        yield x.nest, DeviceNest(plans, taken, under)
        left = under
        for v in taken:
            yield from _nests(v.inside, all_of((left, v.when)))
            left = all_of((left, negate(v.when)))
