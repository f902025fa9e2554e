# SPDX-License-Identifier: Apache-2.0
"""Nest -> its plans by strips or rows: without tiles of rows x columns.

Strips have columns in the lanes and sums along rows, rows have the innermost loop in the lanes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.index.expr import TRUE, ge
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.loops import find_loop, is_leaf, loops_around, outermost_loops
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import (
    InnerLeaves,
    LeafPlan,
    Rows,
    Strips,
    Terms,
    Version,
    always,
)
from tcsym.schedule.tile.strip_schedule import strip_columns
from tcsym.schedule.version.choose import Proposal


def in_strips(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[LeafPlan]]:
    """Strips, if columns in lanes beat vectors along rows."""
    columns = strip_columns(kernel, nest, setting)
    if columns is not None:
        yield always(Strips(columns), f"strips along {columns}")


def in_terms(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[LeafPlan]]:
    """Sums over ranges that are read: each may be too short for the lanes, whatever the sizes."""
    leaf, around = find_loop(kernel.body, nest), loops_around(kernel.body, nest)
    ends = leaf.lower.variables() | leaf.upper.variables()
    is_read = any(x.value is not None and x.variable in ends for x in around)
    if is_leaf(leaf) and is_read and leaf.order == "reduction":
        yield Version(ge(setting.lanes(kernel, leaf) - 1, extent(leaf)), Terms(), needs=TRUE)


def in_rows(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[LeafPlan]]:
    """Vectors along rows; strips in the nests inside, where one of them runs faster so."""
    if _has_inner_strips(kernel, nest, setting):
        yield always(InnerLeaves())
    yield always(Rows())


def _has_inner_strips(kernel: Kernel, nest: str, setting: Setting) -> bool:
    """One of the nests inside the band at `nest` runs faster in strips."""
    band = band_of(find_loop(kernel.body, nest))
    inside = outermost_loops(band.body) if band.loops else ()
    return any(strip_columns(kernel, x.variable, setting) for x in inside)


LEAF: tuple[Proposal[LeafPlan], ...] = (in_strips, in_terms, in_rows)
