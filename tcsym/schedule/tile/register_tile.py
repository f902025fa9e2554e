# SPDX-License-Identifier: Apache-2.0
"""A band of parallel loops -> tiles whose points are registers: unrolled rows, vector columns."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.ir.loops import Kernel, Loop, Node
from tcsym.schedule.analysis.band import Band
from tcsym.schedule.analysis.loops import find_loop, replace_loop
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.schedule.order.interchange import reorder_chain, sink_points
from tcsym.schedule.tile.tile_loop import split_point, tile_loop, tile_loop_overlapping


class TileShape(Struct, frozen=True):
    """rows x (vectors * lanes) points; lanes 1: no vectors. masks: registers of masks for them."""

    rows: int
    vectors: int
    lanes: int
    masks: bool = False

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


class Tiled(Struct, frozen=True):
    """Names of the tile loops; the outermost loop of the nest is now `top`."""

    kernel: Kernel
    top: str
    row_tile: str | None


def tile_registers(
    kernel: Kernel,
    band: Band,
    columns: str,
    rows: str | None,
    outer: tuple[str, ...],
    shape: TileShape,
    names: Names,
    overlapping: bool = False,
) -> Tiled:
    """Tile `columns` and `rows`, order the band, and sink the points into every statement.

    The loops become: `outer`, column tiles, the other loops of the band, row tiles; inside, around
    each statement, rows x vectors x lanes. What was private to a tiled loop is so to its tiles.
    Contract: `can_tile` holds for the band; for `overlapping` tiles also `tile_loop_overlapping`'s.
    """
    split = tile_loop_overlapping if overlapping else tile_loop
    tile, point = names.fresh(columns), names.fresh(columns)
    register, lane = names.fresh(columns), names.fresh(columns)
    row_tile, row = (names.fresh(rows), names.fresh(rows)) if rows else (None, None)
    top: Loop = find_loop(kernel.body, band.variables[0])
    node: Node = top
    node = replace_loop(node, columns, lambda x: split(x, shape.columns, tile, point))
    if rows and row_tile and row:
        node = replace_loop(node, rows, lambda x: split(x, shape.rows, row_tile, row))
    others = tuple(v for v in band.variables if v not in (columns, rows, *outer))
    rows_outside = (row_tile,) if row_tile else ()
    rows_inside = (row,) if row else ()
    order = (*outer, tile, *others, *rows_outside, *rows_inside, point)
    assert isinstance(node, Loop)
    node = reorder_chain(node, order)
    points: tuple[str, ...] = (*rows_inside, point)
    if shape.lanes > 1:
        node = replace_loop(node, point, lambda x: split_point(x, shape.lanes, register, lane))
        points = (*rows_inside, register, lane)
    node = replace_loop(node, points[0], lambda x: sink_points(x, points, names))
    body = replace_loop(kernel.body, top.variable, lambda _: node)
    tiles = {columns: (tile,), **({rows: (row_tile,)} if rows and row_tile else {})}
    kernel = replace_private(replace(kernel, body=body), tiles)
    return Tiled(kernel, order[0], row_tile)


def can_tile(band: Band, columns: str, rows: str | None, outer: tuple[str, ...]) -> bool:
    """No bound in the band would use a loop that is no longer around it."""
    order = (*outer, columns, *(v for v in band.variables if v not in (columns, rows, *outer)))
    order = (*order, rows) if rows else order
    known: set[str] = set()
    inside = set(band.variables)
    for v in order:
        loop = band.loop(v)
        if (loop.lower.variables() | loop.upper.variables()) & inside - known:
            return False
        if v not in (columns, rows):
            known.add(v)
    return True
