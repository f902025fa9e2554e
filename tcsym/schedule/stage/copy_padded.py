# SPDX-License-Identifier: Apache-2.0
"""The copy of a box of an operand, with a border, in rows of whole vectors."""

from __future__ import annotations

from msgspec import Struct

from tcsym.frontend.program import Expr, Read, dtype_of
from tcsym.index.expr import (
    ZERO,
    Condition,
    Index,
    all_of,
    ceildiv,
    floordiv,
    ge,
    index,
    minimum,
    var,
)
from tcsym.ir.loops import Branch, Loop, Node, Store, block
from tcsym.schedule.analysis.casts import rebuilt, under_casts
from tcsym.schedule.analysis.names import Names


class Axis(Struct, frozen=True):
    """One dimension of the operand, read at `subscript`.

    The copy's element u is the operand's u + low, for 0 <= u < n; first <= u < end is inside, the
    rest is border. n = 0: the subscript is the same for the whole copy, which is all border unless
    `inside` holds (a condition on `subscript`, not on u).
    """

    subscript: Index
    low: Index
    n: Index
    first: Index
    end: Index
    is_guarded: bool
    inside: Condition


def fixed_axis(subscript: Index, inside: Condition) -> Axis:
    """An axis along which the copy has one element."""
    return Axis(subscript, subscript, ZERO, ZERO, ZERO, False, inside)


class _Copy(Struct, frozen=True):
    """`element`: of the operand, converted or not. `places`: the copy's subscripts by axis."""

    element: Expr
    border: Expr
    name: str
    lanes: int
    names: Names
    axes: tuple[Axis, ...]
    places: dict[int, Index]

    def store(self, row: tuple[Index, ...], x: Index, last: Axis, inside: bool) -> Node:
        if not inside:
            return Store(self.name, (*row, x), self.border, self.name)
        subscripts = tuple(
            x + a.low if a is last else self.places.get(id(a), ZERO) + a.low for a in self.axes
        )
        read = under_casts(self.element)
        value = Read(read.tensor, subscripts, dtype_of(read))  # type: ignore[union-attr]
        return Store(self.name, (*row, x), rebuilt(self.element, value), self.name)


def copy_padded(
    element: Expr,
    border: Expr,
    axes: tuple[Axis, ...],
    kept: tuple[Axis, ...],
    name: str,
    lanes: int,
    names: Names,
) -> Node:
    """Loops over the axes `kept`, rows along the last: name[u..] = operand[u + low..] or border."""
    *outer, last = kept
    variables = [names.fresh("u") for _ in outer]
    places = {id(a): var(v) for a, v in zip(outer, variables)}
    copy = _Copy(element, border, name, lanes, names, axes, places)
    row = tuple(var(v) for v in variables)
    ends = [c for a, u in zip(outer, row) for c in (ge(u, a.first), ge(a.end - 1, u))]
    fixed = [a.inside for a in axes if a.n == ZERO]
    node = _row(copy, row, last, all_of([*fixed, *ends]))
    for a, v in reversed(list(zip(outer, variables))):
        node = Loop(v, ZERO, a.n, node, "serial", "parallel")
    return node


def _row(copy: _Copy, row: tuple[Index, ...], last: Axis, inside: Condition) -> Node:
    """Border on both sides, by whole vectors; then what is inside, over it."""
    n_vectors = ceildiv(last.n, copy.lanes)
    before = _border(copy, row, last, ZERO, ceildiv(last.first, copy.lanes))
    after = _border(copy, row, last, floordiv(last.end, copy.lanes), n_vectors)
    whole = block(before, after, _inside(copy, row, last))
    return Branch(inside, whole, _border(copy, row, last, ZERO, n_vectors))


def _border(
    copy: _Copy, row: tuple[Index, ...], last: Axis, lower: Index, upper: Index
) -> Node | None:
    if lower == upper:
        return None
    tile = copy.names.fresh("u")
    node = _vector(copy, row, last, var(tile) * copy.lanes, False)
    return Loop(tile, lower, upper, node, "serial", "parallel")


def _vector(copy: _Copy, row: tuple[Index, ...], last: Axis, start: Index, inside: bool) -> Node:
    if copy.lanes == 1:
        return copy.store(row, start, last, inside)
    lane = copy.names.fresh("l")
    node = copy.store(row, start + var(lane), last, inside)
    return Loop(lane, ZERO, index(copy.lanes), node, "vector", "parallel")


def _inside(copy: _Copy, row: tuple[Index, ...], last: Axis) -> Node:
    """Vectors, the last one overlapping the one before; element by element if there are few."""
    n, lanes = last.end - last.first, copy.lanes
    element = copy.names.fresh("u")
    single = copy.store(row, last.first + var(element), last, True)
    elements = Loop(element, ZERO, n, single, "serial", "parallel")
    if lanes == 1:
        return elements
    tile = copy.names.fresh("u")
    start = last.first + minimum(var(tile) * lanes, n - lanes)
    vectors = Loop(
        tile, ZERO, ceildiv(n, lanes), _vector(copy, row, last, start, True), "serial", "parallel"
    )
    return Branch(ge(n, index(lanes)), vectors, elements)
