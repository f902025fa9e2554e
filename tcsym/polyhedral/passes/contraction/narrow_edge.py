"""The last tiles of a contraction -> part of their vectors or rows, if no more of them are used.

The products of a register tile are its cost; a tile of 16 columns spends half of it for nothing at
24 columns, one of 6 rows a third at 16 rows. The panels, the accumulators and the epilogue stay as
they are: only the reduction loops are there in three sizes, the small ones in few instructions.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.index import TRUE, Condition, Index, ge, index, var
from tcsym.loop_ir import Block, Branch, Kernel, Loop, Node, block, map_node
from tcsym.polyhedral.passes.common.loops import loops_in, replace_loop
from tcsym.polyhedral.passes.common.names import Names, renamed_loops
from tcsym.polyhedral.passes.common.tile_loop import is_multiple
from tcsym.polyhedral.passes.contraction.register_tile import Tiled, TileShape
from tcsym.records import dataclass

BUSY_SUMS = 8  # vectors added to in turn that keep two multipliers with a delay of four steps busy


@dataclass(frozen=True, slots=True)
class _Edge:
    """If `holds`, the unrolled loops of `full` points inside the reductions have `part` of them."""

    holds: Condition
    full: int
    part: int
    is_row: bool


def narrow_edge(
    kernel: Kernel,
    tiled: Tiled,
    columns: Index,
    rows: Index,
    shape: TileShape,
    names: Names,
    masked: bool,
) -> Kernel:
    """The reduction loops of the tile in narrow and short versions too, for so many points in all.

    masked: operands are read as they lie, under masks; tiles full of columns get none.
    Contract: what the loops write is the tile's registers, of which columns and rows beyond the
    ends are never used.
    """
    edges = (*_narrow(tiled, columns, shape), *_short(tiled, rows, shape))
    full: Condition = TRUE
    if masked and shape.lanes > 1 and not is_multiple(columns, shape.columns):
        full = ge(columns - var(tiled.column_tile) * shape.columns, shape.columns)
    if not edges and full == TRUE:
        return kernel

    def change(tile: Loop) -> Node:
        return replace(tile, body=_in_versions(tile.body, edges, full, names))

    body = replace_loop(kernel.body, tiled.column_tile, change)
    return replace(kernel, body=body)


def _narrow(tiled: Tiled, columns: Index, shape: TileShape) -> tuple[_Edge, ...]:
    half = shape.vectors // 2
    if half == 0 or shape.lanes == 1 or not _may_end(columns, half * shape.lanes, shape.columns):
        return ()
    left = columns - var(tiled.column_tile) * shape.columns
    return (_Edge(ge(half * shape.lanes, left), shape.vectors, half, True),)


def _short(tiled: Tiled, rows: Index, shape: TileShape) -> tuple[_Edge, ...]:
    """Fewer rows than keep the processor busy take as long."""
    few = -(-BUSY_SUMS // shape.vectors)
    if tiled.row_tile is None or few >= shape.rows or not _may_end(rows, few, shape.rows):
        return ()
    left = rows - var(tiled.row_tile) * shape.rows
    return (_Edge(ge(few, left), shape.rows, few, False),)


def _may_end(n: Index, part: int, whole: int) -> bool:
    """The last of the tiles of `whole` points may have no more than `part` of them."""
    known = n.as_int()
    return known is None or 0 < known % whole <= part


def _in_versions(node: Node, edges: tuple[_Edge, ...], full: Condition, names: Names) -> Node:
    match node:
        case Loop() if node.order == "reduction" and node.kind == "serial":
            return _versions(node, edges, full, names)
        case Loop() if node.kind == "serial":
            return replace(node, body=_in_versions(node.body, edges, full, names))
        case Block(body):
            return block(*(_in_versions(x, edges, full, names) for x in body))
        case _:
            return node


def _versions(sum_: Loop, edges: tuple[_Edge, ...], full: Condition, names: Names) -> Node:
    """Full tiles are asked for first where only they are quick, else last."""
    if full == TRUE:
        return _at_edges(sum_, sum_, edges, names)
    slow = map_node(renamed_loops(sum_, names), _step_by_step)
    return Branch(full, map_node(sum_, _without_mask), _at_edges(slow, sum_, edges, names))


def _at_edges(whole: Node, sum_: Loop, edges: tuple[_Edge, ...], names: Names) -> Node:
    for edge in reversed(edges):
        whole = Branch(edge.holds, _reduced(renamed_loops(sum_, names), edge), whole)
    return whole


def _step_by_step(x: Node) -> Node:
    return replace(x, unroll=1) if isinstance(x, Loop) and x.kind == "serial" else x


def _without_mask(x: Node) -> Node:
    return replace(x, mask=None) if isinstance(x, Loop) and x.kind == "vector" else x


def _reduced(node: Node, edge: _Edge) -> Node:
    """With part of the vectors of each row, or of the rows, one step at a time."""

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
