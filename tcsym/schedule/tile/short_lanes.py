# SPDX-License-Identifier: Apache-2.0
"""Nest with short rows -> the same with another parallel loop in the lanes, and the rows inside.

Elements of a vector lie apart in memory, but no lane is idle.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.band import Band, band_of
from tcsym.schedule.analysis.loops import find_loop, replace_loop
from tcsym.schedule.analysis.overlap import is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.order.interchange import reorder_chain
from tcsym.schedule.plan import Lanes
from tcsym.schedule.tile.register_tile import TileShape, tile_registers
from tcsym.schedule.tile.row_schedule import split_rest
from tcsym.schedule.tile.transpose_lanes import transpose_lanes


def schedule_lanes(kernel: Kernel, nest: str, x: Lanes, setting: Setting) -> Kernel:
    """Whole vectors of the columns: the last one overlaps, or elements are left for scalars."""
    names, columns, top = setting.names, x.columns, find_loop(kernel.body, nest)
    band = band_of(top)
    lanes = setting.lanes(kernel, band.body)
    inside = tuple(v for v in band.variables if v in x.rows)
    order = (*(v for v in band.variables if v not in x.rows), *inside)
    top = reorder_chain(top, order)
    kernel = replace(kernel, body=replace_loop(kernel.body, nest, lambda _: top))
    overlapping = is_repeatable(kernel, top, frozenset((columns,)))
    if not overlapping:
        kernel, _ = split_rest(kernel, order[0], columns, lanes, names)
    whole = band_of(find_loop(kernel.body, columns))
    outer = tuple(x for x in whole.loops if x.variable not in inside)
    tile = Band(outer, find_loop(kernel.body, inside[0]) if inside else whole.body)
    shape = TileShape(1, 1, lanes)
    tiled = tile_registers(kernel, tile, columns, None, (), shape, names, overlapping)
    if x.most < 2 * lanes:  # one block at most, which is one vector of the row
        return tiled.kernel
    return transpose_lanes(tiled.kernel, tiled.top, lanes, setting)
