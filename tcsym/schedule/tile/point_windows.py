# SPDX-License-Identifier: Apache-2.0
"""Windows of one point -> vectors along columns, without loops over the windows."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.ir.loops import Kernel, Loop, Node
from tcsym.ir.traverse import substitute_node
from tcsym.schedule.analysis.band import Band, band_of
from tcsym.schedule.analysis.loops import find_loop, replace_loop
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import UnitWindows
from tcsym.schedule.tile.register_tile import TileShape, tile_registers

ROW_VECTORS = 4  # their sums are in flight at once


def point_tile(kernel: Kernel, band: Band, setting: Setting) -> TileShape:
    """Vectors of a row that are made together."""
    return TileShape(1, ROW_VECTORS, setting.lanes(kernel, band.body))


def schedule_unit_windows(kernel: Kernel, nest: str, x: UnitWindows, setting: Setting) -> Kernel:
    """Overlapping tiles. Contract: windows have one point, and columns fill a tile."""
    shape = point_tile(kernel, band_of(find_loop(kernel.body, nest)), setting)
    for v in x.windows:
        kernel = replace(kernel, body=replace_loop(kernel.body, v, _only_iteration))
    inner = band_of(find_loop(kernel.body, x.columns))
    tiled = tile_registers(kernel, inner, x.columns, None, (), shape, setting.names, True)
    return tiled.kernel


def _only_iteration(x: Loop) -> Node:
    return substitute_node(x.body, {x.variable: x.lower})
