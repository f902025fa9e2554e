"""A nest -> plans for it, of those that may run at a call's sizes the cheapest is taken.

A proposal looks and rewrites nothing, and says what its plans need; what they cost is for others
(`cheapest`). Extra plans are there for who asks for them, as tuning does.
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
from tcsym.ir.device import COPIED_BYTES, WARP, product_depth
from tcsym.ir.loops import Branch, Loop, Node, Store, Update
from tcsym.ir.traverse import loads, walk
from tcsym.schedule.analysis.access import accesses, stride, subscript_variables
from tcsym.schedule.analysis.band import Band, contraction_roles
from tcsym.schedule.analysis.loops import chain_of, children
from tcsym.schedule.device.carried import carried
from tcsym.schedule.device.cheapest import asked_for, cheapest, costed
from tcsym.schedule.device.held import SUMS_BYTES, held_buffers, kept_bytes
from tcsym.schedule.device.nest import Nest, is_of_points, is_own, through_steps
from tcsym.schedule.device.online import online
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
    OnlineRows,
    SharedRows,
    SharedTiles,
    SplitSum,
    ThreadPoints,
    TurnedTiles,
    Version,
    WarpTiles,
)
from tcsym.schedule.device.rows import read_ends
from tcsym.schedule.device.transposed import turned_loop
from tcsym.schedule.device.work import ragged_extent
from tcsym.target.machine import Machine
from tcsym.types import DType

ROW_THREADS = 128
MAP_POINTS = 4
HELD = 8  # elements of a row in registers
TURNED = 32  # rows and columns
MOST_PARTS = 16
STAYING_REGISTERS = 80  # of a thread, of one nest: all of them have room for STAYING blocks
# Rows and columns of a block, depth, stages; rows and columns of a thread, or of a warp.
LARGE, SMALL = (128, 128, 16, 2, 8, 8), (64, 64, 16, 2, 4, 4)
WARPS_LARGE, WARPS_SMALL = (128, 128, 32, 3, 64, 32), (64, 64, 32, 3, 32, 32)
MORE = (
    *((256, 128, 16, 2, 16, 8), (128, 64, 16, 2, 8, 4), (64, 128, 16, 2, 4, 8)),
    *((128, 128, 8, 3, 8, 8), (128, 128, 16, 3, 8, 8), (128, 128, 32, 2, 8, 8)),
    *((64, 64, 16, 3, 4, 4), (64, 64, 32, 2, 4, 4), (32, 64, 32, 2, 2, 4), (32, 32, 32, 3, 2, 2)),
)
WARPS_MORE = (
    *((256, 128, 32, 3, 64, 64), (128, 256, 32, 3, 64, 64), (128, 128, 32, 4, 64, 64)),
    *((128, 64, 32, 4, 64, 32), (64, 128, 32, 4, 32, 64), (128, 128, 64, 2, 64, 32)),
    *((64, 64, 64, 2, 32, 32), (32, 64, 64, 3, 16, 32)),
)
MORE_ROWS = ((2 * WARP, 1), (2 * ROW_THREADS, 1), (WARP, 4))
MORE_POINTS = (2, 8)


def versions(nest: Nest, machine: Machine, name: str = "") -> tuple[Version, ...]:
    """Of the nest, the last one for all sizes. name: of the plan that is asked for, if one is."""
    found = cheapest(costed(nest, machine, [v for v in _all(nest, machine) if not v.is_extra]))
    return (*asked_for(_all(nest, machine), name), *found) if name else found


def staying(nest: Nest, machine: Machine, name: str = "") -> tuple[Version, ...]:
    """The same for blocks that stay, whose code is that of several nests."""
    kept = [v for v in costed(nest, machine, tuple(_all(nest, machine))) if _can_stay(v)]
    found = cheapest([v for v in kept if not _is_extra_there(v)])
    return (*asked_for(kept, name), *found) if name else found


def unconditional(nest: Nest, machine: Machine, stays: bool) -> tuple[Version, ...]:
    """Those that may run at all sizes and addresses: what is cheapest costs no more."""
    found = costed(nest, machine, [v for v in _all(nest, machine) if v.when == TRUE])
    if stays:
        return tuple(v for v in found if _can_stay(v) and not _is_extra_there(v))
    return tuple(v for v in found if not v.is_extra)


def _can_stay(v: Version) -> bool:
    """Blocks of BLOCK_THREADS, in few registers."""
    if v.cost is None:
        return isinstance(v.plan, ThreadPoints)
    fits = v.cost.threads == BLOCK_THREADS and v.cost.registers <= STAYING_REGISTERS
    return fits and not isinstance(v.plan, SplitSum)


def _is_extra_there(v: Version) -> bool:
    """Tiles are small there."""
    return v.is_extra and not isinstance(v.plan, SharedTiles)


def offered(nest: Nest, machine: Machine) -> tuple[Version, ...]:
    """All there are, with what they need and what they cost."""
    return costed(nest, machine, tuple(_all(nest, machine)))


def _all(nest: Nest, machine: Machine) -> Iterator[Version]:
    for propose in PROPOSALS:
        yield from propose(nest, machine)
    yield Version(ThreadPoints(nest.variables))


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
    factors = matrix_factors(terms, shape, machine.factors)
    matrices = factors is not None
    loops = (shape.rows.variable, shape.columns.variable, shape.sum.variable)
    kind: type[WarpTiles] | type[SharedTiles] = WarpTiles if matrices else SharedTiles
    usual = (WARPS_LARGE, WARPS_SMALL) if matrices else (LARGE, SMALL)
    copied = [(MOST_COPIED, wide)] if wide is not None else []
    copied.append((min(COPIED_BYTES), TRUE))
    plans = {}
    for size in dict.fromkeys((*usual, *(WARPS_MORE if matrices else MORE))):
        block_rows, block_columns, depth, stages, down, along = size
        if factors is not None:
            depth = depth * product_depth(factors[0].dtype) // product_depth(DType.FLOAT16)
        tile = block_rows, block_columns, depth, stages, MOST_COPIED, down, along
        plans[kind(*loops, *tile)] = size not in usual
    usual_plans = [plan for plan, is_extra in plans.items() if not is_extra]
    if len(terms) == 1:
        for plan in reversed(plans):
            blocks = ceildiv(rows, plan.block_rows) * ceildiv(columns, plan.block_columns)
            blocks = reduce(mul, map(extent, others), blocks)
            each, needed = _parts(plan.depth, extent(shape.sum), blocks, machine)
            for most, holds in copied:
                split = SplitSum(replace(plan, copied=most), each)
                when = all_of((needed, holds))
                yield Version(split, when, is_extra=plan != usual_plans[-1])
    for plan, is_extra in plans.items():
        for most, holds in copied:
            yield Version(replace(plan, copied=most), holds, is_extra=is_extra)


def _parts(depth: int, terms: Index, blocks: Index, machine: Machine) -> tuple[Index, Condition]:
    """Terms of each part of a long sum that keep all multiprocessors busy, where blocks do not."""
    panels = ceildiv(terms, depth)
    parts = minimum(MOST_PARTS, maximum(1, floordiv(machine.workers, blocks)))
    return floordiv(panels + parts - 1, parts) * depth, ge(panels, 2)


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
    """Rows of loops that threads can share: a block for each, or a warp; through all steps of a
    loop in order, if that is what rows do."""
    own, nest = tuple(x.variable for x in nest.chain), through_steps(nest)
    if not has_shared_rows(nest):
        return
    loops = [x for x in children(nest.body) if isinstance(x, Loop)]
    longest = extent(loops[0])
    kept = carried(nest).nest
    held = held_buffers(kept)
    if longest.variables() <= {*nest.kernel.sizes} and held:
        usual = _usual_rows()
        plans = [BlockRows(own, width, n, HELD) for width, n in usual]
        width, most = usual[1][0], machine.level("shared").bytes - SUMS_BYTES
        elements = most // (kept_bytes(kept, held) * width)
        plans += [SharedRows(own, width, 1, n) for n in (elements // 4, elements) if n]
        for plan in plans:
            fits = all_of((ge(longest, WARP), ge(plan.width * plan.held, longest)))
            yield Version(plan, fits)
    is_online = nest.steps is None and online(nest) is not None
    for width, n in dict.fromkeys((*_usual_rows(), *MORE_ROWS)):
        is_extra = (width, n) not in _usual_rows()
        if is_online:
            yield Version(OnlineRows(own, width, n), is_extra=is_extra)
        yield Version(BlockRows(own, width, n), is_extra=is_extra or is_online)


def _usual_rows() -> tuple[tuple[int, int], ...]:
    """Threads of a row, and rows of a block."""
    return (ROW_THREADS, 1), (4 * ROW_THREADS, 1), (WARP, BLOCK_THREADS // WARP)


def turned(nest: Nest, machine: Machine) -> Iterator[Version]:
    """Maps of which memory of operands and of results lies along different loops."""
    across = turned_loop(nest)
    if across is not None:
        yield Version(TurnedTiles(nest.variables, across, TURNED))


def maps(nest: Nest, machine: Machine) -> Iterator[Version]:
    """Points along memory: a few of them are one access of each operand."""
    for n in (MAP_POINTS, *MORE_POINTS):
        needed = _neighbours(nest, n)
        if needed is not None:
            yield Version(ThreadPoints(nest.variables, n), needed, is_extra=n != MAP_POINTS)


def _neighbours(nest: Nest, n: int) -> Condition | None:
    """When so many are; None: never."""
    body, last = children(nest.body), nest.chain[-1]
    if not all(isinstance(x, Store) for x in body) or last.lower != ZERO:
        return None
    kernel, found = nest.kernel, list[Condition]()
    for a in accesses(nest.body):
        b = kernel.buffer(a.buffer)
        step = stride(b, a.subscripts, last.variable)
        if any(a.checked) or step not in (ZERO, ONE):
            return None
        if step == ONE and b.space in ("argument", "arena"):
            apart = rows_apart(b, a.subscripts, last, n)
            if apart is None:
                return None
            first = [var(phase_of(b))] if b.space == "argument" else []
            found += [eq(mod(e, n), 0) for e in (*first, *apart)]
    return all_of((*found, eq(mod(extent(last), n), 0))) if found else None


def has_shared_rows(nest: Nest) -> bool:
    """All of a row is loops that threads can share.

    Elements that belong to the row are scalars, of which each thread has its own.
    """
    body = children(nest.body)
    found = [read_ends(x)[1] for x in body if isinstance(x, Loop)]
    if not found or any(not isinstance(x, Loop | Store) for x in body):
        return False
    if any(x.value is not None or not _is_shareable(nest, x) for x in found):
        return False
    if all(extent(x).variables() <= {*nest.kernel.sizes} for x in found):
        return True
    return nest.steps is None and any(ragged_extent(nest, x) is not None for x in found)


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
PROPOSALS: tuple[Propose, ...] = (tiles, rows, turned, maps)
