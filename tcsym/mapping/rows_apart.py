# SPDX-License-Identifier: Apache-2.0
"""A vector of merged loops (`Merge`) whose lanes are in several rows: filled row by row.

Of each row that has lanes a vector is loaded, under a mask; what other rows have stays. So a lane's
place is not found by a division of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Const, Read, Select
from tcsym.index.expr import (
    ZERO,
    Atom,
    FloorDiv,
    Index,
    Mod,
    all_of,
    floordiv,
    ge,
    maximum,
    minimum,
    mod,
    var,
)
from tcsym.index.values import map_atoms, substitute
from tcsym.ir.loops import Holds, Loop, Node, Store, block

Places = tuple[Index, ...]


class RowsApart(Struct, frozen=True):
    """source: places in the operand of the lanes, the first of which is number `first` of rows of
    `n` elements."""

    source: Places
    lane: Loop
    first: Index
    n: Index

    def filled(
        self,
        held: Read,
        copied: Callable[[Callable[[Index], Index]], Node],
        around: Callable[[Node], Node],
    ) -> Node:
        """The copy of all lanes. held: a lane of the copy; copied: what stores it from places
        that a function makes of its own; around: the other loops of the copy. A vector that begins
        beyond the end reads nothing."""
        lane, row = self.lane, f"{self.lane.variable}.row"
        count = lane.upper if lane.mask is None else minimum(lane.upper, lane.mask)
        top, last = floordiv(self.first, self.n), floordiv(self.first + count - 1, self.n)
        zero = Const(0.0 if held.dtype.is_float else 0, held.dtype)

        def of_row(y: Index, other: Const | Read) -> Node:
            store = copied(partial(self._place, y))
            assert isinstance(store, Store)
            at = self.first + var(lane.variable)
            end = minimum(self.first + count, (y + 1) * self.n)
            inside = [ge(end - 1, at), *([ge(at, y * self.n)] if other is held else [])]
            value = Select(Holds(all_of(inside)), store.value, other, held.dtype)  # type: ignore[arg-type]
            store = replace(store, value=value)
            return around(replace(lane, order="parallel", mask=None, body=store))

        rest = of_row(var(row), held)
        return block(
            of_row(top, zero),
            Loop(row, top + 1, maximum(top, last) + 1, rest, "serial", "parallel"),
        )

    @property
    def is_scattered(self) -> bool:
        """Lanes of a row are not side by side, so that a masked load has each by itself."""
        return self._place(ZERO, self.source[-1]).coefficient(self.lane.variable) != 1

    def elements(
        self, copied: Callable[[Callable[[Index], Index]], Node], around: Callable[[Node], Node]
    ) -> Node:
        """Each lane by itself, from a place that is found once for the other loops of the copy;
        those beyond the end are the last one."""
        lane, v = self.lane, self.lane.variable
        at = var(v) if lane.mask is None else minimum(var(v), lane.mask - 1)
        store = copied(lambda s: substitute(s, {v: at}))
        return around(replace(lane, kind="unrolled", order="parallel", mask=None, body=store))

    def _place(self, y: Index, place: Index) -> Index:
        """Where lanes are that are all in row `y`."""
        start = y * self.n

        def one(a: Atom) -> Index | None:
            if not isinstance(a, FloorDiv | Mod) or not a.dividend.coefficient(self.lane.variable):
                return None
            if isinstance(a, FloorDiv):
                return y if a.divisor == self.n else floordiv(start, a.divisor)
            rest = a.dividend - start
            return rest if a.divisor == self.n else mod(start, a.divisor) + rest

        return map_atoms(place, one)


def rows_apart(source: Places, lane: Loop) -> RowsApart | None:
    """None if lanes are not found by one division, of which others are of whole rows."""
    found = [a for s in source for a in rows_of(s, lane)]
    dividends, divisors = {a.dividend for a in found}, {a.divisor for a in found}
    rows = [n for n in divisors if all(m == n or floordiv(m, n) * n == m for m in divisors)]
    if len(dividends) != 1 or len(rows) != 1:
        return None
    return RowsApart(source, lane, dividends.pop() - var(lane.variable), rows[0])


def rows_of(place: Index, lane: Loop) -> list[FloorDiv | Mod]:
    """What divides that has rows of a vector at least."""
    found = ((a, a.divisor.as_int()) for a in divided_by(place, lane.variable))
    return [a for a, n in found if n is None or n >= (lane.upper.as_int() or 0)]


def divided_by(place: Index, variable: str) -> tuple[FloorDiv | Mod, ...]:
    """What of it divides what moves one by one with the variable."""
    found = list[FloorDiv | Mod]()

    def one(a: Atom) -> Index | None:
        if isinstance(a, FloorDiv | Mod) and a.dividend.coefficient(variable) == 1:
            found.append(a)
        return None

    map_atoms(place, one)
    return tuple(found)
