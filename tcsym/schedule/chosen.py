# SPDX-License-Identifier: Apache-2.0
"""What `version.choose` chose for a nest, as data that prints: its versions, and notes of why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import Condition, Index
from tcsym.keyed import Keyed
from tcsym.mapping.plan import Directives, with_sizes
from tcsym.schedule.device.plan import DevicePlan, Steps
from tcsym.schedule.plan import AnyPlan


class Note(Struct, frozen=True):
    """What to tell of a nest."""

    nest: str
    text: str

    def __str__(self) -> str:
        return f"{self.nest}: {self.text}"


class Taken(Struct, frozen=True):
    """A version that the kernel has, and what was chosen for the nests inside it.

    is_left_out: it has none for these sizes, which are left to another kernel. cost: of a call at
    sizes that were asked for, of a device's grid, as text.
    """

    when: Condition
    plan: AnyPlan | DevicePlan | Steps | Directives
    inside: tuple[Choice | Note, ...] = ()
    is_left_out: bool = False
    cost: str = ""


class Choice(Keyed, frozen=True):
    """The versions of a nest: the first whose condition holds runs.

    offered: all versions that were proposed, by the names that `Options.plan` has for their plans.
    """

    aside: ClassVar[tuple[str, ...]] = ("offered",)

    nest: str
    versions: tuple[Taken | Note, ...]
    offered: tuple[tuple[str, Any], ...] = ()  # `Version`s, of a device those of `device.plan`


def notes_of(record: Iterable[Choice | Taken | Note]) -> Iterator[Note]:
    """All notes, in the order in which they were made."""
    for x in record:
        match x:
            case Note():
                yield x
            case Choice(_, versions):
                yield from notes_of(versions)
            case Taken(inside=inside):
                yield from notes_of(inside)


def with_conditions(
    record: Iterable[Choice | Note],
    change: Callable[[Condition], Condition],
    formula: Callable[[Index], Index] | None = None,
) -> tuple[Choice | Note, ...]:
    """The same with changed conditions, and formulas of directives."""

    def version(x: Taken | Note) -> Taken | Note:
        if isinstance(x, Note):
            return x
        plan = x.plan
        if isinstance(plan, Directives) and formula is not None:
            plan = replace(plan, plan=with_sizes(plan.plan, formula))
        inside = with_conditions(x.inside, change, formula)
        return replace(x, when=change(x.when), plan=plan, inside=inside)

    return tuple(
        x if isinstance(x, Note) else replace(x, versions=tuple(map(version, x.versions)))
        for x in record
    )
