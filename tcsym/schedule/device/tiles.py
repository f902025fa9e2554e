"""A contraction's nest, a plan of tiles -> a grid whose blocks stage operands in shared memory.

Temporaries of a point become registers of its thread, so what is before the sum and behind it, an
epilogue, is done there too.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import index
from tcsym.ir.loops import block
from tcsym.schedule.device.grid import Applied, Grid
from tcsym.schedule.device.nest import is_of_points
from tcsym.schedule.device.panels import contraction, copied_elements
from tcsym.schedule.device.plan import SharedTiles, WarpTiles
from tcsym.schedule.device.points import Points, points_of
from tcsym.schedule.device.staged import Sum, Tiles


def apply_tiles(plan: SharedTiles | WarpTiles, grid: Grid) -> Applied:
    """The nest by the plan, which was proposed for it."""
    x = contraction(grid.nest, plan.rows, plan.columns, plan.sum)
    near = [{p.side for p in x.panels if not p.across} >= {v} for v in (plan.rows, plan.columns)]
    points = points_of(plan, (near[0], near[1]))
    tiled = grid.tiled({plan.rows: plan.block_rows, plan.columns: plan.block_columns})
    along = [p for p in x.panels if p.side == plan.columns and not p.across]
    copied = [copied_elements(grid.nest.kernel, p, x.roles, plan.copied) for p in along]
    whole = max(copied, default=0) >= points.columns.extents[1]
    made = Tiles(plan, grid, x, points, tiled.start, _registers(grid, points, plan), whole)
    before, sums = made.at_points(x.before), Sum(made, made.staged(x.panels)).node()
    return tiled.applied(block(before, sums, made.at_points(x.behind)))


def _registers(grid: Grid, points: Points, plan: SharedTiles | WarpTiles) -> frozenset[str]:
    """Temporaries of a point become registers of the thread, an element for each of its points."""
    nest, found = grid.nest, set[str]()
    for b in nest.kernel.buffers:
        if is_of_points(nest, b.name, plan.rows, plan.columns):
            found.add(b.name)
            small = replace(b, space="register", shape=tuple(map(index, points.shape)))
            nest = replace(nest, kernel=nest.kernel.with_buffer(replace(small, strides=None)))
    grid.nest = nest
    grid.private += found
    return frozenset(found)
