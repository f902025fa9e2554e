"""The tile loops of a contraction -> panels of column tiles and blocks of row tiles.

Order: panels, row blocks, { copies of the panel; other loops, row tiles, column tiles }. A panel of
the streamed operand stays in the second cache while the rows of a block pass by; the rows of one
tile stay in the first. Panels and blocks are the unit of parallel work. How many tiles make a panel
is a rule in sizes and cache capacity, evaluated at run time.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.index import ZERO, Index, floordiv, index, maximum, minimum, var
from tcsym.loop_ir import Kernel, Loop, Node
from tcsym.options import Options
from tcsym.polyhedral.passes.interchange import reorder_chain
from tcsym.polyhedral.passes.loops import chain_of, find_loop, replace_loop
from tcsym.polyhedral.passes.setting import Setting
from tcsym.records import dataclass


@dataclass(frozen=True, slots=True)
class Panels:
    """`copies`: the loop at whose start the panel is filled, for the tiles first <= t < end.

    `most`: bound of end - first.
    """

    copies: str
    first: Index
    end: Index
    most: Index


def panel_tiles(n_tiles: Index, tile_bytes: Index, setting: Setting) -> Index:
    """Tiles in a panel: what fits its share of the cache, but enough panels if possible."""
    options = setting.options
    share = setting.target.l2_bytes * options.panel_percent // 100
    fit = floordiv(share, tile_bytes)
    return maximum(1, minimum(fit, floordiv(n_tiles, options.panel_parts)))


def block_panels(
    kernel: Kernel, column_tile: str, row_tile: str | None, size: Index, setting: Setting
) -> tuple[Kernel, Panels]:
    """Split the perfect chain `column_tile`, …, `row_tile` into panels of `size` and row blocks.

    Both loops keep their names and meaning (absolute tile numbers). What was private to them is
    also private to the new loops around.
    """
    columns, names = find_loop(kernel.body, column_tile), setting.names
    panel, rows_block = names.fresh(column_tile), names.fresh(row_tile or column_tile)
    first = var(panel) * size
    end = minimum(first + size, columns.upper)
    chain = chain_of(columns)
    length = next((k for k, x in enumerate(chain) if x.variable == row_tile), 0) + 1
    inside = tuple(x.variable for x in chain[1:length])
    node: Node = replace(columns, lower=first, upper=end)
    if inside:
        assert isinstance(node, Loop)
        node = reorder_chain(node, (*inside, column_tile))
    outer = [panel]
    if row_tile is not None:
        node, count = _row_block(node, row_tile, rows_block, setting.options)
        node = Loop(rows_block, ZERO, count, node, "serial", "parallel")
        outer.append(rows_block)
    node = Loop(panel, ZERO, _parts(columns.upper, size), node, "serial", "parallel")
    kernel = replace(kernel, body=replace_loop(kernel.body, column_tile, lambda _: node))
    return _private(kernel, column_tile, frozenset(outer)), Panels(outer[-1], first, end, size)


def _row_block(node: Node, row_tile: str, block: str, options: Options) -> tuple[Node, Index]:
    """`node` with the row tiles of one block, and the number of blocks."""
    n_tiles = find_loop(node, row_tile).upper
    size = maximum(options.block_tiles, _parts(n_tiles, index(options.panel_parts)))
    first = var(block) * size
    end = minimum(first + size, n_tiles)
    node = replace_loop(node, row_tile, lambda x: replace(x, lower=first, upper=end))
    return node, _parts(n_tiles, size)


def _parts(n: Index, size: Index) -> Index:
    return floordiv(n + size - 1, size)


def _private(kernel: Kernel, tile: str, outer: frozenset[str]) -> Kernel:
    buffers = tuple(
        replace(b, private=b.private | outer) if tile in b.private else b for b in kernel.buffers
    )
    return replace(kernel, buffers=buffers)
