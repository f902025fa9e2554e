# SPDX-License-Identifier: Apache-2.0
"""A nest -> plans for it, of those that may run at a call's sizes the cheapest is taken.

A proposal looks and rewrites nothing, and says what its plans need; what they cost is for others
(`cost`). Extra plans are there for who asks for them, as tuning does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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
    negate,
    var,
)
from tcsym.ir.bounds import extent
from tcsym.ir.device import COPIED_BYTES, WARP, product_depth
from tcsym.ir.loops import Branch, Loop, Node, Store, Update
from tcsym.ir.traverse import loads, walk
from tcsym.schedule.analysis.access import accesses, stride, subscript_variables
from tcsym.schedule.analysis.band import Band, contraction_roles
from tcsym.schedule.analysis.loops import chain_of, children, writes_in
from tcsym.schedule.device.cost import grid_cost
from tcsym.schedule.device.held import SUMS_BYTES, carried, held_buffers, kept_bytes
from tcsym.schedule.device.nest import Nest, is_of_points, is_own, through_steps
from tcsym.schedule.device.online import online
from tcsym.schedule.device.panels import (
    MOST_COPIED,
    Roles,
    aligned,
    at_multiples,
    matrix_factors,
    panels_of,
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
    Tiles,
    TurnedTiles,
    Version,
    WarpTiles,
)
from tcsym.schedule.device.rows import read_ends
from tcsym.schedule.device.transposed import turned_loop
from tcsym.schedule.device.work import ragged_extent
from tcsym.target.machine import Machine
from tcsym.types import DType

ROW_THREADS = 128  # for a row: four warps, between which sums are exchanged once
MAP_POINTS = 4  # of a thread: 16 bytes of float32, the most that one access moves
ROW_ELEMENTS = 8  # of a row in registers of each thread, at most
TURNED = 32  # rows and columns of a tile: a warp's
MOST_PARTS = 16  # of a sum: another grid adds these up, one thread for each result
STAYING_REGISTERS = 80  # of a thread, of one nest: all of them have room for STAYING blocks
# Rows and columns of a block, depth, stages; rows and columns of a thread, or of a warp.
LARGE, SMALL = (128, 128, 16, 2, 8, 8), (64, 64, 16, 2, 4, 4)
WARPS_LARGE, WARPS_SMALL = (128, 128, 32, 3, 64, 32), (64, 64, 32, 3, 32, 32)
MORE: tuple[tuple[int, ...], ...] = (
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


def versions(
    nest: Nest, machine: Machine, name: str = "", stays: bool = False
) -> tuple[Version, ...]:
    """Of the nest, the last one for all sizes. name: of the plan that is asked for, if one is.
    stays: for blocks that stay, whose code is that of several nests."""
    everything = _all(nest, machine, stays)
    found = _usable(nest, machine, [v for v in everything if not v.is_extra], stays)
    asked = [v for v in everything if name and name in _names(v)]
    return (*(_usable(nest, machine, asked, stays) if stays else asked), *cheapest(found))


def unconditional(nest: Nest, machine: Machine, stays: bool) -> tuple[Version, ...]:
    """Those that may run at all sizes and addresses: what is cheapest costs no more."""
    found = [v for v in _all(nest, machine, stays) if v.when == TRUE and not v.is_extra]
    return _usable(nest, machine, found, stays)


def _names(v: Version) -> tuple[str, str]:
    """By which it is asked for. A class alone is the name of all its plans."""
    return v.plan.name, v.plan.name.partition(":")[0]


def _can_stay(v: Version) -> bool:
    """Blocks of BLOCK_THREADS, in few registers."""
    if v.cost is None:
        return isinstance(v.plan, ThreadPoints)
    fits = v.cost.threads == BLOCK_THREADS and v.cost.registers <= STAYING_REGISTERS
    return fits and not isinstance(v.plan, SplitSum)


def offered(nest: Nest, machine: Machine) -> tuple[Version, ...]:
    """All there are, with what they need and what they cost."""
    return _usable(nest, machine, _all(nest, machine))


def offered_names(nest: Nest, machine: Machine, stays: bool) -> list[str]:
    """Of the plans that `versions` gives to who asks for them."""
    everything = _all(nest, machine, stays)
    found = _usable(nest, machine, everything, stays) if stays else everything
    return [v.plan.name for v in found]


def _usable(
    nest: Nest, machine: Machine, found: Sequence[Version], stays: bool = False
) -> tuple[Version, ...]:
    """With their costs, without those that no multiprocessor can hold."""
    known = {v.plan.name: v for v in found}  # that differ in their copies alone
    costs = {name: v.cost or grid_cost(v.plan, nest, machine) for name, v in known.items()}
    all_of_them = [replace(v, cost=costs[v.plan.name]) for v in found]
    held = (v for v in all_of_them if v.cost is None or v.cost.resident)
    return tuple(v for v in held if not stays or _can_stay(v))


def cheapest(found: Sequence[Version]) -> tuple[Version, ...]:
    """Each where none behind it would be cheaper; those of unknown cost where they say."""
    return tuple(
        replace(v, when=all_of((v.when, *_better(v, found[k + 1 :])))) for k, v in enumerate(found)
    )


def _better(v: Version, others: Sequence[Version]) -> Iterator[Condition]:
    if v.cost is None:
        return
    usable: dict[Index, list[Condition]] = {}
    for other in others:
        if other.cost is not None and other.cost.cycles != v.cost.cycles:
            usable.setdefault(other.cost.cycles, []).append(other.when)
    for cycles, conditions in usable.items():
        yield any_of((ge(cycles, v.cost.cycles), negate(any_of(conditions))))


def _all(nest: Nest, machine: Machine, stays: bool = False) -> tuple[Version, ...]:
    """Tiles are small where blocks stay, so those are none for extra there."""
    found = [v for propose in PROPOSALS for v in propose(nest, machine)]
    if stays:
        found = [replace(v, is_extra=v.is_extra and type(v.plan) is not SharedTiles) for v in found]
    return (*found, Version(ThreadPoints(nest.variables)))


def tiles(nest: Nest, machine: Machine) -> Iterator[Version]:
    """Sums of products of which rows and columns use each factor again."""
    shape = tile_loops(nest)
    if shape is None:
        return
    kernel, terms = nest.kernel, [x for x in writes_in(nest.body) if isinstance(x, Update)]
    copied: list[tuple[int, Condition]] = [(min(COPIED_BYTES), TRUE)]
    wide = aligned(kernel, panels_of(kernel, terms, shape), shape)
    if wide is not None:
        stores = [x for x in children(nest.body) if isinstance(x, Store)]
        wide = all_of((wide, stored_along(kernel, stores, shape)))
        copied.insert(0, (MOST_COPIED, wide))
    plans, usual = _tile_plans(shape, matrix_factors(terms, shape, machine.factors))
    if len(terms) == 1:
        for plan in reversed(plans):
            each, needed = _parts(plan, extent(shape.sum), nest.blocks(plan.sizes), machine)
            for most, holds in copied:
                split = SplitSum(replace(plan, copied=most), each)
                yield Version(split, all_of((needed, holds)), is_extra=plan != usual[-1])
    for plan in plans:
        for most, holds in copied:
            yield Version(replace(plan, copied=most), holds, is_extra=plan not in usual)


def _tile_plans(
    x: Roles, factors: tuple[Read, Read] | None
) -> tuple[list[SharedTiles | WarpTiles], list[SharedTiles | WarpTiles]]:
    """All, and those that are no extra ones. factors: of products by matrices, if they are such."""
    loops = (x.rows.variable, x.columns.variable, x.sum.variable)
    kind: type[WarpTiles] | type[SharedTiles] = SharedTiles if factors is None else WarpTiles
    usual, more = (LARGE, SMALL), MORE
    deepest = step = product_depth(DType.FLOAT16)
    if factors is not None:
        usual, more, step = (WARPS_LARGE, WARPS_SMALL), WARPS_MORE, product_depth(factors[0].dtype)
    plans: list[SharedTiles | WarpTiles] = []
    for rows, columns, depth, stages, *own in dict.fromkeys((*usual, *more)):
        tile = rows, columns, depth * step // deepest, stages, MOST_COPIED
        plans.append(kind(*loops, *tile, *own))
    return plans, plans[: len({*usual})]


def _parts(plan: Tiles, terms: Index, blocks: Index, machine: Machine) -> tuple[Index, Condition]:
    """Terms of each part of a long sum that keep all multiprocessors busy, where blocks do not."""
    panels, depth = ceildiv(terms, plan.depth), plan.depth
    parts = minimum(MOST_PARTS, maximum(1, floordiv(machine.workers, blocks)))
    return floordiv(panels + parts - 1, parts) * depth, ge(panels, 2)


def tile_loops(nest: Nest) -> Roles | None:
    """Rows and columns, and the loop of the sum that is staged; None: no such sum.

    One sum, or several in one nest of loops, in private elements that nothing else adds to.
    """
    body = children(nest.body)
    sums = [x for x in body if isinstance(x, Loop)]
    if len(nest.chain) < 2 or len(sums) != 1 or not _starts_with_stores(body, sums[0]):
        return None
    around = chain_of(sums[0])
    terms = children(around[-1].body)
    if any(x.order != "reduction" for x in around) or not _are_apart(around, {*nest.variables}):
        return None
    if not all(isinstance(x, Update) for x in terms):
        return None
    if any(any(r.checked) or r.unwritten for r in _reads(nest.body)):
        return None
    roles = contraction_roles(nest.kernel, Band(nest.chain, nest.body))
    if roles is None or roles.rows is None:
        return None
    own = {x.buffer for x in writes_in(around[-1].body)}
    if not all(is_of_points(nest, b, roles.rows, roles.columns) for b in own):
        return None
    known = [x for x in around if extent(x).as_int() is None]
    long = [x for x in known if _is_alone(nest.body, x.variable)]
    total = (long or known or [around[-1]])[-1]
    return Roles(nest.loop(roles.rows), nest.loop(roles.columns), total)


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
    return not any(x.end_variables & names for x in loops)


def _reads(n: Node) -> Iterator[Read]:
    return (r for x in writes_in(n) for r in loads(x.value))


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
        plans = [BlockRows(own, width, n, ROW_ELEMENTS) for width, n in usual]
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
            apart = at_multiples(b, a.subscripts, last, n)
            if apart is None:
                return None
            found += apart
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
        if isinstance(x, Update) and not _moves(nest, x, loop):
            if loop.order != "reduction" or around or not is_own(nest, x.buffer):
                return False
            if x.buffer in {r.tensor for r in _reads(loop.body)}:
                return False
        elif isinstance(x, Store) and is_own(nest, x.buffer) and not _moves(nest, x, loop):
            return False  # which the last iteration would decide
        elif isinstance(x, Branch):
            return False
    return True


def _moves(nest: Nest, x: Store | Update, loop: Loop) -> bool:
    """Each iteration of the loop has elements of its own: private ones, or others by subscript."""
    if loop.variable in nest.kernel.buffer(x.buffer).private:
        return True
    return any(loop.variable in s.variables() for s in x.subscripts)


Propose = Callable[[Nest, Machine], Iterator[Version]]
PROPOSALS: tuple[Propose, ...] = (tiles, rows, turned, maps)
