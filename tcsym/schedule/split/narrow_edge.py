# SPDX-License-Identifier: Apache-2.0
"""The last tiles of a contraction -> part of their vectors or rows, if no more of them are used.

The products of a register tile are its cost; a tile of 16 columns spends half of it for nothing at
24 columns, one of 6 rows a third at 16 rows. The panels, the accumulators and the epilogue stay as
they are: only the reduction loops are there in three sizes, the small ones in few instructions.
Full tiles, nearly all, have one of their own: there a row's address needs no clamp.
"""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import Condition, Index, all_of, ge, index, negate, var
from tcsym.ir.loops import Block, Branch, Kernel, Loop, Node, block
from tcsym.ir.traverse import map_node
from tcsym.schedule.analysis.loops import loops_in, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.tile.register_tile import Tiled, TileShape
from tcsym.schedule.tile.tile_loop import is_multiple
from tcsym.schedule.version.versioning import Copies

BUSY_SUMS = 8  # vectors added to in turn that keep two multipliers with a delay of four steps busy


class _Edge(Struct, frozen=True):
    """If `holds`, the unrolled loops of `full` points inside the reductions have `part` of them.

    known: tile loops of which no point is beyond the end then.
    """

    holds: Condition
    full: int
    part: int
    is_row: bool
    known: frozenset[str] = frozenset()


def narrow_edge(
    kernel: Kernel,
    tiled: Tiled,
    columns: Index,
    rows: Index,
    shape: TileShape,
    names: Names,
    masked: bool,
) -> Kernel:
    """The reduction loops of the tile in full, narrow and short versions, for so many points.

    masked: operands are read as they lie, under masks; tiles full of columns get none.
    Contract: what the loops write is the tile's registers, of which columns and rows beyond the
    ends are never used.
    """
    half, few = shape.vectors // 2 * shape.lanes, _few_rows(shape)
    narrow = _narrow(tiled, columns, shape)
    full = [negate(x.holds) for x in narrow]
    edges = [*narrow, *_short(tiled, rows, shape)]
    others = False
    if masked and not is_multiple(columns, shape.columns):
        full = [ge(columns - var(tiled.column_tile) * shape.columns, shape.columns)]
        others = _may_end(columns, half + 1 if narrow else 1, shape.columns - 1, shape.columns)
    if tiled.row_tile is not None and not is_multiple(rows, shape.rows):
        whole = ge(rows - var(tiled.row_tile) * shape.rows, shape.rows)
        full.append(whole)
        inside = frozenset((tiled.row_tile,))
        edges[:0] = [replace(x, holds=all_of((x.holds, whole)), known=inside) for x in narrow]
        others = others or _may_end(rows, few + 1, shape.rows - 1, shape.rows)
    if not full:
        return kernel
    known = frozenset(x for x in (tiled.row_tile, tiled.column_tile if masked else None) if x)

    copies = Copies(kernel, names)

    def change(tile: Loop) -> Node:
        versions = _Versions(all_of(full), known, tuple(edges), others, copies)
        return replace(tile, body=versions.of(tile.body))

    body = replace_loop(kernel.body, tiled.column_tile, change)
    return replace(copies.kernel, body=body)


def _narrow(tiled: Tiled, columns: Index, shape: TileShape) -> tuple[_Edge, ...]:
    half = shape.vectors // 2
    width = half * shape.lanes
    if half == 0 or shape.lanes == 1 or not _may_end(columns, 1, width, shape.columns):
        return ()
    left = columns - var(tiled.column_tile) * shape.columns
    return (_Edge(ge(width, left), shape.vectors, half, True),)


def _short(tiled: Tiled, rows: Index, shape: TileShape) -> tuple[_Edge, ...]:
    few = _few_rows(shape)
    if tiled.row_tile is None or few == 0 or not _may_end(rows, 1, few, shape.rows):
        return ()
    left = rows - var(tiled.row_tile) * shape.rows
    return (_Edge(ge(few, left), shape.rows, few, False),)


def _few_rows(shape: TileShape) -> int:
    """Rows that keep the processor busy: fewer take as long. 0: all of the tile's are needed."""
    few = -(-BUSY_SUMS // shape.vectors)
    return few if few < shape.rows else 0


def _may_end(n: Index, least: int, most: int, whole: int) -> bool:
    """The last of the tiles of `whole` points may have that many of them."""
    step = math.gcd(whole, *(k for _, k in n.terms))
    first = least + (n.constant - least) % step
    known = n.as_int()
    return first <= most and (known is None or least <= known % whole <= most)


class _Versions(Struct, frozen=True):
    """`full`: no point beyond the ends of the loops `known`. `others`: tiles that are neither that
    nor at one of the `edges`."""

    full: Condition
    known: frozenset[str]
    edges: tuple[_Edge, ...]
    others: bool
    copies: Copies

    def of(self, node: Node) -> Node:
        match node:
            case Loop() if node.order == "reduction" and node.kind == "serial":
                return Branch(self.full, _without_masks(node, self.known), self._ragged(node))
            case Loop() if node.kind == "serial":
                return replace(node, body=self.of(node.body))
            case Block(body):
                return block(*map(self.of, body))
            case _:
                return node

    def _ragged(self, sum_: Loop) -> Node:
        """Of the edges that a tile is at, the first."""
        edges = [(x.holds, _reduced(self.copies.of(sum_), x)) for x in self.edges]
        if self.others:
            node = map_node(self.copies.of(sum_), _step_by_step)
        else:
            _, node = edges.pop()
        for holds, edge in reversed(edges):
            node = Branch(holds, edge, node)
        return node


def _step_by_step(x: Node) -> Node:
    return replace(x, unroll=1) if isinstance(x, Loop) and x.kind == "serial" else x


def _without_masks(node: Node, tiles: frozenset[str]) -> Node:
    def change(x: Node) -> Node:
        masked = isinstance(x, Loop) and x.mask is not None and x.mask.variables() & tiles
        return replace(x, mask=None) if isinstance(x, Loop) and masked else x

    return map_node(node, change)


def _reduced(node: Node, edge: _Edge) -> Node:
    """With part of the vectors of each row, or of the rows, one step at a time."""
    node = _without_masks(node, edge.known)

    def change(x: Node) -> Node:
        if not isinstance(x, Loop) or x.kind == "serial":
            return _step_by_step(x)
        holds_points = any(map(_is_point, loops_in(x.body)))
        if not _is_point(x) or x.upper.as_int() != edge.full or holds_points == edge.is_row:
            return x  # lanes, too, may be as many as rows
        return replace(x, upper=index(edge.part))

    return map_node(node, change)


def _is_point(x: Loop) -> bool:
    """Rows of the tile, and in each its vectors (or columns, where there are no lanes)."""
    return x.kind == "unrolled" and x.order == "parallel"
