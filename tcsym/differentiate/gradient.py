# SPDX-License-Identifier: Apache-2.0
"""Terms of a gradient -> the statements that sum them: as few as can be, the first one defines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.differentiate.algebra import add, constant, converted, multiply, with_indices
from tcsym.differentiate.names import Names
from tcsym.differentiate.terms import Sum
from tcsym.frontend.program import Expr, For, If, Item, Range, Read, Statement, dtype_of, is_fixed
from tcsym.index.expr import TRUE, ZERO, Index, var
from tcsym.types import DType


class Place(Struct, frozen=True):
    """What is defined: a tensor, or of one with iterations the slice at `fixed` positions."""

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    fixed: dict[int, Index]


def definition(place: Place, sums: Sequence[Sum], base: Read | None, names: Names) -> list[Item]:
    """`place` is the sum of all `sums`, and of `base` at the same element."""
    at_once = [s for s in sums if not s.reduces and _is_whole(s, place)]
    others = [s for s in sums if s.reduces or not _is_whole(s, place)]
    variables = _variables(place, [*at_once, *others], names)
    left = _left(place, variables)
    total: Expr = constant(0.0, place.dtype)
    if base is not None:
        total = converted(Read(base.tensor, left, base.dtype), place.dtype)
    values = Counter([with_indices(s.value, _renamed(s, variables)) for s in at_once])
    for value, times in values.items():
        total = add(total, multiply(constant(times, dtype_of(value)), value))
    domain = tuple(
        Range(v, ZERO, extent, False) for (d, extent), v in zip(_dimensions(place), variables)
    )
    others.sort(key=lambda s: not _is_whole(s, place))
    whole = bool(others) and _is_whole(others[0], place) and not _is_at_one(others[0])
    if not whole:
        start = Statement("", place.name, left, "=", False, domain, total)
        return [start, *(added(s, place.name) for s in others)]
    first, *rest = others
    found: list[Item] = [
        replace(_statement(first, place.name), initialise=True),
        *(added(s, place.name) for s in rest),
    ]
    if at_once or base is not None:
        value = add(Read(place.name, left, place.dtype), total)
        found.append(Statement("", place.name, left, "=", False, domain, value))
    return found


def added(s: Sum, name: str) -> Item:
    """One more term of a gradient that is defined."""
    item: Item = _statement(s, name)
    for r in reversed(s.loops):
        item = For(r.variable, r.lower, r.upper, (item,))
    return item if s.when == TRUE else If(s.when, (item,))


def _statement(s: Sum, name: str) -> Statement:
    return Statement("", name, s.left, "+=", False, s.domain, s.value, given=s.given)


def _is_whole(s: Sum, place: Place) -> bool:
    return (
        s.whole
        and s.fixed == frozenset(place.fixed)
        and all(s.left[d] == e for d, e in place.fixed.items())
    )


def _is_at_one(s: Sum) -> bool:
    """At a position that is the same for all terms: only that would be set first."""
    moving = frozenset(r.variable for r in s.domain if r.at is None)
    return any(r.at is not None and is_fixed(r.at, moving) for r in s.domain)


def _dimensions(place: Place) -> list[tuple[int, Index]]:
    return [(d, extent) for d, extent in enumerate(place.shape) if d not in place.fixed]


def _variables(place: Place, sums: Sequence[Sum], names: Names) -> list[str]:
    """Names of index variables for the dimensions: those that the first whole sum has."""
    for s in sums:
        if _is_whole(s, place):
            return [next(iter(s.left[d].variables())) for d, _ in _dimensions(place)]
    return names.variables(len(_dimensions(place)))


def _left(place: Place, variables: list[str]) -> tuple[Index, ...]:
    left = dict(place.fixed)
    for (d, _), v in zip(_dimensions(place), variables):
        left[d] = var(v)
    return tuple(left[d] for d in range(len(place.shape)))


def _renamed(s: Sum, variables: list[str]) -> dict[str, Index]:
    own = [e for d, e in enumerate(s.left) if d not in s.fixed]
    return {next(iter(e.variables())): var(v) for e, v in zip(own, variables)}
