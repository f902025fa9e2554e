# SPDX-License-Identifier: Apache-2.0
"""A plan of tiles -> which points of a block's tile each thread has, and their places in registers.

Along each side they are two loops, of strides in the tile, from a place that the thread's number
says. A warp of SharedTiles is 4 x 8 threads; points are neighbours by fours where a panel lies
along the side, so that four are loaded at once, else they are as far apart as there are threads.
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.index.expr import Index, floordiv, mod, var
from tcsym.ir.device import TILE_COLUMNS, TILE_ROWS, WARP
from tcsym.schedule.device.plan import SharedTiles, WarpTiles

WARP_ROWS, WARP_COLUMNS = 4, 8  # threads of a warp, as its part of a tile lies
NEIGHBOURS = 4  # elements of a thread side by side: of float32, what one access moves at most


class Side(Struct, frozen=True):
    """`extents` and `strides`: of the two loops over a thread's points along rows or columns."""

    extents: tuple[int, int]
    strides: tuple[int, int]

    @property
    def count(self) -> int:
        return self.extents[0] * self.extents[1]

    def place(self, first: Index, at: tuple[Index, Index]) -> Index:
        """In the block's tile."""
        return first + at[0] * self.strides[0] + at[1] * self.strides[1]

    def number(self, at: tuple[Index, Index]) -> Index:
        """Among the thread's points."""
        return at[0] * self.extents[1] + at[1]


class Points(Struct, frozen=True):
    """Of each thread. `first`: of one, for rows and for columns."""

    plan: SharedTiles | WarpTiles
    rows: Side
    columns: Side

    def warp(self, thread: str) -> tuple[Index, Index]:
        """Where the tile of its warp begins."""
        plan, warp = self.plan, floordiv(var(thread), WARP)
        assert isinstance(plan, WarpTiles)
        beside = plan.block_columns // plan.warp_columns
        return floordiv(warp, beside) * plan.warp_rows, mod(warp, beside) * plan.warp_columns

    def first(self, thread: str) -> tuple[Index, Index]:
        plan, t = self.plan, var(thread)
        warp, lane = floordiv(t, WARP), mod(t, WARP)
        if isinstance(plan, WarpTiles):
            row, column = self.warp(thread)
            return row + floordiv(lane, 4), column + mod(lane, 4) * 2
        beside = plan.block_columns // plan.column_points // WARP_COLUMNS
        row = floordiv(warp, beside) * WARP_ROWS + floordiv(lane, WARP_COLUMNS)
        column = mod(warp, beside) * WARP_COLUMNS + mod(lane, WARP_COLUMNS)
        return row * self.rows.extents[1], column * self.columns.extents[1]

    def side(self, variable: str, thread: str) -> tuple[Side, Index]:
        """Rows or columns, and where the thread's first one is."""
        row, column = self.first(thread)
        return (self.rows, row) if variable == self.plan.rows else (self.columns, column)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of registers for a number at each point."""
        (rows, above), (columns, beside) = self.rows.extents, self.columns.extents
        if isinstance(self.plan, WarpTiles):
            return rows, columns, above * beside
        return self.rows.count, self.columns.count

    def register(self, row: tuple[Index, Index], column: tuple[Index, Index]) -> tuple[Index, ...]:
        """The place of a point in them."""
        if isinstance(self.plan, WarpTiles):
            return row[0], column[0], row[1] * self.columns.extents[1] + column[1]
        return self.rows.number(row), self.columns.number(column)


def points_of(plan: SharedTiles | WarpTiles, beside: tuple[bool, bool]) -> Points:
    """beside: some panel of the rows, of the columns, has them side by side."""
    if isinstance(plan, WarpTiles):
        rows = Side((plan.own(plan.rows), 2), (TILE_ROWS, TILE_ROWS // 2))
        columns = Side((plan.own(plan.columns), 2), (TILE_COLUMNS, 1))
        return Points(plan, rows, columns)
    sides: list[Side] = []
    for v, together in zip((plan.rows, plan.columns), beside, strict=True):
        width, count = plan.sizes[v], plan.own(v)
        near = min(count, NEIGHBOURS) if together else 1
        sides.append(Side((count // near, near), (width // count * near, 1)))
    return Points(plan, *sides)
