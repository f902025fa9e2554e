"""Versions of a nest -> the same with the sizes at which each is the cheapest, or one asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from tcsym.index.expr import Condition, Index, all_of, any_of, ge, negate
from tcsym.schedule.device.grid_cost import grid_cost
from tcsym.schedule.device.nest import Nest
from tcsym.schedule.device.plan import Version
from tcsym.target.machine import Machine


def costed(nest: Nest, machine: Machine, found: Sequence[Version]) -> tuple[Version, ...]:
    """With their costs, without those that no multiprocessor can hold."""
    known = {v.plan.name: v for v in found}  # that differ in their copies alone
    costs = {name: v.cost or grid_cost(v.plan, nest, machine) for name, v in known.items()}
    all_of_them = [replace(v, cost=costs[v.plan.name]) for v in found]
    return tuple(v for v in all_of_them if v.cost is None or v.cost.resident)


def cheapest(found: Sequence[Version]) -> tuple[Version, ...]:
    """Each where none behind it would be cheaper; those of unknown cost where they say."""
    return tuple(
        replace(v, when=all_of((v.when, *_better(v, found[k + 1 :])))) for k, v in enumerate(found)
    )


def _better(v: Version, others: Sequence[Version]) -> Iterator[Condition]:
    if v.cost is None:
        return
    usable: dict[Index, list[Condition]] = {}
    for other in others:
        if other.cost is not None and other.cost.cycles != v.cost.cycles:
            usable.setdefault(other.cost.cycles, []).append(other.when)
    for cycles, conditions in usable.items():
        yield any_of((ge(cycles, v.cost.cycles), negate(any_of(conditions))))


def asked_for(found: Iterable[Version], name: str) -> Iterator[Version]:
    """Those of that name, wherever they can be. A class alone is the name of all its plans."""
    return (v for v in found if name in (v.plan.name, v.plan.name.partition(":")[0]))
