"""A contraction's nest, a plan of tiles -> a grid whose blocks stage operands in shared memory.

Temporaries of a point become registers of its thread, so what is before the sum and behind it, an
epilogue, is done there too.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import ZERO, ceildiv, index, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Loop, Update, block
from tcsym.schedule.analysis.loops import chain_of, children
from tcsym.schedule.device.grid import Applied, Grid, at_iteration
from tcsym.schedule.device.nest import is_of_points
from tcsym.schedule.device.panels import Roles, copied_elements, panels_of
from tcsym.schedule.device.plan import SharedTiles, WarpTiles
from tcsym.schedule.device.points import Points, points_of
from tcsym.schedule.device.staged import Sum, Tiles


def apply_tiles(plan: SharedTiles | WarpTiles, grid: Grid) -> Applied:
    """The nest by the plan, which was proposed for it."""
    body = children(grid.nest.body)
    at = next(k for k, x in enumerate(body) if isinstance(x, Loop))
    around = chain_of(body[at])
    by = {x.variable: x for x in (*grid.nest.chain, *around)}
    roles = Roles(by[plan.rows], by[plan.columns], by[plan.sum])
    terms = [x for x in children(around[-1].body) if isinstance(x, Update)]
    panels = panels_of(grid.nest.kernel, terms, roles)
    beside = [any(p.side == v and not p.across for p in panels) for v in (plan.rows, plan.columns)]
    points = points_of(plan, (beside[0], beside[1]))
    sizes = {plan.rows: plan.block_rows, plan.columns: plan.block_columns}
    tiles = {v: grid.names.fresh(v) for v in sizes}
    start = {v: by[v].lower + var(tiles[v]) * n for v, n in sizes.items()}
    along = [p for p in panels if p.side == plan.columns and not p.across]
    copied = [copied_elements(grid.nest.kernel, p, roles, plan.copied) for p in along]
    whole = max(copied, default=0) >= points.columns.extents[1]
    made = Tiles(plan, grid, roles, points, start, _registers(grid, points, plan), whole)
    phases = (
        made.at_points(block(*body[:at])),
        Sum(made, around, terms, made.staged(panels)).node(),
        made.at_points(block(*body[at + 1 :])),
    )
    chain = tuple(
        Loop(tiles[v], ZERO, ceildiv(extent(x), sizes[v]), block(), "serial", "parallel")
        if (v := x.variable) in sizes
        else x
        for x in grid.nest.chain
    )
    outer = grid.names.fresh("block")
    inside = at_iteration(chain, var(outer), block(*phases))
    return grid.applied(outer, product_of(map(extent, chain)), inside, *tiles.values())


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
