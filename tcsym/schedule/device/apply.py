"""A nest and its plan -> loops of a grid, private to its threads what was to the nest's loops."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from tcsym.index.expr import ZERO, ceildiv, floordiv, index, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Loop, block
from tcsym.ir.traverse import substitute_node
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.device.grid import Applied, Grid, at_iteration
from tcsym.schedule.device.nest import Nest
from tcsym.schedule.device.plan import (
    BLOCK_THREADS,
    BlockRows,
    DevicePlan,
    SharedTiles,
    SplitSum,
    ThreadPoints,
    TurnedTiles,
    WarpTiles,
)
from tcsym.schedule.device.rows import apply_rows
from tcsym.schedule.device.split import split_sum
from tcsym.schedule.device.tiles import apply_tiles
from tcsym.schedule.device.transposed import apply_turned


def apply(plan: DevicePlan, nest: Nest, names: Names) -> Applied:
    """The nest by the plan, which was proposed for it."""
    grid = Grid(nest, names)
    match plan:
        case ThreadPoints():
            return _points(plan, grid)
        case TurnedTiles():
            return apply_turned(plan, grid)
        case BlockRows():
            return apply_rows(plan, grid)
        case SharedTiles() | WarpTiles():
            return apply_tiles(plan, grid)
        case SplitSum():
            tiles, first, second = split_sum(plan, nest, names)
            sums = apply_tiles(tiles, Grid(first, names))
            second = replace(second, kernel=sums.kernel)
            total = _points(ThreadPoints(second.variables), Grid(second, names))
            return replace(total, node=block(sums.node, total.node))
        case _:
            assert_never(plan)


def _points(plan: ThreadPoints, grid: Grid) -> Applied:
    outer, (*chain, last) = grid.names.fresh("block"), grid.nest.chain
    body = grid.nest.body
    if plan.points > 1:
        some, own = grid.names.fresh(last.variable), grid.names.fresh(last.variable)
        at = last.lower + var(some) * plan.points + var(own)
        body = substitute_node(body, {last.variable: at})
        body = Loop(own, ZERO, index(plan.points), body, "unrolled", "parallel")
        last = Loop(some, ZERO, floordiv(extent(last), plan.points), body, "serial", "parallel")
        grid.share(plan.loops[-1], some)
        grid.share(plan.loops[-1], own)
    total = product_of(map(extent, (*chain, last)))
    threads = grid.threads(BLOCK_THREADS, mask=total - var(outer) * BLOCK_THREADS)
    flat = var(outer) * BLOCK_THREADS + var(threads.variable)
    body = at_iteration((*chain, last), flat, body)
    return grid.applied(outer, ceildiv(total, BLOCK_THREADS), replace(threads, body=body))
