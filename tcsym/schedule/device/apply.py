"""A nest and its plan -> loops of a grid, private to its threads what was to the nest's loops."""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import assert_never

from tcsym.index.expr import ZERO, ceildiv, index, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.device.grid import Applied, Grid, at_iteration
from tcsym.schedule.device.plan import (
    BLOCK_THREADS,
    BlockRows,
    DevicePlan,
    SharedTiles,
    ThreadPoints,
    WarpTiles,
)
from tcsym.schedule.device.propose import Nest
from tcsym.schedule.device.rows import apply_rows
from tcsym.schedule.device.tiles import apply_tiles


def apply(plan: DevicePlan, nest: Nest, names: Names) -> Applied:
    """The nest by the plan, which was proposed for it."""
    grid = Grid(nest, names)
    match plan:
        case ThreadPoints():
            return _points(grid)
        case BlockRows():
            return apply_rows(plan, grid)
        case SharedTiles() | WarpTiles():
            return apply_tiles(plan, grid)
        case _:
            assert_never(plan)


def _points(grid: Grid) -> Applied:
    outer, chain = grid.names.fresh("block"), grid.nest.chain
    total = reduce(mul, map(extent, chain))
    threads = grid.threads(BLOCK_THREADS, mask=total - var(outer) * BLOCK_THREADS)
    flat = var(outer) * BLOCK_THREADS + var(threads.variable)
    body = at_iteration(chain, flat, grid.nest.body)
    inside = Loop(
        threads.variable, ZERO, index(BLOCK_THREADS), body, "thread", "parallel", threads.mask
    )
    return grid.applied(outer, ceildiv(total, BLOCK_THREADS), inside)
