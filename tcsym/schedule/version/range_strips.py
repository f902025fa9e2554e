# SPDX-License-Identifier: Apache-2.0
"""Rows in which ranges vary -> strips of them, or row by row: before their nests get plans.

A strip sums over the hull of its rows' ranges, in register tiles: it makes `height` more terms a
row than the ranges have, and each of them quicker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tcsym.index.expr import TRUE
from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.loops import find_loop, loops_in
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.order_plans import OwnRanges, RangePlan, RangeStrips
from tcsym.schedule.plan import Version, always
from tcsym.schedule.split.strip_ranges import has_range_of, strip_ranges
from tcsym.schedule.version.choose import choose

STRIP_ROWS = 24  # so many share a panel's step, and what a strip keeps between its nests is small
QUICKER = 4  # a term in a register tile, than in a row's own sum


def with_range_strips(kernel: Kernel, setting: Setting) -> Kernel:
    """Every loop whose ranges vary with it and with nothing else, if it contracts over its rows."""
    for loop in loops_in(kernel.body):
        strips = _height(setting)
        if loop.independent and strip_ranges(kernel, loop, strips, setting.names) is not None:
            kernel = choose(kernel, loop.variable, setting, (range_strips,), _apply)
    return kernel


def range_strips(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[RangePlan]]:
    """Strips, unless their rows have so short ranges that most of a hull would be in vain."""
    height = _height(setting)
    pays = has_range_of(kernel, find_loop(kernel.body, nest), height // (QUICKER - 1))
    yield Version(pays, RangeStrips(height), needs=TRUE)
    yield always(OwnRanges())


def _height(setting: Setting) -> int:
    rows = setting.machine.tile.rows
    return rows * (-(-STRIP_ROWS // rows))


def _apply(plan: RangePlan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    match plan:
        case RangeStrips(height):
            rows = find_loop(kernel.body, nest)
            strips = strip_ranges(kernel, rows, height, setting.names)
            assert strips is not None
            return strips
        case OwnRanges():
            return kernel
        case _:
            assert_never(plan)
