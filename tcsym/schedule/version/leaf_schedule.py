"""Nest -> the same by windows, blocks of columns, strips or rows: whatever needs no register tile.

Strips have columns in the lanes and sums along rows, rows have the innermost loop in the lanes.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.index.expr import FALSE, TRUE
from tcsym.ir.loops import Kernel, Prefetch
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.loops import find_loop, loops_around, outermost_loops
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.combine.rfactor_rows import rfactor_rows
from tcsym.schedule.tile.column_blocks import blocks_pay, schedule_column_blocks
from tcsym.schedule.tile.fold_columns import fold_columns
from tcsym.schedule.tile.row_schedule import schedule_rows
from tcsym.schedule.tile.share_loads import (
    share_loads,
    shared_rows,
    whole_chain,
    whole_vectors,
)
from tcsym.schedule.tile.strip_schedule import gathered, schedule_strips, strip_columns
from tcsym.schedule.tile.unroll_and_jam import row_blocks, schedule_row_blocks
from tcsym.schedule.tile.window_schedule import schedule_windows, window_rows
from tcsym.schedule.version.versioning import add_version


def schedule_leaf(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    columns = strip_columns(kernel, nest, setting)
    if columns is None:
        if _has_inner_strips(kernel, nest, setting):
            return schedule_inner_nests(kernel, nest, setting)
        return _rows(kernel, nest, setting)
    rows = window_rows(kernel, nest, columns)
    windows = rows and schedule_windows(kernel, nest, columns, rows, setting)
    if windows:
        setting.note(nest, f"windows, columns {columns}, rows {rows}")
        return windows
    return _strips(kernel, nest, columns, setting)


def _has_inner_strips(kernel: Kernel, nest: str, setting: Setting) -> bool:
    """One of the nests inside the band at `nest` runs faster in strips."""
    band = band_of(find_loop(kernel.body, nest))
    inside = outermost_loops(band.body) if band.loops else ()
    return any(strip_columns(kernel, x.variable, setting) for x in inside)


def schedule_inner_nests(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """Each nest inside the band at `nest` by a schedule of its own."""
    for x in outermost_loops(band_of(find_loop(kernel.body, nest)).body):
        kernel = schedule_leaf(kernel, x.variable, setting)
    return kernel


def _rows(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """Vectors along rows, of several rows at a time where these share operands or elements."""
    blocks = tuple(row_blocks(kernel, nest, setting))
    for x in blocks:
        if x.condition != FALSE:
            kernel = schedule_row_blocks(kernel, nest, x, setting)
        if x.condition == TRUE:
            return kernel
    if blocks:
        return schedule_rows(kernel, nest, setting)
    shared = share_loads(kernel, nest, setting)
    if shared is None:
        return schedule_rows(kernel, nest, setting)
    setting.note(shared.paired, "two rows at a time")
    return schedule_rows(shared.kernel, nest, plainly(setting)) if shared.rest else shared.kernel


def plainly(setting: Setting) -> Setting:
    """For what few calls run: one vector at a time, which is less code."""
    return replace(setting, options=replace(setting.options, row_unroll=1))


def schedule_long_rows(
    kernel: Kernel, nest: str, length: int, ahead: tuple[Prefetch, ...], setting: Setting
) -> Kernel:
    """Rows of `length` elements or more, two or more of them: in whole vectors if those fit.

    ahead: what each vector fetches, in terms of the nest's loops.
    """
    chain = whole_chain(kernel, nest, setting)
    if chain is None or setting.lanes(kernel, chain[-1].body) > length:
        return schedule_leaf(kernel, nest, setting)
    rows = shared_rows(kernel, chain)
    setting.note(nest, "whole vectors" if rows is None else "two rows at a time")
    return whole_vectors(kernel, chain, rows, setting, ahead)


def _strips(kernel: Kernel, nest: str, columns: str, setting: Setting) -> Kernel:
    """Blocks of columns where they pay, which may be known only at run time, else strips."""
    own_rows = loops_around(kernel.body, columns) and gathered(find_loop(kernel.body, columns).body)
    pays = None if own_rows else blocks_pay(kernel, columns, setting)
    pays = None if pays is None else in_context(kernel, pays)
    if pays is None or pays == FALSE:
        setting.note(nest, f"strips along {columns}")
        return schedule_strips(kernel, nest, columns, setting)
    kernel = fold_columns(kernel, nest, columns, setting)
    setting.note(nest, f"blocks of columns {columns}")
    if pays == TRUE:
        return _column_blocks(kernel, nest, columns, setting)
    place = band_of(find_loop(kernel.body, nest)).variables.index(columns)
    kernel, copy = add_version(kernel, nest, pays, setting.names)
    kernel = _column_blocks(kernel, nest, columns, setting)
    setting.note(copy, f"strips along {columns}")
    return schedule_strips(
        kernel, copy, band_of(find_loop(kernel.body, copy)).variables[place], setting
    )


def _column_blocks(kernel: Kernel, nest: str, columns: str, setting: Setting) -> Kernel:
    """Threads share the rows where no loop around the columns gives them parts."""
    if loops_around(kernel.body, columns):
        return schedule_column_blocks(kernel, columns, setting)
    return schedule_shared_rows(kernel, nest, columns, setting)


def schedule_shared_rows(kernel: Kernel, nest: str, columns: str, setting: Setting) -> Kernel:
    split = (
        rfactor_rows(kernel, nest, columns, setting.names) if setting.options.parallelize else None
    )
    if split is None:
        return schedule_column_blocks(kernel, columns, setting)
    kernel = schedule_column_blocks(split.kernel, split.columns, setting, split.rows)
    few = replace(setting, options=replace(setting.options, strip_vectors=1))
    return schedule_strips(kernel, nest, columns, few)
