# SPDX-License-Identifier: Apache-2.0
"""Windows whose terms need no weights -> sums along one side of the window, then along the other.

`O(h, w) max= I(2*h + kh, 2*w + kw)` asks for KH*KW elements a point. The maxima down the columns of
a window, `T(x) max= I(2*h + kh, x)`, serve all windows of the row: KH elements for each x, side by
side in memory whatever the step, then KW of T a point. Sides of known short length become one
expression, without an accumulator. Box filters, pooling, dilation and erosion are such windows.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import (
    ZERO,
    Index,
    all_of,
    ceildiv,
    ge,
    index,
    maximum,
    minimum,
    var,
)
from tcsym.ir.bounds import extent, extent_from
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, block, conditional
from tcsym.ir.traverse import map_value, same, substitute_node
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import find_loop, in_loops, loops_around, replace_loop
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.schedule.analysis.separable import Separable, Side, is_small, separable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.combine.expand_reductions import expand_reductions

ROWS = 4  # of a side at a time: what was just stored cannot be loaded at once


class Separated(Struct, frozen=True):
    """`nests`: what is left to schedule."""

    kernel: Kernel
    nests: tuple[str, ...]


def separate_windows(kernel: Kernel, nest: str, setting: Setting) -> Separated | None:
    """The nest with every reduction over a window in two parts; None if one has no such parts."""
    names = setting.names
    band = band_of(find_loop(kernel.body, nest))
    if len(separable(kernel, band)) == 0:
        return None
    return Separated(*_separated(kernel, nest, setting.lanes(kernel, band.body), names))


def _separated(
    kernel: Kernel, nest: str, lanes: int, names: Names
) -> tuple[Kernel, tuple[str, ...]]:
    """The nest in two parts, and the outermost loops of what is left to schedule."""
    band = band_of(find_loop(kernel.body, nest))
    found = separable(kernel, band)
    if all(is_small(x) for x in found):
        body = expand_reductions(band.body)
        innermost = band.variables[-1]
        changed = replace_loop(kernel.body, innermost, lambda x: replace(x, body=body))
        return replace(kernel, body=changed), (nest,)
    inner = found[0].inner
    outer, rows = band.loops[: -len(inner) - 1], band.loops[-len(inner) - 1]
    tile, row = names.fresh(rows.variable), var(rows.variable) - rows.lower
    around = (*loops_around(kernel.body, nest), *outer)
    private = frozenset((*(x.variable for x in around), tile))
    parts, body = list[Node](), band.body
    for one in found:
        name = names.fresh(f"{one.update.buffer.partition('.')[0]}_side")
        *extents, row_length = (extent_from(x.n, frozenset(kernel.sizes)) for x in one.sides)
        extents.append(ceildiv(row_length, lanes) * lanes)  # where a vector may begin
        dtype, shape = kernel.buffer(one.update.buffer).dtype, (extent(rows), *extents)
        kernel = kernel.with_buffer(Buffer(name, dtype, shape, "arena", private=private))
        parts.append(_first(one, name, row, kernel, names))
        second = _second(one, name, row, kernel)
        body = replace_loop(body, one.around[0].variable, lambda _, x=second: x)  # type: ignore[misc]
    parts.append(in_loops(inner, expand_reductions(body)))
    kernel, blocks, nests = _in_blocks(kernel, rows, tile, parts, names)
    filled = all_of(ge(extent(x), 1) for x in inner)
    node = conditional(filled, in_loops(outer, blocks))
    return replace(kernel, body=replace_loop(kernel.body, nest, lambda _: node)), nests


def _in_blocks(
    kernel: Kernel, rows: Loop, tile: str, parts: list[Node], names: Names
) -> tuple[Kernel, Node, tuple[str, ...]]:
    """Some rows of each part at a time, and the loops over these rows."""
    n, nests = extent(rows), list[Loop]()
    first, end = var(tile) * ROWS, minimum(index(ROWS), n - var(tile) * ROWS)
    for x in parts:
        row = names.fresh(rows.variable)
        body = substitute_node(x, {rows.variable: rows.lower + first + var(row)})
        nests.append(Loop(row, ZERO, end, body, "serial", rows.order))
    new = tuple(x.variable for x in nests)
    blocks = Loop(tile, ZERO, ceildiv(n, ROWS), block(*nests), "serial", rows.order)
    return replace_private(kernel, {rows.variable: (tile, new[-1])}), blocks, new


def _first(one: Separable, name: str, row: Index, kernel: Kernel, names: Names) -> Node:
    """The side done once for all points of the row; nothing where the other side has no points."""
    dtype = kernel.buffer(name).dtype
    along = [names.fresh(_stem(x, one.inner)) for x in one.sides]
    moved = {x.subscript: x.low + var(v) for x, v in zip(one.sides, along)}
    value = map_value(one.update.value, same, lambda i: moved.get(i, i))
    at = (row, *map(var, along))
    update = replace(one.update, buffer=name, subscripts=at, value=value)
    start = Store(name, at, identity(update.op, dtype), update.name)
    node = expand_reductions(block(start, in_loops(one.first, update)))
    some = minimum(1, *(maximum(0, extent(x)) for x in one.second))
    for side, v in reversed(tuple(zip(one.sides, along))):
        node = Loop(v, ZERO, side.n * some, node, "serial", "parallel")
    return node


def _stem(side: Side, inner: tuple[Loop, ...]) -> str:
    return next(x.variable for x in inner if x.variable in side.subscript.variables())


def _second(one: Separable, name: str, row: Index, kernel: Kernel) -> Node:
    at = (row, *(x.subscript - x.low for x in one.sides))
    value = Read(name, at, kernel.buffer(name).dtype)
    return in_loops(one.second, replace(one.update, value=value))
