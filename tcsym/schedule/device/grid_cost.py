"""Plan, nest, machine -> what its grid takes: the one cost in cycles by which plans are chosen.

Blocks of a multiprocessor add up, and take as long as what is busiest: arithmetic or accesses; too
few of them wait for memory to answer. What all blocks need of memory is moved at its speed, what
they need again at that of the second cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import assert_never

from msgspec.structs import replace

from tcsym.index.expr import ONE, ZERO, Index, ceildiv, floordiv, index, maximum
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent, relax
from tcsym.ir.device import WARP
from tcsym.ir.loops import Kernel, Loop, Node, Update, block
from tcsym.ir.traverse import walk
from tcsym.schedule.analysis.loops import children
from tcsym.schedule.device.carried import carried
from tcsym.schedule.device.cost import ADDRESSES, resident_blocks, tile_cost
from tcsym.schedule.device.held import SUMS_BYTES, held_buffers, held_form, kept_bytes
from tcsym.schedule.device.nest import Nest, nest_of, through_steps
from tcsym.schedule.device.online import online
from tcsym.schedule.device.panels import contraction
from tcsym.schedule.device.plan import (
    BLOCK_THREADS,
    BlockRows,
    DevicePlan,
    GridCost,
    OnlineRows,
    SharedRows,
    SharedTiles,
    SplitSum,
    ThreadPoints,
    TurnedTiles,
    WarpTiles,
)
from tcsym.schedule.device.rows import read_ends
from tcsym.schedule.device.transposed import in_tiles
from tcsym.schedule.device.work import Sharing, Touch, Work, work_of
from tcsym.target.machine import Machine, Multiprocessor

DEPENDENT = 2  # cycles between two instructions of a thread, most of which need no earlier one
SHUFFLES, EXCHANGE = 20, 150  # instructions and cycles of a sum over a row's threads


def grid_cost(plan: DevicePlan, nest: Nest, machine: Machine) -> GridCost | None:
    """None: it is not known, as sizes do not tell how many blocks there are."""
    unit = machine.multiprocessor
    assert unit is not None, f"{machine.name} is no device"
    known = frozenset((*nest.kernel.sizes, *nest.kernel.launched))
    if not all(extent(x).variables() <= known for x in nest.chain):
        return None
    match plan:
        case ThreadPoints():
            found = _points(plan, nest, machine, unit)
        case BlockRows():
            found = _rows(plan, nest, machine, unit)
        case TurnedTiles():
            found = _turned(plan, nest, machine, unit)
        case SharedTiles() | WarpTiles():
            found = _tiles(plan, nest, machine, unit)
        case SplitSum():
            found = _split(plan, nest, machine, unit)
        case _:
            assert_never(plan)
    return found if found.cycles.variables() <= known else None


def cycles_of(kernel: Kernel, node: Node, machine: Machine) -> Index | None:
    """Of a sequence of nests, a thread for each point; of what is between them, one thread's."""
    total, once = ZERO, Loop("once", ZERO, ONE, block(), order="parallel")
    for is_nest, nodes in groupby(children(node), _is_parallel):
        for x in nodes if is_nest else (replace(once, body=block(*nodes)),):
            assert isinstance(x, Loop)
            nest = nest_of(kernel, x)
            cost = grid_cost(ThreadPoints(nest.variables), nest, machine)
            if cost is None:
                return None
            total += cost.cycles
    return total


def _is_parallel(n: Node) -> bool:
    return isinstance(n, Loop) and n.order == "parallel"


def _points(plan: ThreadPoints, nest: Nest, machine: Machine, unit: Multiprocessor) -> GridCost:
    work = work_of(nest, Sharing(nest.chain[-1].variable, {}))
    points = product_of(extent(x) for x in nest.chain)
    threads = ceildiv(points, plan.points)
    vectors = [
        replace(t, times=t.times * (1 if t.is_vector else plan.points)) for t in work.touches
    ]
    own = work.instructions * plan.points
    saved = sum(t.is_vector for t in work.touches) * (plan.points - 1)
    together = Work(maximum(own - 2 * saved, 1), work.rounds, tuple(vectors))
    registers = ADDRESSES + 2 * len(work.touches) * plan.points
    blocks = ceildiv(threads, BLOCK_THREADS)
    moved = maximum(_memory(work.touches, points, machine, unit), *_met(nest, points, unit))
    return _grid(BLOCK_THREADS, registers, 0, blocks, together, index(1), moved, machine, unit)


def _met(nest: Nest, points: Index, unit: Multiprocessor) -> Iterator[Index]:
    """Cycles in which updates of one element as a whole follow each other: of as many as there are
    for each, if positions are spread evenly."""
    for n, _ in walk(nest.body):
        if isinstance(n, Update) and n.atomic:
            elements = product_of(nest.kernel.buffer(n.buffer).shape)
            yield floordiv(points, maximum(1, elements)) * unit.update


def _rows(plan: BlockRows, nest: Nest, machine: Machine, unit: Multiprocessor) -> GridCost:
    nest = through_steps(nest)
    nest = carried(nest).nest if plan.held else nest
    held = held_buffers(nest) if plan.held else frozenset()
    is_shared, kept = isinstance(plan, SharedRows), kept_bytes(nest, held) * plan.held
    made = online(nest) if isinstance(plan, OnlineRows) else None
    nest = held_form(nest if made is None else made.nest, held, "shared" if is_shared else "stack")
    loops = [read_ends(x)[1] for x in children(nest.body) if isinstance(x, Loop)]
    sharing = Sharing(nest.rows[-1].variable, {x.variable: plan.width for x in loops})
    work = work_of(nest, sharing)
    rows = product_of(map(extent, nest.rows))
    sums = sum(x.order == "reduction" for x in loops)
    steps = 2 if plan.width > WARP else 1
    work += Work(index(SHUFFLES * steps * max(1, sums)), ZERO)
    turns = ONE if nest.steps is None else extent(nest.steps)
    work = work.again(turns)
    moved = _memory(work.touches, rows * plan.width, machine, unit)
    blocks, waits = ceildiv(rows, plan.rows), turns * (EXCHANGE * steps * len(loops))
    registers = ADDRESSES + 4 * len(work.touches) + (0 if is_shared else kept // 4)
    shared = kept * plan.width + SUMS_BYTES if is_shared else 0
    return _grid(plan.threads, registers, shared, blocks, work, waits, moved, machine, unit)


def _turned(plan: TurnedTiles, nest: Nest, machine: Machine, unit: Multiprocessor) -> GridCost:
    kernel, last, size = nest.kernel, nest.chain[-1].variable, plan.size
    filled, turned, tiles = in_tiles(nest)
    for b in tiles:
        kernel = kernel.with_buffer(replace(b, private=frozenset(nest.variables)))
    inside = Nest(kernel, nest.chain)
    work = work_of(inside, Sharing(plan.across, {}), filled)
    work += work_of(inside, Sharing(last, {}), turned)
    points = size * size // BLOCK_THREADS  # of a thread, whose loads wait together
    touches = tuple(replace(t, times=t.times * points) for t in work.touches)
    own = Work(work.instructions * points, work.rounds, touches)
    sizes = {plan.across: size, last: size}
    blocks = product_of(ceildiv(extent(x), sizes.get(x.variable, 1)) for x in nest.chain)
    shared = sum(size * (size + 1) * b.dtype.bytes for b in tiles)
    moved = _memory(touches, blocks * BLOCK_THREADS, machine, unit)
    registers, waits = ADDRESSES + 2 * len(touches) * points, index(EXCHANGE)
    return _grid(BLOCK_THREADS, registers, shared, blocks, own, waits, moved, machine, unit)


def _tiles(
    plan: SharedTiles | WarpTiles,
    nest: Nest,
    machine: Machine,
    unit: Multiprocessor,
    terms: Index | None = None,
    parts: Index = ONE,
) -> GridCost:
    """terms: of the sum, if it is a part of it; there are so many parts."""
    x = contraction(nest, plan.rows, plan.columns, plan.sum)
    tile = tile_cost(plan, x.panels, machine)
    sizes = {plan.rows: plan.block_rows, plan.columns: plan.block_columns}
    blocks = product_of(ceildiv(extent(x), sizes.get(x.variable, 1)) for x in nest.chain) * parts
    known = frozenset((*nest.kernel.sizes, *nest.kernel.launched))
    each = product_of(relax(extent(y), known, True) or ONE for y in x.others)
    steps = ceildiv(extent(x.roles.sum) if terms is None else terms, plan.depth) * each
    sharing = Sharing(plan.columns, {})
    rest = work_of(nest, sharing, block(x.before, x.behind))
    points = plan.block_rows * plan.block_columns
    last = floordiv(rest.instructions * points, unit.fmas)
    all_points = product_of(extent(x) for x in nest.chain)
    touches = (*work_of(nest, sharing, x.around[0]).touches, *rest.touches)
    busy = steps * tile.cycles + last
    waits = steps * tile.waits + unit.latency * (1 + rest.rounds)
    needed = [replace(t, times=ZERO) for t in touches]  # what is staged is in the cost of tiles
    return _total(
        GridCost(
            plan.threads,
            tile.registers,
            tile.shared_bytes,
            tile.resident,
            blocks,
            busy,
            waits,
            _memory(needed, all_points, machine, unit),
            ZERO,
            tile.conflicts,
        ),
        machine,
        unit,
    )


def _split(plan: SplitSum, nest: Nest, machine: Machine, unit: Multiprocessor) -> GridCost:
    tiles = plan.tiles
    total = contraction(nest, tiles.rows, tiles.columns, tiles.sum).roles.sum
    parts = floordiv(extent(total) + plan.terms - 1, plan.terms)
    sums = _tiles(tiles, nest, machine, unit, plan.terms, parts)
    points = product_of(extent(x) for x in nest.chain)
    moved = floordiv(points * parts * 8, unit.l2_bytes * machine.workers)
    added = unit.launch + unit.latency * (2 + floordiv(parts, 4)) + moved
    return replace(sums, cycles=sums.cycles + added)


def _grid(
    threads: int,
    registers: int,
    shared: int,
    blocks: Index,
    work: Work,
    waits: Index,
    moved: Index,
    machine: Machine,
    unit: Multiprocessor,
) -> GridCost:
    warps = -(-threads // WARP)
    arithmetic = floordiv(work.instructions * threads + unit.fmas - 1, unit.fmas)
    reached = sum((t.times * t.lines for t in work.touches), ZERO) * warps
    waits += work.instructions * DEPENDENT + work.rounds * unit.latency
    given = resident_blocks(threads, registers, shared, machine)
    lines = max((t.lines for t in work.touches), default=1)
    busy = maximum(arithmetic, reached)
    cost = GridCost(threads, registers, shared, given, blocks, busy, waits, moved, ZERO, 1, lines)
    return _total(cost, machine, unit)


def _total(cost: GridCost, machine: Machine, unit: Multiprocessor) -> GridCost:
    if not cost.resident:
        return cost
    each = ceildiv(cost.blocks, machine.workers)
    waves = ceildiv(each, cost.resident)
    cycles = maximum(each * cost.busy, waves * cost.waits, cost.memory) + unit.launch
    return replace(cost, cycles=cycles)


def _memory(
    touches: Sequence[Touch], threads: Index, machine: Machine, unit: Multiprocessor
) -> Index:
    """Cycles in which what is needed comes from memory, and from the second cache what is again.

    What the cache does not hold comes from memory each time.
    """
    warps = ceildiv(threads, WARP)
    largest: dict[str, Index] = {}
    for t in touches:
        largest[t.buffer] = maximum(largest.get(t.buffer, t.elements), t.elements)
    once = sum(largest.values(), ZERO)
    moved = sum((t.times * t.fetched for t in touches), ZERO) * warps
    again = maximum(moved - once, 0)
    from_memory = floordiv(once, unit.memory_bytes * machine.workers)
    return from_memory + floordiv(again, unit.l2_bytes * machine.workers)
