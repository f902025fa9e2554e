# SPDX-License-Identifier: Apache-2.0
"""An innermost loop -> vectors: groups of them, single ones, and a last one that is ragged.

The last one overlaps the one before it where elements may be made twice, else it is masked;
elements that cannot be masked remain single, maybe after shorter vectors (epilogue vectorisation).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Expr, Read
from tcsym.index.expr import ZERO, Index, ceildiv, floordiv, ge, index, minimum, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Branch,
    Buffer,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    Value,
    block,
)
from tcsym.ir.traverse import map_node, substitute_node
from tcsym.schedule.analysis.access import subscript_variables
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import find_loop, loops_around, replace_loop, statements_in
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.schedule.version.versioning import Copies

SHORT_LANES = 4  # least of a shorter vector


class RowShape(Struct, frozen=True):
    """lanes: elements of a vector; unroll: vectors in flight; masked: the remainder is a vector;
    overlapping: one that may make elements of the row again, if the row is long enough; narrowing:
    it is vectors of a quarter, then elements."""

    lanes: int
    unroll: int
    masked: bool
    overlapping: bool = False
    narrowing: bool = False


class _Lanes(Struct, frozen=True):
    """Lane-private accumulators of one reduction: buffer[unroll, lanes]."""

    update: Update
    buffer: Buffer


def vectorise_row(kernel: Kernel, top: str, variable: str, shape: RowShape, names: Names) -> Kernel:
    """The innermost loop `variable` in vectors of `shape.lanes`, `shape.unroll` of them in flight.

    Updates of elements that do not move with any loop from `top` (itself, or a perfect chain around
    it) get lane-private accumulators, set to the identity before `top` and combined after it. Each
    part of the row has its own copies of the temporaries private to the loop.
    Contract: the loop is parallel or a reduction, and `vector_refusal` has nothing against it.
    """
    row = find_loop(kernel.body, variable)
    private = frozenset(x.variable for x in loops_around(kernel.body, top))
    lanes = _accumulators(kernel, row, shape, names, private)
    parts = _Parts(Copies(kernel, names), row, shape, lanes)
    remainder = parts.remainder()
    if remainder is not None:
        for width in _overlapping_widths(shape) if not lanes else ():
            remainder = Branch(ge(extent(row), width), parts.overlapping(width), remainder)
    main = parts.main()
    kernel = parts.copies.kernel

    def at_top(loop: Loop) -> Node:
        changed = replace_loop(loop, variable, lambda _: block(main, remainder))
        before = [_clear(x, shape, names) for x in lanes]
        after = [_combine(x, shape, names) for x in lanes]
        return block(*before, changed, *after)

    kernel = replace(kernel, body=replace_loop(kernel.body, top, at_top))
    for x in lanes:
        kernel = kernel.with_buffer(x.buffer)
    return kernel


def _overlapping_widths(shape: RowShape) -> tuple[int, ...]:
    """Of vectors that may overlap, the widest last: short ones where a mask costs too much."""
    if not shape.overlapping:
        return ()
    short = shape.lanes // 4
    return (shape.lanes,) if shape.masked or short < 4 else (short, shape.lanes)


def _accumulators(
    kernel: Kernel, loop: Loop, shape: RowShape, names: Names, private: frozenset[str]
) -> list[_Lanes]:
    """One for each element that `loop` reduces into, under conditions as well."""
    found: dict[tuple[str, tuple[Index, ...]], _Lanes] = {}
    for x, _ in statements_in(loop.body):
        key = (x.buffer, x.subscripts) if isinstance(x, Update) else None
        if not isinstance(x, Update) or key is None or key in found:
            continue
        if loop.variable not in subscript_variables(x.subscripts):
            target = kernel.buffer(x.buffer)
            name = names.fresh(f"{target.name}_lanes")
            extents = (index(shape.unroll), index(shape.lanes))
            buffer = Buffer(name, target.dtype.accumulator, extents, "register", private=private)
            found[key] = _Lanes(x, buffer)
    return list(found.values())


class _Parts(Struct, frozen=True):
    """Parts of a row, each with its loops and the temporaries private to them in `copies`."""

    copies: Copies
    row: Loop
    shape: RowShape
    lanes: list[_Lanes]

    def fresh(self) -> str:
        return self.copies.names.fresh(self.row.variable)

    def main(self) -> Node | None:
        """Whole groups of vectors, of the row's own loops; None if there never are any."""
        row, shape = self.row, self.shape
        width = shape.lanes * shape.unroll
        if floordiv(extent(row), width) == ZERO:
            return None
        tile, register, lane = (self.fresh() for _ in range(3))
        at = row.lower + var(tile) * width + var(register) * shape.lanes + var(lane)
        body = _at(_into_lanes(row.body, self.lanes, var(register), var(lane)), row.variable, at)
        inner: Node = _vector(lane, shape, body, row, None)
        if shape.unroll > 1:
            inner = Loop(register, ZERO, index(shape.unroll), inner, "unrolled", row.order)
        else:
            inner = substitute_node(inner, {register: ZERO})
        self.private(row.variable, tile, register)
        return Loop(tile, ZERO, floordiv(extent(row), width), inner, "serial", row.order)

    def private(self, variable: str, *loops: str) -> None:
        self.copies.kernel = replace_private(self.copies.kernel, {variable: loops})

    def remainder(self) -> Node | None:
        """What is left of the row, if anything: whole vectors, a masked one or elements."""
        row, shape, lanes = self.row, self.shape, self.lanes
        n, width = extent(row), shape.lanes * shape.unroll
        known, whole = n.as_int(), floordiv(n, shape.lanes)
        done = floordiv(n, width) * shape.unroll
        if known is not None and known % width == 0:
            return None
        vectors: Node | None = None
        few = shape.overlapping and not lanes  # then only rows shorter than a vector come here
        if shape.unroll > 1 and not few and (lanes or shape.masked):
            vectors = self.vectors(shape, done, whole, None)
            done = whole
        if shape.masked:  # known before the row: its mask is made once for all rows
            left = n - whole * shape.lanes
            return block(vectors, self.vectors(shape, done, ceildiv(n, shape.lanes), left))
        first = row.lower + done * shape.lanes
        short = max(SHORT_LANES, shape.lanes // 4)
        if shape.narrowing and shape.lanes % short == 0 and short < shape.lanes:
            narrow, wide = replace(shape, lanes=short), shape.lanes // short
            more = self.vectors(narrow, done * wide, floordiv(n, short), None)
            vectors = block(vectors, more)
            first = row.lower + floordiv(n, short) * short
        return block(vectors, replace(self.copies.of(row), lower=first))

    def vectors(self, shape: RowShape, first: Index, last: Index, mask: Index | None) -> Node:
        """One vector after another."""
        return self.each(shape, lambda tile: tile * shape.lanes, first, last, mask)

    def overlapping(self, width: int) -> Node:
        """What groups leave of a row of `width` or more: the last vector ends where it does."""
        n, (lanes, unroll) = extent(self.row), (self.shape.lanes, self.shape.unroll)
        done = floordiv(n, lanes * unroll) * (lanes * unroll // width)
        shape = replace(self.shape, lanes=width)

        def start(tile: Index) -> Index:
            return minimum(tile * width, n - width)

        return self.each(shape, start, done, ceildiv(n, width), None)

    def each(
        self,
        shape: RowShape,
        start: Callable[[Index], Index],
        first: Index,
        last: Index,
        mask: Index | None,
    ) -> Node:
        """A vector from `start` of each tile on."""
        tile, lane = self.fresh(), self.fresh()
        body = _into_lanes(self.row.body, self.lanes, ZERO, var(lane))
        row = self.copies.of(replace(self.row, body=body))
        at = row.lower + start(var(tile)) + var(lane)
        inner = _vector(lane, shape, _at(row.body, row.variable, at), row, mask)
        self.private(row.variable, tile)
        return Loop(tile, first, last, inner, "serial", row.order)


def _vector(lane: str, shape: RowShape, body: Node, loop: Loop, mask: Index | None) -> Loop:
    return Loop(lane, ZERO, index(shape.lanes), body, "vector", loop.order, mask)


def _at(node: Node, variable: str, position: Index) -> Node:
    return substitute_node(node, {variable: position})


def _into_lanes(node: Node, lanes: list[_Lanes], register: Index, lane: Index) -> Node:
    names = {(x.update.buffer, x.update.subscripts): x.buffer.name for x in lanes}

    def redirect(x: Node) -> Node:
        name = names.get((x.buffer, x.subscripts)) if isinstance(x, Update) else None
        if name is None or not isinstance(x, Update):
            return x
        return replace(x, buffer=name, subscripts=(register, lane))

    return map_node(node, redirect)


def _clear(x: _Lanes, shape: RowShape, names: Names) -> Node:
    register, lane = names.fresh("r"), names.fresh("l")
    start = identity(x.update.op, x.buffer.dtype)
    store = Store(x.buffer.name, (var(register), var(lane)), start, x.update.name)
    vector = Loop(lane, ZERO, index(shape.lanes), store, "vector", "parallel")
    return Loop(register, ZERO, index(shape.unroll), vector, "unrolled", "parallel")


def _combine(x: _Lanes, shape: RowShape, names: Names) -> Node:
    lane, b = names.fresh("l"), x.buffer
    vectors: list[Expr] = [
        Read(b.name, (index(r), var(lane)), b.dtype) for r in range(shape.unroll)
    ]
    total = tree(lambda p, q: Binary(x.update.op, p, q, b.dtype), vectors)
    value: Value = HorizontalReduce(x.update.op, lane, shape.lanes, total, b.dtype)
    return replace(x.update, value=value)


def tree(combine: Callable[[Expr, Expr], Expr], values: list[Expr]) -> Expr:
    """Pairwise combination: half the depth of a chain, and the more accurate sum."""
    while len(values) > 1:
        pairs = [values[k : k + 2] for k in range(0, len(values), 2)]
        values = [reduce(combine, p) for p in pairs]
    return values[0]
