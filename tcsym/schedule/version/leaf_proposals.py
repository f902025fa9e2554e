# SPDX-License-Identifier: Apache-2.0
"""Nest -> its plans by windows, blocks of columns, strips or rows: without tiles of rows x columns.

Strips have columns in the lanes and sums along rows, rows have the innermost loop in the lanes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.index.expr import FALSE, TRUE, ge
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.checked_rows import gathered_rows
from tcsym.schedule.analysis.loops import find_loop, is_leaf, loops_around, outermost_loops
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import (
    ColumnBlocks,
    InnerLeaves,
    LeafPlan,
    PairRows,
    Rows,
    Strips,
    Terms,
    Version,
    always,
)
from tcsym.schedule.tile.column_blocks import blocks_pay
from tcsym.schedule.tile.share_loads import sharing
from tcsym.schedule.tile.strip_schedule import gathered, strip_columns
from tcsym.schedule.tile.unroll_and_jam import row_blocks
from tcsym.schedule.tile.window_schedule import can_tile_windows, window_rows, window_tiles
from tcsym.schedule.version.choose import Proposal


def in_strips(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[LeafPlan]]:
    """Windows, blocks of columns or strips, if columns in lanes beat vectors along rows."""
    columns = strip_columns(kernel, nest, setting)
    if columns is None:
        return
    rows = window_rows(kernel, nest, columns)
    if rows and can_tile_windows(kernel, nest, columns, setting):
        yield from window_tiles(kernel, nest, columns, rows, setting)
    yield from _column_blocks(kernel, nest, columns, setting)
    yield always(Strips(columns), f"strips along {columns}")


def _column_blocks(
    kernel: Kernel, nest: str, columns: str, setting: Setting
) -> Iterator[Version[LeafPlan]]:
    """Threads share the rows where no loop around the columns gives them parts."""
    around = bool(loops_around(kernel.body, columns))
    own_rows = around and gathered(find_loop(kernel.body, columns).body)
    pays = None if own_rows else blocks_pay(kernel, columns, setting)
    if pays is None or in_context(kernel, pays) == FALSE:
        return
    plan = ColumnBlocks(columns, not around)
    needs = gathered_rows(kernel, band_of(find_loop(kernel.body, columns)))
    yield Version(pays, plan, note=f"blocks of columns {columns}", needs=needs)


def in_terms(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[LeafPlan]]:
    """Sums over ranges that are read: each may be too short for the lanes, whatever the sizes."""
    leaf, around = find_loop(kernel.body, nest), loops_around(kernel.body, nest)
    ends = leaf.lower.variables() | leaf.upper.variables()
    is_read = any(x.value is not None and x.variable in ends for x in around)
    if is_leaf(leaf) and is_read and leaf.order == "reduction":
        yield Version(ge(setting.lanes(kernel, leaf) - 1, extent(leaf)), Terms(), needs=TRUE)


def in_rows(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[LeafPlan]]:
    """Vectors along rows, of several rows at a time where these share operands or elements; strips
    in the nests inside, where one of them runs faster so."""
    if _has_inner_strips(kernel, nest, setting):
        yield always(InnerLeaves())
    blocks = tuple(row_blocks(kernel, nest, setting))
    yield from blocks
    if blocks:
        yield always(Rows())
    shared = sharing(kernel, nest, setting)
    if shared is None:
        yield always(Rows())
    else:
        rows, pays = shared
        yield Version(pays, PairRows(rows), "before")
        yield always(Rows(vectors=1))  # for what few calls run: less code


def _has_inner_strips(kernel: Kernel, nest: str, setting: Setting) -> bool:
    """One of the nests inside the band at `nest` runs faster in strips."""
    band = band_of(find_loop(kernel.body, nest))
    inside = outermost_loops(band.body) if band.loops else ()
    return any(strip_columns(kernel, x.variable, setting) for x in inside)


LEAF: tuple[Proposal[LeafPlan], ...] = (in_strips, in_terms, in_rows)
