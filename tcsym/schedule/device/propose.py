"""A nest -> plans for it, the first of which that may run at a call's sizes is taken.

A proposal looks and rewrites nothing. It answers None where the nest is not of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from operator import mul

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import (
    ONE,
    TRUE,
    ZERO,
    Condition,
    Index,
    all_of,
    any_of,
    ceildiv,
    eq,
    floordiv,
    ge,
    maximum,
    minimum,
    mod,
    var,
)
from tcsym.ir.bounds import extent
from tcsym.ir.device import COPIED_BYTES, WARP
from tcsym.ir.loops import Branch, Loop, Node, Store, Update
from tcsym.ir.traverse import loads, walk
from tcsym.schedule.analysis.access import accesses, stride, subscript_variables
from tcsym.schedule.analysis.band import Band, contraction_roles
from tcsym.schedule.analysis.loops import chain_of, children
from tcsym.schedule.device.cost import tile_cost
from tcsym.schedule.device.nest import Nest, is_of_points, is_own
from tcsym.schedule.device.panels import (
    MOST_COPIED,
    Roles,
    aligned,
    matrix_factors,
    panels_of,
    phase_of,
    rows_apart,
    stored_along,
)
from tcsym.schedule.device.plan import (
    BLOCK_THREADS,
    BlockRows,
    SharedTiles,
    SplitSum,
    ThreadPoints,
    Version,
    WarpTiles,
)
from tcsym.schedule.device.rows import read_ends
from tcsym.target.machine import Machine

ROW_THREADS = 128
MAP_POINTS = 4
MOST_PARTS = 16
# Rows and columns of a block, depth, stages; rows and columns of a thread, or of a warp. Those of a
# kind have one depth, as costs are compared for each panel.
LARGE, SMALL = (128, 128, 16, 2, 8, 8), (64, 64, 16, 2, 4, 4)
WARPS_LARGE, WARPS_SMALL = (128, 128, 32, 3, 64, 32), (64, 64, 32, 3, 32, 32)


def versions(nest: Nest, machine: Machine) -> tuple[Version, ...]:
    """Of the nest, the last one for all sizes."""
    found: list[Version] = []
    for propose in PROPOSALS:
        found += propose(nest, machine)
    return (*found, Version(ThreadPoints(nest.variables)))


def tiles(nest: Nest, machine: Machine) -> Iterator[Version]:
    """Sums of products of which rows and columns use each factor again."""
    shape = tile_loops(nest)
    if shape is None:
        return
    kernel, others = nest.kernel, [x for x in nest.chain if x not in (shape.rows, shape.columns)]
    terms = [x for x, _ in walk(nest.body) if isinstance(x, Update)]
    rows, columns = extent(shape.rows), extent(shape.columns)
    panels = panels_of(kernel, terms, shape)
    wide = aligned(kernel, panels, shape)
    if wide is not None:
        stores = [x for x in children(nest.body) if isinstance(x, Store)]
        wide = all_of((wide, stored_along(kernel, stores, shape)))
    matrices = matrix_factors(terms, shape) is not None
    loops = (shape.rows.variable, shape.columns.variable, shape.sum.variable)
    options: list[tuple[SharedTiles | WarpTiles, Condition, Index, Index]] = []
    for size in (WARPS_LARGE, WARPS_SMALL) if matrices else (LARGE, SMALL):
        block_rows, block_columns, depth, stages, down, along = size
        kind = WarpTiles if matrices else SharedTiles
        plan = kind(*loops, block_rows, block_columns, depth, stages, MOST_COPIED, down, along)
        cost = tile_cost(plan, panels, machine)
        if cost.resident:
            blocks = ceildiv(rows, block_rows) * ceildiv(columns, block_columns)
            blocks = reduce(mul, map(extent, others), blocks)
            worth = all_of((ge(rows, block_rows // 4), ge(columns, block_columns // 4)))
            options.append((plan, worth, blocks, cost.total(blocks, machine)))
    copied = [(MOST_COPIED, wide)] if wide is not None else []
    copied.append((min(COPIED_BYTES), TRUE))
    if options and len(terms) == 1:
        plan, worth, blocks, _ = options[-1]
        each, few = _parts(plan.depth, extent(shape.sum), blocks, machine)
        for most, holds in copied:
            split = SplitSum(replace(plan, copied=most), each)
            yield Version(split, all_of((worth, few, holds)))
    for k, (plan, worth, _, cycles) in enumerate(options):
        best = all_of([ge(other, cycles) for *_, other in options[k + 1 :]])
        for most, holds in copied:
            yield Version(replace(plan, copied=most), all_of((worth, best, holds)))


def _parts(depth: int, terms: Index, blocks: Index, machine: Machine) -> tuple[Index, Condition]:
    """Terms of each part of a long sum that keep all multiprocessors busy, where blocks do not."""
    panels = ceildiv(terms, depth)
    parts = minimum(MOST_PARTS, maximum(1, floordiv(machine.workers, blocks)))
    few = all_of((ge(machine.workers // 2, blocks), ge(panels, MOST_PARTS)))
    return floordiv(panels + parts - 1, parts) * depth, few


def tile_loops(nest: Nest) -> Roles | None:
    """Rows and columns, and the loop of the sum that is staged; None: no such sum.

    One sum, or several in one nest of loops, in private elements that nothing else adds to.
    """
    kernel, body = nest.kernel, children(nest.body)
    sums = [x for x in body if isinstance(x, Loop)]
    if len(nest.chain) < 2 or len(sums) != 1 or not _starts_with_stores(body, sums[0]):
        return None
    around = chain_of(sums[0])
    inside = around[-1].body
    outside = {*nest.variables}
    if any(x.order != "reduction" for x in around) or not _are_apart(around, outside):
        return None
    if not all(isinstance(x, Update) for x in children(inside)):
        return None
    own = {x.buffer for x in children(inside) if isinstance(x, Update)}
    if any(any(r.checked) or r.unwritten for r in _reads(nest.body)):
        return None
    roles = contraction_roles(kernel, Band(nest.chain, nest.body))
    if roles is None or roles.rows is None:
        return None
    if not all(is_of_points(nest, b, roles.rows, roles.columns) for b in own):
        return None
    known = [x for x in around if extent(x).as_int() is None]
    long = [x for x in known if _is_alone(nest.body, x.variable)]
    total = (long or known or [around[-1]])[-1]
    return Roles(_loop(nest, roles.rows), _loop(nest, roles.columns), total)


def _is_alone(n: Node, variable: str) -> bool:
    """No subscript has it beside other variables, as those of windows do, which are short."""
    subscripts = [s for r in _reads(n) for s in r.subscripts]
    moving = [s for s in subscripts if variable in subscript_variables((s,))]
    return all(s == var(variable) for s in moving)


def _starts_with_stores(body: tuple[Node, ...], loop: Loop) -> bool:
    return all(isinstance(x, Store) for x in body if x is not loop)


def _are_apart(loops: tuple[Loop, ...], outside: set[str]) -> bool:
    """No bound moves with a loop around."""
    names = outside | {x.variable for x in loops}
    return not any((x.lower.variables() | x.upper.variables()) & names for x in loops)


def _reads(n: Node) -> Iterator[Read]:
    for x, _ in walk(n):
        if isinstance(x, Store | Update):
            yield from loads(x.value)


def _loop(nest: Nest, variable: str) -> Loop:
    return next(x for x in nest.chain if x.variable == variable)


def rows(nest: Nest, machine: Machine) -> Iterator[Version]:
    """Long rows, each with loops that its threads can share: a block for each, or a warp."""
    found = row_extent(nest)
    if found is None:
        return
    longest, one = found  # of so many rows together
    many = reduce(mul, map(extent, nest.chain))
    few = ge(machine.workers * BLOCK_THREADS * 8, many)
    if not _reads_along_rows(nest):
        worth = all_of((ge(longest, one * (2 * WARP)), few))
        yield Version(BlockRows(nest.variables, ROW_THREADS), worth)
        return
    fewer = ge(machine.workers * BLOCK_THREADS // WARP, many)
    long = any_of((ge(longest, one * WARP**2), all_of((ge(longest, one * ROW_THREADS), fewer))))
    yield Version(BlockRows(nest.variables, ROW_THREADS), long)
    yield Version(BlockRows(nest.variables, WARP, BLOCK_THREADS // WARP), ge(longest, one * WARP))


def _reads_along_rows(nest: Nest) -> bool:
    """Neighbours of a row are neighbours in memory, so that a warp's loads are few lines.

    What is gathered lies anywhere.
    """
    kernel = nest.kernel
    loops = [read_ends(x)[1] for x in children(nest.body) if isinstance(x, Loop)]
    return all(
        stride(kernel.buffer(r.tensor), r.subscripts, x.variable) in (ZERO, ONE)
        for x in loops
        for r in _reads(x)
        if all(isinstance(s, Index) for s in r.subscripts)
    )


def maps(nest: Nest, machine: Machine) -> Iterator[Version]:
    """Points along memory: four of them are one access of each operand."""
    body, last = children(nest.body), nest.chain[-1]
    if not all(isinstance(x, Store) for x in body) or last.lower != ZERO:
        return
    kernel, found = nest.kernel, list[Condition]()
    for a in accesses(nest.body):
        b = kernel.buffer(a.buffer)
        step = stride(b, a.subscripts, last.variable)
        if any(a.checked) or step not in (ZERO, ONE):
            return
        if step == ONE and b.space in ("argument", "arena"):
            apart = rows_apart(b, a.subscripts, last, MAP_POINTS)
            if apart is None:
                return
            first = [var(phase_of(b))] if b.space == "argument" else []
            found += [eq(mod(e, MAP_POINTS), 0) for e in (*first, *apart)]
    if not found:
        return
    many = reduce(mul, map(extent, nest.chain))
    found += [eq(mod(extent(last), MAP_POINTS), 0), ge(many, machine.workers * BLOCK_THREADS * 8)]
    yield Version(ThreadPoints(nest.variables, MAP_POINTS), all_of(found))


def row_extent(nest: Nest) -> tuple[Index, Index] | None:
    """Of the first loop of a row, of so many rows together; None if not all of the row is loops
    that threads can share.

    Elements that belong to the row are scalars, of which each thread has its own.
    """
    body = children(nest.body)
    found = [read_ends(x)[1] for x in body if isinstance(x, Loop)]
    if not found or any(not isinstance(x, Loop | Store) for x in body):
        return None
    if any(x.value is not None or not _is_shareable(nest, x) for x in found):
        return None
    if all(extent(x).variables() <= {*nest.kernel.sizes} for x in found):
        return extent(found[0]), ONE
    lengths = [_ragged_extent(nest, x) for x in found]
    return next((n for n in lengths if n is not None), None)


def _ragged_extent(nest: Nest, loop: Loop) -> tuple[Index, Index] | None:
    """What sizes tell of ranges that differ from row to row: they are parts of a dimension, one of
    each row if something else in the subscripts moves with it, else of all rows together."""
    for r in _reads(loop.body):
        shape = nest.kernel.buffer(r.tensor).shape
        for s, n in zip(r.subscripts, shape, strict=True):
            if s == var(loop.variable) and n.variables() <= {*nest.kernel.sizes}:
                own = subscript_variables(r.subscripts) & {*nest.variables}
                return n, ONE if own else reduce(mul, map(extent, nest.chain))
    return None


def _is_shareable(nest: Nest, loop: Loop) -> bool:
    """Iterations are independent, but that they add to scalars of the row."""
    if loop.order == "sequential":
        return False
    for x, around in walk(loop.body):
        if isinstance(x, Update) and not _moves(nest, x, loop, around):
            if loop.order != "reduction" or around or not is_own(nest, x.buffer):
                return False
            read = {r.tensor for y in _statements(loop.body) for r in loads(y.value)}
            if x.buffer in read:
                return False
        elif isinstance(x, Branch) or _sets_scalar(nest, x, loop, around):
            return False
    return True


def _sets_scalar(nest: Nest, x: Node, loop: Loop, around: tuple[Loop, ...]) -> bool:
    """A store to a scalar of the row, which the last iteration would decide."""
    own = isinstance(x, Store) and is_own(nest, x.buffer)
    return isinstance(x, Store) and own and not _moves(nest, x, loop, around)


def _statements(n: Node) -> Iterator[Store | Update]:
    return (x for x, _ in walk(n) if isinstance(x, Store | Update))


def _moves(nest: Nest, x: Store | Update, loop: Loop, around: tuple[Loop, ...]) -> bool:
    """Each iteration of the loop has elements of its own: private ones, or others by subscript."""
    if loop.variable in nest.kernel.buffer(x.buffer).private:
        return True
    return any(loop.variable in s.variables() for s in x.subscripts)


Propose = Callable[[Nest, Machine], Iterator[Version]]
PROPOSALS: tuple[Propose, ...] = (tiles, rows, maps)
