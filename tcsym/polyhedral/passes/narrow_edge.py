"""The last column tile of a contraction -> half its vectors, if no more of them hold columns.

The products of a register tile are its cost; a tile of 16 columns spends half of it for nothing at
24 columns. The panel, the accumulators and the epilogue stay as they are: only the reduction
loops are there twice, the second time in few instructions.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.index import Condition, Index, ge, index, var
from tcsym.loop_ir import Block, Branch, Kernel, Loop, Node, block, map_node
from tcsym.polyhedral.passes.loops import replace_loop
from tcsym.polyhedral.passes.names import Names, renamed_loops
from tcsym.polyhedral.passes.register_tile import TileShape


def narrow_edge(
    kernel: Kernel, column_tile: str, n: Index, shape: TileShape, names: Names
) -> Kernel:
    """The reduction loops of the tile in a narrow version too, for `n` columns in all.

    Contract: what the loops write is the tile's registers, of which columns >= n are never used.
    """
    half = shape.vectors // 2
    if half == 0 or shape.lanes == 1 or not _may_be_narrow(n, half * shape.lanes, shape.columns):
        return kernel
    is_narrow = ge(half * shape.lanes, n - var(column_tile) * shape.columns)

    def change(tile: Loop) -> Node:
        return replace(tile, body=_in_two_widths(tile.body, is_narrow, shape, half, names))

    body = replace_loop(kernel.body, column_tile, change)
    return replace(kernel, body=body)


def _may_be_narrow(n: Index, narrow: int, columns: int) -> bool:
    known = n.as_int()
    return known is None or 0 < known % columns <= narrow


def _in_two_widths(
    node: Node, is_narrow: Condition, shape: TileShape, half: int, names: Names
) -> Node:
    match node:
        case Loop() if node.order == "reduction" and node.kind == "serial":
            copy = _narrowed(renamed_loops(node, names), shape.vectors, half)
            return Branch(is_narrow, copy, node)
        case Loop() if node.kind == "serial":
            return replace(node, body=_in_two_widths(node.body, is_narrow, shape, half, names))
        case Block(body):
            return block(*(_in_two_widths(x, is_narrow, shape, half, names) for x in body))
        case _:
            return node


def _narrowed(node: Node, vectors: int, half: int) -> Node:
    """With `half` of the vectors of each row, one step at a time."""

    def change(x: Node) -> Node:
        if not isinstance(x, Loop):
            return x
        if x.kind == "serial":
            return replace(x, unroll=1)
        is_row = isinstance(x.body, Loop) and x.body.kind == "vector"
        return replace(x, upper=index(half)) if is_row and x.upper.as_int() == vectors else x

    return map_node(node, change)
