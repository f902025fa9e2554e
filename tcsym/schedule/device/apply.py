# SPDX-License-Identifier: Apache-2.0
"""A nest and its plan -> loops of a grid, private to its threads what was to the nest's loops."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ZERO, ceildiv, floordiv, index, minimum, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Loop, Store, block
from tcsym.ir.traverse import substitute_node
from tcsym.schedule.analysis.access import rename_buffers
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import replace_loop
from tcsym.schedule.analysis.names import Names, rename_loops
from tcsym.schedule.device.nest import Applied, Grid, Nest, at_iteration, is_of_points
from tcsym.schedule.device.panels import contraction, copied_elements
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
from tcsym.schedule.device.points import Points, points_of
from tcsym.schedule.device.propose import MOST_PARTS
from tcsym.schedule.device.rows import apply_rows
from tcsym.schedule.device.staged import Sum, Tiles
from tcsym.schedule.device.transposed import apply_turned
from tcsym.schedule.plan import renamed


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
            return _tiles(plan, grid)
        case SplitSum():
            tiles, parts, total = _split_sum(plan, nest, names)
            sums = _tiles(tiles, Grid(parts, names))
            total = replace(total, kernel=sums.kernel)
            added = _points(ThreadPoints(total.variables), Grid(total, names))
            return replace(added, node=block(sums.node, added.node))
        case _:
            assert_never(plan)


def _points(plan: ThreadPoints, grid: Grid) -> Applied:
    outer, (*chain, last), body = grid.names.fresh("block"), grid.nest.chain, grid.nest.body
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


def _tiles(plan: SharedTiles | WarpTiles, grid: Grid) -> Applied:
    """The nest by the plan, which was proposed for it."""
    x = contraction(grid.nest, plan.rows, plan.columns, plan.sum)
    near = [{p.side for p in x.panels if not p.across} >= {v} for v in (plan.rows, plan.columns)]
    points = points_of(plan, (near[0], near[1]))
    tiled = grid.tiled(plan.sizes)
    along = [p for p in x.panels if p.side == plan.columns and not p.across]
    copied = [copied_elements(grid.nest.kernel, p, x.roles, plan.copied) for p in along]
    whole = max(copied, default=0) >= points.columns.extents[1]
    made = Tiles(plan, grid, x, points, tiled.start, _registers(grid, points, plan), whole)
    before, sums = made.at_points(x.before), Sum(made, tuple(map(made.staged, x.panels))).node()
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


def _split_sum(
    plan: SplitSum, nest: Nest, names: Names
) -> tuple[SharedTiles | WarpTiles, Nest, Nest]:
    """A contraction of few points and a long sum -> the plan of tiles, the nest of all parts, and
    the one that adds them.

        C(i,j) = sum over k < K of A(k,i) * B(k,j)
    ->  P(q,i,j) = sum over k of part q                 blocks for each part
        C(i,j) = sum over q of P(q,i,j)                 a thread for each point

    How many parts there are follows from sizes alone, and they are added in order: so results are
    the same in every call.
    """
    tiles = plan.tiles
    x = contraction(nest, tiles.rows, tiles.columns, tiles.sum)
    total, (term,) = x.roles.sum, x.terms
    part, again = names.fresh("part"), names.fresh("part")
    n_parts = minimum(MOST_PARTS, floordiv(extent(total) + plan.terms - 1, plan.terms))
    new = {y.variable: names.fresh(y.variable) for y in (*nest.chain, *x.around)}
    sums = nest.kernel.buffer(term.buffer)
    private = frozenset((part, *(new.get(v, v) for v in sums.private)))
    own = replace(sums, name=names.fresh(sums.name), private=private)
    shape = (n_parts, *map(extent, nest.chain))
    parts = Buffer(names.fresh("parts"), sums.dtype, shape, "arena")
    kernel = nest.kernel.with_buffer(own).with_buffer(parts)

    first = total.lower + var(part) * plan.terms
    ranged = replace(total, lower=first, upper=minimum(total.upper, first + plan.terms))
    place = tuple(var(y.variable) - y.lower for y in nest.chain)
    zero = Store(sums.name, term.subscripts, identity(term.op, sums.dtype))
    kept = Store(parts.name, (var(part), *place), Read(sums.name, term.subscripts, sums.dtype))
    inner = block(zero, replace_loop(x.around[0], total.variable, lambda _: ranged), kept)
    inner = rename_loops(rename_buffers(inner, {sums.name: own.name}), new)
    outer = Loop(part, ZERO, n_parts, block(), "serial", "parallel")
    chain = (replace(y, variable=new[y.variable]) for y in nest.chain)
    sums_of_parts = Nest(kernel, (outer, *chain)).doing(inner)
    each = replace(term, value=Read(parts.name, (var(again), *place), sums.dtype))
    adds = Loop(again, ZERO, n_parts, each, "serial", "reduction")
    total_of_parts = nest.doing(block(x.before, adds, x.behind), kernel)
    return renamed(tiles, new), sums_of_parts, total_of_parts
