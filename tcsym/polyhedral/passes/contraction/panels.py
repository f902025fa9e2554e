"""The tile loops of a contraction -> panels of column tiles and blocks of rows.

Order: panels, blocks, { copies of the panel; other loops, row tiles, column tiles }. A panel of the
streamed operand stays in the second cache while the rows of a block pass by; the rows of one tile
stay in the first. Panels and blocks are the unit of parallel work. How many tiles make a panel, and
how many rows a block, is a rule in sizes and cache capacity, evaluated at run time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import mul

from tcsym.index import ONE, ZERO, Index, floordiv, maximum, minimum, var
from tcsym.loop_ir import Kernel, Loop, Node
from tcsym.options import Options
from tcsym.polyhedral.passes.common.bounds import eliminate, extent
from tcsym.polyhedral.passes.common.interchange import reorder_chain
from tcsym.polyhedral.passes.common.loops import chain_of, find_loop, loops_around, replace_loop
from tcsym.polyhedral.passes.common.setting import Setting
from tcsym.records import dataclass

WORTH_A_PANEL = 2
WIDE_PANEL = 4


@dataclass(frozen=True, slots=True)
class Panels:
    """`copies`: the loop at whose start the panel is filled, for the tiles first <= t < end.

    `most`: bound of end - first.
    """

    copies: str
    first: Index
    end: Index
    most: Index


@dataclass(frozen=True, slots=True)
class Sizes:
    """Column tiles in a panel, and iterations of the blocked loop in a block."""

    panel: Index
    block: Index


def panel_sizes(n_tiles: Index, loops: tuple[Index, ...], fit: Index, options: Options) -> Sizes:
    """The parts that the options ask for, to share among threads, from columns or from rows.

    n_tiles: column tiles. loops: extents of the loops that use a panel again, the blocked one
    first. fit: tiles of a panel that fits the cache. Every block fills its panel anew, so there are
    blocks only of many rows, and only where panels alone would be narrow.
    """
    blocks, parts = ONE, options.panel_parts
    if loops:
        rows = reduce(mul, loops)
        enough = floordiv(rows, WORTH_A_PANEL * options.block_tiles)
        narrow = floordiv(WIDE_PANEL * parts, maximum(1, n_tiles))
        blocks = maximum(1, minimum(parts, loops[0], enough, narrow))
    panel = maximum(1, minimum(fit, floordiv(n_tiles * blocks, parts)))
    return Sizes(panel, _parts(loops[0], blocks) if loops else ONE)


def _parts(n: Index, size: Index) -> Index:
    return floordiv(n + size - 1, size)


def block_panels(
    kernel: Kernel, column_tile: str, row_tile: str | None, fit: Index, setting: Setting
) -> tuple[Kernel, Panels]:
    """Split the perfect chain `column_tile`, …, `row_tile` into panels and blocks of rows.

    The blocked loop is the outermost that uses a panel again. All loops keep their names and
    meaning (absolute tile numbers). What was private to the column tile is also private to the new
    loops around.
    """
    columns, names = find_loop(kernel.body, column_tile), setting.names
    chain = chain_of(columns)
    length = next((k for k, x in enumerate(chain) if x.variable == row_tile), 0) + 1
    inside = tuple(x.variable for x in chain[1:length])
    around = loops_around(kernel.body, column_tile)
    loops = tuple(_most(x, around) for x in chain[1:length])
    sizes = panel_sizes(_most(columns, around), loops, fit, setting.options)
    panel, rows_block = names.fresh(column_tile), names.fresh(row_tile or column_tile)
    first = var(panel) * sizes.panel
    end = minimum(first + sizes.panel, columns.upper)
    node: Node = replace(columns, lower=first, upper=end)
    outer = [panel]
    if inside:
        assert isinstance(node, Loop)
        node = reorder_chain(node, (*inside, column_tile))
        node = _blocked(node, rows_block, sizes.block)
        outer.append(rows_block)
    node = Loop(panel, ZERO, _parts(columns.upper, sizes.panel), node, "serial", "parallel")
    kernel = replace(kernel, body=replace_loop(kernel.body, column_tile, lambda _: node))
    private = _private(kernel, column_tile, frozenset(outer))
    return private, Panels(outer[-1], first, end, sizes.panel)


def _most(loop: Loop, around: tuple[Loop, ...]) -> Index:
    """Its extent as far as it is known outside the loops around."""
    most = eliminate(extent(loop), around, True)
    return ONE if most is None else most


def _blocked(loop: Loop, name: str, size: Index) -> Loop:
    """`loop` in blocks of `size` iterations."""
    first = loop.lower + var(name) * size
    inside = replace(loop, lower=first, upper=minimum(first + size, loop.upper))
    return Loop(name, ZERO, _parts(extent(loop), size), inside, "serial", "parallel")


def _private(kernel: Kernel, tile: str, outer: frozenset[str]) -> Kernel:
    buffers = tuple(
        replace(b, private=b.private | outer) if tile in b.private else b for b in kernel.buffers
    )
    return replace(kernel, buffers=buffers)
