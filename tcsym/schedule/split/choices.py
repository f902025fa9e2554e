# SPDX-License-Identifier: Apache-2.0
"""Rows under minima, maxima and choices in subscripts -> their inside, without these, and edges.

Borders that repeat or mirror an image, `X(y, min(max(x-1,0), W-1))`, choose at every point and
gather. In the inside of a row each such choice has one outcome, a plain subscript; the edges keep
the text's. (Quotients: `split_quotients`. Choices in sums: `windows.copy_choices`.)
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import (
    TRUE,
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    NonNegative,
    atom_parts,
    ceildiv,
    floordiv,
    index,
    maximum,
    minimum,
    negate,
    var,
)
from tcsym.index.values import conjuncts, evaluate, map_atoms
from tcsym.ir.bounds import (
    at_least,
    at_most,
    is_nonnegative,
)
from tcsym.ir.loops import Kernel, Loop, Node, block
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.analysis.loops import is_leaf
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.split.row_parts import is_parallel, with_parts
from tcsym.schedule.version.versioning import duplicate

LONG, SHORT = 1000, 10  # a row's sizes and all others, where the lengths of sides are compared
MOST_CHOICES = 8  # of a row: each is two terms of the bounds of its long part


class _Side(Struct, frozen=True):
    """lowers <= variable < uppers, where a choice comes out as `value`."""

    value: Index
    lowers: tuple[Index, ...]
    uppers: tuple[Index, ...]


class _Row:
    """An innermost loop; `sides`: of the choices met in it, None where none is long."""

    def __init__(self, loop: Loop, sizes: frozenset[str]) -> None:
        self.loop, self.sizes = loop, sizes
        self.sides: dict[Atom, _Side | None] = {}

    def resolved(self, e: Index) -> Index:
        """`e` with the outcome of every choice that has one in most of the row."""
        for atom in _choices(e, self.loop.variable):
            if atom not in self.sides:
                self.sides[atom] = self._longest(atom) if len(self.sides) < MOST_CHOICES else None
            side = self.sides[atom]
            if side is None:
                return e
            return self.resolved(map_atoms(e, {atom: side.value}.get))
        return e

    def _longest(self, atom: Atom) -> _Side | None:
        sides = [s for value, parts in _outcomes(atom) if (s := self._side(value, parts))]
        best = max(sides, key=self._length, default=None)
        whole = self._length(_Side(index(0), (), ()))
        return None if best is None or 2 * self._length(best) <= whole else best

    def _side(self, value: Index, parts: tuple[Index, ...]) -> _Side | None:
        """Where all `parts` are >= 0, if that is a range."""
        lowers: list[Index] = []
        uppers: list[Index] = []
        for part in parts:
            step = part.coefficient(self.loop.variable)
            rest = part - var(self.loop.variable) * step
            if not rest.variables() <= self.sizes:
                return None
            if step > 0:
                lowers.append(ceildiv(-rest, step))
            elif step < 0:
                uppers.append(floordiv(rest, -step) + 1)
            elif not is_nonnegative(rest, self.sizes):
                return None
        return _Side(value, tuple(lowers), tuple(uppers))

    def limits(self) -> tuple[Index, Index]:
        """The first element of the inside, and what follows its last."""
        loop, sizes = self.loop, self.sizes
        sides = [s for s in self.sides.values() if s]
        first = maximum(loop.lower, *(x for s in sides for x in s.lowers))
        first = at_most(at_least(first, loop.lower, sizes), loop.upper, sizes)
        last = minimum(loop.upper, *(x for s in sides for x in s.uppers))
        return first, at_least(at_most(last, loop.upper, sizes), first, sizes)

    def inside(self, loop: Loop) -> Loop:
        first, last = self.limits()
        body = map_node(loop.body, on_index=self.resolved)
        return replace(loop, lower=first, upper=last, body=body)

    def _length(self, side: _Side) -> int:
        lower = maximum(self.loop.lower, *side.lowers)
        upper = minimum(self.loop.upper, *side.uppers)
        own = (self.loop.upper - self.loop.lower).variables()
        return evaluate(upper - lower, {n: LONG if n in own else SHORT for n in self.sizes})


def split_choices(kernel: Kernel, names: Names) -> Kernel:
    """The innermost parallel loops in which all subscripts are plain in one long part."""
    for loop, around in walk(kernel.body):
        if isinstance(loop, Loop) and is_parallel(loop) and is_leaf(loop):
            row = _row(kernel, loop)
            if row is not None:
                kernel, edges = _edges(kernel, loop, row, names)
                parts = block(row.inside(loop), *edges)
                kernel = with_parts(kernel, loop, around, parts, TRUE, names)
    return kernel


def _row(kernel: Kernel, loop: Loop) -> _Row | None:
    """The row, if all its choices have one outcome in most of it."""
    sizes = frozenset(kernel.sizes)
    if not loop.end_variables <= sizes or not _all_choices(loop):
        return None
    row = _Row(loop, sizes)
    map_node(loop.body, on_index=row.resolved)
    return row if all(row.sides.values()) else None


def _edges(kernel: Kernel, loop: Loop, row: _Row, names: Names) -> tuple[Kernel, tuple[Node, ...]]:
    """Copies of the row for what of it lies before the inside, and after it."""
    first, last = row.limits()
    copies: list[Node] = []
    for lower, upper in ((loop.lower, first), (last, loop.upper)):
        if lower != upper:
            edge = replace(loop, lower=lower, upper=upper)
            kernel, copy, _ = duplicate(kernel, edge, names)
            copies.append(copy)
    return kernel, tuple(copies)


def _all_choices(loop: Loop) -> tuple[Atom, ...]:
    found: list[Atom] = []

    def look(e: Index) -> Index:
        found.extend(_choices(e, loop.variable))
        return e

    map_node(loop.body, on_index=look)
    return tuple(found)


def _choices(e: Index, variable: str) -> Iterator[Atom]:
    """Those that move with the variable, inner ones first."""
    for atom, _ in e.terms:
        if isinstance(atom, str):
            continue
        for part in atom_parts(atom):
            yield from _choices(part, variable)
        moves = any(variable in p.variables() for p in atom_parts(atom))
        if moves and isinstance(atom, Min | Max | Choose | FloorDiv | Mod):
            yield atom


def _outcomes(atom: Atom) -> Iterator[tuple[Index, tuple[Index, ...]]]:
    """Values of the atom, each with what is >= 0 where it has that."""
    match atom:
        case Min(args) | Max(args):
            for a in args:
                sign = 1 if isinstance(atom, Max) else -1
                yield a, tuple((a - x) * sign for x in args if x is not a)
        case Choose(c, a, b):
            for truth, value in ((c, a), (negate(c), b)):
                parts = _conjuncts(truth)
                if parts:
                    yield value, parts
        case _:
            pass


def _conjuncts(c: Condition) -> tuple[Index, ...]:
    parts = conjuncts(c)
    if not all(isinstance(p, NonNegative) for p in parts):
        return ()
    return tuple(p.index for p in parts if isinstance(p, NonNegative))
