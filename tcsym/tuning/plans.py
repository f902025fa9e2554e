# SPDX-License-Identifier: Apache-2.0
"""Plans of directives that a nest may be asked to have: those among which the cost chooses, and
each of these with another number."""

from __future__ import annotations

from collections.abc import Iterator, Set

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import (
    TRUE,
    All,
    Condition,
    Index,
    all_of,
    condition_variables,
    floordiv,
    index,
    maximum,
)
from tcsym.index.text import condition_text
from tcsym.ir.loops import Kernel
from tcsym.mapping.plan import Directives, Plan, Split, plan_text
from tcsym.options import Options
from tcsym.schedule.chosen import Choice, Taken
from tcsym.schedule.map_cpu import map_cpu
from tcsym.target.machine import Machine

LANE = "lane"  # as wide as a vector: the only number that has no other


class Asked(Struct, frozen=True):
    """nest: by its outermost loop. name: of the version. text: as options have it for the nest.
    others: the same with other numbers, each a text."""

    nest: str
    name: str
    text: str
    others: tuple[str, ...]


def plans_of(kernel: Kernel, machine: Machine, options: Options) -> Iterator[Asked]:
    """Of nests that are mapped by directives, each version that may be. The last serves the sizes
    for which a version cannot be."""
    mapped = map_cpu(kernel, machine, options, True, True)
    chosen = {c.variable for c in mapped.kernel.choices}
    for x in mapped.choices:
        taken = [t for t in x.versions if isinstance(t, Taken)] if isinstance(x, Choice) else []
        found = [(t.plan, _beside(t.when, chosen)) for t in taken if isinstance(t.plan, Directives)]
        for plan, when in found:
            last = found[-1][0].plan
            texts = [_text(p, when, last) for p in (plan.plan, *with_other_numbers(plan.plan))]
            yield Asked(x.nest, plan.name, texts[0], tuple(texts[1:]))


def with_other_numbers(plan: Plan) -> Iterator[Plan]:
    """The plan with one number halved or doubled, and of registers one more or less."""
    for k, d in enumerate(plan):
        if not isinstance(d, Split):
            continue
        for j, (part, n) in enumerate(d.parts):
            for other in _others(part, n) if n is not None else ():
                parts = (*d.parts[:j], (part, other), *d.parts[j + 1 :])
                yield (*plan[:k], replace(d, parts=parts), *plan[k + 1 :])


def _others(part: str, n: Index) -> Iterator[Index]:
    known = n.as_int()
    if part == LANE:
        return
    if known is None:
        yield from (n * 2, maximum(1, floordiv(n, 2)))
        return
    near = (known - 1, known + 1) if part == "reg" else ()
    for other in dict.fromkeys((known // 2, *near, 2 * known)):
        if other > 0:
            yield index(other)


def _text(plan: Plan, when: Condition, last: Plan) -> str:
    if when == TRUE:
        return plan_text(plan)
    return f"if {condition_text(when)}: {plan_text(plan)}\nelse: {plan_text(last)}"


def _beside(c: Condition, chosen: Set[str]) -> Condition:
    """Without what a launch chooses."""
    parts = c.conditions if isinstance(c, All) else (c,)
    return all_of(x for x in parts if not condition_variables(x) & chosen)
