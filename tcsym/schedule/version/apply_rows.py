# SPDX-License-Identifier: Apache-2.0
"""Nest, plan of a leaf or of rows -> the nest scheduled so; and the leaves and maps inside it."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.loops import find_loop, outermost_loops
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.combine.separable_windows import separate_windows
from tcsym.schedule.plan import (
    InnerLeaves,
    Interleave,
    Lanes,
    LeafPlan,
    PermuteFactors,
    RowBlocks,
    RowPlan,
    Rows,
    SplitWindows,
    Strips,
    Terms,
    WindowTile,
)
from tcsym.schedule.stage.permute_factors import permute_factors
from tcsym.schedule.tile.interleave import schedule_interleave
from tcsym.schedule.tile.row_schedule import schedule_rows
from tcsym.schedule.tile.short_lanes import schedule_lanes
from tcsym.schedule.tile.strip_schedule import schedule_strips
from tcsym.schedule.tile.unroll_and_jam import schedule_row_blocks
from tcsym.schedule.tile.window_schedule import schedule_window_tile
from tcsym.schedule.version.choose import choose
from tcsym.schedule.version.leaf_proposals import LEAF
from tcsym.schedule.version.row_proposals import ROWS


def schedule_leaf(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by windows, strips or rows."""
    return choose(kernel, nest, setting, LEAF, apply_leaf)


def schedule_map(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The same, beside versions for short rows."""
    return choose(kernel, nest, setting, ROWS, apply_rows)


def apply_leaf(plan: LeafPlan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    match plan:
        case Rows(vectors):
            return schedule_rows(kernel, nest, _unrolled(setting, vectors))
        case Terms():
            return kernel
        case Strips(columns, vectors):
            return schedule_strips(kernel, nest, columns, _wide(setting, vectors))
        case WindowTile():
            return schedule_window_tile(kernel, nest, plan, setting)
        case RowBlocks():
            return schedule_row_blocks(kernel, nest, plan, setting)
        case InnerLeaves():
            for x in outermost_loops(band_of(find_loop(kernel.body, nest)).body):
                kernel = schedule_leaf(kernel, x.variable, setting)
            return kernel
        case _:
            assert_never(plan)


def apply_rows(plan: LeafPlan | RowPlan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    match plan:
        case Lanes():
            return schedule_lanes(kernel, nest, plan, setting)
        case Interleave():
            return schedule_interleave(kernel, nest, plan, setting)
        case SplitWindows():
            return _split_windows(kernel, nest, setting)
        case PermuteFactors():
            return _on_permuted_factors(kernel, nest, setting)
        case _:
            return apply_leaf(plan, kernel, nest, setting)


def _unrolled(setting: Setting, vectors: int | None) -> Setting:
    """With so many vectors of a row in flight; None: as options say."""
    n = setting.options.row_unroll if vectors is None else vectors
    return replace(setting, options=replace(setting.options, row_unroll=n))


def _wide(setting: Setting, vectors: int | None) -> Setting:
    """With strips of so many vectors; None: as options say."""
    n = setting.options.strip_vectors if vectors is None else vectors
    return replace(setting, options=replace(setting.options, strip_vectors=n))


def _split_windows(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    separated = separate_windows(kernel, nest, setting)
    assert separated is not None
    setting.note(nest, "windows in two parts")
    kernel = separated.kernel
    for x in separated.nests:
        kernel = schedule_leaf(kernel, x, setting)
    return kernel


def _on_permuted_factors(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """A map on operands that lie as its result does; where they are used seldom, as they do."""
    factors = permute_factors(kernel, nest, setting)
    assert factors is not None
    setting.note(nest, "operands across the result from copies")
    kernel = factors.kernel
    for x in factors.copies:
        kernel = schedule_rows(kernel, x, setting)
    if factors.rest is not None:
        kernel = schedule_map(kernel, factors.rest, setting)
    return schedule_map(kernel, nest, setting)
