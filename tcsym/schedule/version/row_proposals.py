# SPDX-License-Identifier: Apache-2.0
"""Map or sums of rows -> its plans where rows may be short, else those of a leaf."""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.index.expr import all_of, condition_variables, eq, ge
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.separable import separable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import (
    Interleave,
    Lanes,
    LeafPlan,
    RowPlan,
    SplitWindows,
    Version,
    always,
)
from tcsym.schedule.tile.strip_schedule import strip_columns
from tcsym.schedule.version.choose import Proposal
from tcsym.schedule.version.leaf_proposals import LEAF
from tcsym.schedule.version.short_rows import in_lanes, short_versions

FEW_POOLED = 3  # columns of windows done in two parts: more are quicker so


def short_rows(
    kernel: Kernel, nest: str, setting: Setting
) -> Iterator[Version[Lanes | Interleave]]:
    """Another loop in the lanes."""
    columns = strip_columns(kernel, nest, setting)
    most = FEW_POOLED if separable(kernel, band_of(find_loop(kernel.body, nest))) else None
    yield from short_versions(kernel, nest, columns, setting, most)


def window_parts(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[SplitWindows]]:
    """Windows one dimension after the other."""
    if separable(kernel, band_of(find_loop(kernel.body, nest))):
        yield always(SplitWindows())


def single_elements(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Lanes]]:
    """A map of sums, for rows of one element."""
    band = band_of(find_loop(kernel.body, nest))
    if len(band.loops) > 1:
        *_, rows, columns = band.loops
        wide = ge(extent(rows), setting.lanes(kernel, band.body))
        single = in_context(kernel, all_of((eq(extent(columns), 1), wide)))
        if condition_variables(single) <= frozenset(kernel.sizes):
            yield from in_lanes(kernel, nest, rows.variable, single)


ROWS: tuple[Proposal[RowPlan | LeafPlan], ...] = (
    short_rows,
    window_parts,
    *LEAF,
)
