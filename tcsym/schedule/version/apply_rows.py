# SPDX-License-Identifier: Apache-2.0
"""Nest, plan of a leaf or of rows -> the nest scheduled so; and the leaves and maps inside it."""

from __future__ import annotations

from typing import assert_never

from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.loops import find_loop, outermost_loops
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import (
    InnerLeaves,
    LeafPlan,
    Rows,
    Strips,
    Terms,
)
from tcsym.schedule.tile.row_schedule import schedule_rows
from tcsym.schedule.tile.strip_schedule import schedule_strips
from tcsym.schedule.version.choose import choose
from tcsym.schedule.version.leaf_proposals import LEAF


def schedule_leaf(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by strips or rows."""
    return choose(kernel, nest, setting, LEAF, apply_leaf)


def apply_leaf(plan: LeafPlan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    match plan:
        case Rows():
            return schedule_rows(kernel, nest, setting)
        case Terms():
            return kernel
        case Strips(columns):
            return schedule_strips(kernel, nest, columns, setting)
        case InnerLeaves():
            for x in outermost_loops(band_of(find_loop(kernel.body, nest)).body):
                kernel = schedule_leaf(kernel, x.variable, setting)
            return kernel
        case _:
            assert_never(plan)
