# SPDX-License-Identifier: Apache-2.0
"""Guards that hold for one residue of an affine expression: `(y - k) % 2 == 0` in all its writings.

A remainder is `e - n*floor(e/n)`. So `e % n == 0`, `e/n*n == e`, `e % n < 1` and `!(e % 2 != 0)`
are conditions on e and one floor of it. Whether such a one holds for a single residue is tried out
on all n.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import gcd

from msgspec import Struct

from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import Binary, Compare, Const, Expr, IndexValue, Select, Unary
from tcsym.index.expr import (
    TRUE,
    Condition,
    FloorDiv,
    Index,
    IsZero,
    NonNegative,
    Not,
    floordiv,
    of_atom,
)
from tcsym.ir.loops import Value
from tcsym.trees import leaves
from tcsym.types import DType

MOST_CLASSES = 16  # of a loop: with more, each has few points


class Residue(Struct, frozen=True):
    """`e` leaves the remainder `value` when divided by `n`. `e` has affine terms only."""

    e: Index
    n: int
    value: int


class Guarded(Struct, frozen=True):
    """`term` where each of `guards` is as it says, else `neutral`."""

    guards: tuple[tuple[Expr, bool], ...]
    term: Expr
    neutral: Const | None

    @property
    def residues(self) -> tuple[Residue, ...]:
        found = (_residue(*g) for g in self.guards)
        return tuple(x for x in found if x is not None)

    def without(self, residue: Residue) -> Guarded:
        kept = tuple(g for g in self.guards if _residue(*g) != residue)
        return Guarded(kept, self.term, self.neutral)

    def value(self) -> Expr:
        if not self.guards or self.neutral is None:
            return self.term
        tests = [e if holds else Unary("not", e, DType.BOOL) for e, holds in self.guards]
        condition = reduce(lambda a, b: Binary("and", a, b, DType.BOOL), tests)
        return Select(condition, self.term, self.neutral, self.neutral.dtype)


def guarded(value: Value, neutral: Const) -> Guarded:
    """`value` by the guards around all of it whose other arm is `neutral`."""
    guards: list[tuple[Expr, bool]] = []
    while isinstance(value, Select):
        if value.orelse == neutral:
            guards += _conjuncts(value.condition, True)
            value = value.then
        elif value.then == neutral:
            guards += _conjuncts(value.condition, False)
            value = value.orelse
        else:
            break
    return Guarded(tuple(guards), value, neutral)  # type: ignore[arg-type]


def _conjuncts(e: Expr, holds: bool) -> Iterator[tuple[Expr, bool]]:
    return leaves((e, holds), _sides)


def _sides(guard: tuple[Expr, bool]) -> list[tuple[Expr, bool]]:
    e, holds = guard
    match e:
        case Binary("and" | "or" as op, a, b, _) if (op == "and") == holds:
            return [(a, holds), (b, holds)]
        case Unary("not", x, _):
            return [(x, not holds)]
    return []


def _residue(e: Expr, holds: bool) -> Residue | None:
    test = as_condition(e if holds else Unary("not", e, DType.BOOL))
    if test is None:
        return None
    return _one_residue(test)


def _one_residue(test: Condition) -> Residue | None:
    inner = test.condition if isinstance(test, Not) else test
    if not isinstance(inner, IsZero | NonNegative):
        return None
    floors = [(atom, c) for atom, c in inner.index.terms if not isinstance(atom, str)]
    if len(floors) != 1:
        return None
    atom, c = floors[0]
    n = atom.divisor.as_int() if isinstance(atom, FloorDiv) else None
    if not isinstance(atom, FloorDiv) or n is None or not 1 < n <= MOST_CLASSES or c % n:
        return None
    e, scale = atom.dividend, -c // n
    rest = (inner.index - of_atom(atom) * c - e * scale).as_int()
    if rest is None or any(not isinstance(x, str) for x, _ in e.terms):
        return None
    values = [k for k in range(n) if _is_true(test, scale * k + rest)]
    return Residue(e, n, values[0]) if len(values) == 1 else None


def _is_true(test: Condition, value: int) -> bool:
    """`test` where its index has that value."""
    match test:
        case Not(inner):
            return not _is_true(inner, value)
        case NonNegative():
            return value >= 0
        case _:
            return value == 0


# ---- what is left of guards once a residue is known


def simplified(value: Value, sizes: frozenset[str]) -> Value:
    """A guard without what holds always, its bounds without a common factor of what moves."""
    if not isinstance(value, Select):
        return value
    parts = [_tightened(e, holds, sizes) for e, holds in _conjuncts(value.condition, True)]
    kept = [e for e in parts if e is not None]
    if not kept:
        return value.then
    condition = reduce(lambda a, b: Binary("and", a, b, DType.BOOL), kept)
    return Select(condition, value.then, value.orelse, value.dtype, value.eager)


def _tightened(e: Expr, holds: bool, sizes: frozenset[str]) -> Expr | None:
    """None: true. `n*v + rest >= 0` is `v + floor(rest/n) >= 0`."""
    e = e if holds else Unary("not", e, DType.BOOL)
    test = as_condition(e)
    if test == TRUE:
        return None
    if not isinstance(test, NonNegative):
        return e
    moving = [(x, c) for x, c in test.index.terms if not of_atom(x).variables() <= sizes]
    n = gcd(*(c for _, c in moving))
    if n <= 1:
        return e
    part = Index(tuple(moving))
    whole = Index(tuple((x, c // n) for x, c in moving)) + floordiv(test.index - part, n)
    return Compare("ge", IndexValue(whole, DType.INT64), Const(0, DType.INT64))
