# SPDX-License-Identifier: Apache-2.0
"""The tile loops of a contraction -> blocks of rows and panels of column tiles.

Order: blocks, panels, { copies of the panel; other loops, row tiles, column tiles }. A panel of the
streamed operand stays in the second cache while the rows of a block pass by; the rows of one tile
stay in the first. Blocks and panels are the unit of parallel work. Threads share either the rows,
and each copies all panels, or the panels, and then they write to both sides of a line of the result
in every row. How many tiles make a panel, and how many rows a block, is a rule in sizes, cache
capacity and the number of threads, evaluated at run time.
"""

from __future__ import annotations

from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import (
    ONE,
    ZERO,
    Index,
    ceildiv,
    choose,
    floordiv,
    ge,
    maximum,
    minimum,
    var,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import eliminate, extent
from tcsym.ir.loops import THREADS, Block, Kernel, Loop, Node
from tcsym.schedule.analysis.loops import chain_of, find_loop, loops_around, replace_loop
from tcsym.schedule.analysis.names import replace_private
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.order.interchange import reorder_chain
from tcsym.schedule.order.parallelise import is_free

BLOCK_TILES = 16  # least of rows in a block, where threads share rows as columns are few
NARROW = 32  # tiles: too few to be shared evenly
ROW_BYTES = 512  # copying as many takes as long as two threads writing to one line


class Panels(Struct, frozen=True):
    """`copies`: the loop at whose start the panel is filled, for the tiles first <= t < end.

    `most`: bound of end - first, in sizes only.
    """

    copies: str
    first: Index
    end: Index
    most: Index


class Room(Struct, frozen=True):
    """What a panel may take. `bytes`: of the second cache. `fit`: tiles that fit there.

    `rows`: of a row tile. `threads`: that share the loops.
    """

    bytes: int
    fit: Index
    rows: int
    threads: Index


class Sizes(Struct, frozen=True):
    """Column tiles in a panel, at most `most`; iterations of the blocked loop in a block."""

    panel: Index
    most: Index
    block: Index


def panel_sizes(n_tiles: Index, loops: tuple[Index, ...], room: Room) -> Sizes:
    """Shares of the threads, and panels.

    n_tiles: column tiles. loops: extents of the loops that use a panel again, the blocked one
    first. Every block fills its panels anew: there are blocks where that costs less than shared
    lines, and of many rows where the columns do not suffice.
    """
    blocks = ONE
    if loops:
        rows = product_of(loops)
        enough = floordiv(rows, BLOCK_TILES)
        most_blocks = maximum(1, minimum(room.threads, loops[0]))
        few = maximum(1, minimum(most_blocks, enough, floordiv(NARROW, maximum(1, n_tiles))))
        copied = max(1, room.bytes // (ROW_BYTES * room.rows))
        blocks = choose(ge(rows * room.fit, copied * n_tiles), most_blocks, few)
    most = maximum(1, minimum(room.fit, n_tiles))
    columns = ceildiv(room.threads, blocks)  # threads that share a block
    panels = columns * maximum(1, ceildiv(n_tiles, columns * most))
    panel = maximum(1, ceildiv(n_tiles, panels))
    return Sizes(panel, most, ceildiv(loops[0], blocks) if loops else ONE)


def block_panels(
    kernel: Kernel,
    column_tile: str,
    row_tile: str | None,
    room: Room,
    setting: Setting,
) -> tuple[Kernel, Panels]:
    """Split the perfect chain `column_tile`, …, `row_tile` into blocks of rows and panels.

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
    sizes = panel_sizes(_most(columns, around), loops, room)
    panel, rows_block = names.fresh(column_tile), names.fresh(row_tile or column_tile)
    first = var(panel) * sizes.panel
    end = minimum(first + sizes.panel, columns.upper)
    node: Node = replace(columns, lower=first, upper=end)
    outer, blocked = [panel], None
    if inside:
        assert isinstance(node, Loop)
        node = reorder_chain(node, (*inside, column_tile))
        blocked = node
        node = _one_block(blocked, rows_block, sizes.block)
        outer.append(rows_block)
    node = Loop(panel, ZERO, ceildiv(columns.upper, sizes.panel), node, "serial", "parallel")
    if blocked is not None:
        n_blocks = ceildiv(extent(blocked), sizes.block)
        node = Loop(rows_block, ZERO, n_blocks, node, "serial", "parallel")
    kernel = replace(kernel, body=replace_loop(kernel.body, column_tile, lambda _: node))
    private = replace_private(kernel, {column_tile: (column_tile, *outer)})
    return private, Panels(panel, first, end, sizes.most)


def threads_left(kernel: Kernel, tile: str, setting: Setting) -> Index:
    """For the loop `tile`: the call's threads, divided among the iterations of the loops around.

    Copies may stand in front of it, as `collapse.collapse_outermost` allows.
    """
    around = loops_around(kernel.body, tile)
    if not setting.options.parallelize or any(x.independent for x in around):
        return ONE
    first = next((k for k, x in enumerate(around) if is_free(x)), len(around))
    own = (*around[first:], find_loop(kernel.body, tile))
    if not all(is_free(x) and (x.body is y or _ends_in(x, own[-1])) for x, y in pairwise(own)):
        return ONE  # threads run an outer loop
    taken = product_of(_most(x, around) for x in own[:-1])
    return ceildiv(var(THREADS), maximum(1, taken))


def _ends_in(loop: Loop, last: Loop) -> bool:
    return isinstance(loop.body, Block) and loop.body.body[-1] is last


def _most(loop: Loop, around: tuple[Loop, ...]) -> Index:
    """Its extent as far as it is known outside the loops around."""
    most = eliminate(extent(loop), around, True)
    return ONE if most is None else most


def _one_block(loop: Loop, name: str, size: Index) -> Loop:
    """The `size` iterations of `loop` that belong to block `name`."""
    first = loop.lower + var(name) * size
    return replace(loop, lower=first, upper=minimum(first + size, loop.upper))
