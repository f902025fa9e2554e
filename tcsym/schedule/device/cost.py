# SPDX-License-Identifier: Apache-2.0
"""Plan, nest, machine -> what its grid takes: the one cost in cycles by which plans are chosen.

Blocks of a multiprocessor add up, and take as long as what is busiest: arithmetic or accesses; too
few of them wait for memory to answer. What all blocks need of memory is moved at its speed, what
they need again at that of the second cache. A panel of tiles takes as long as what is busiest of
arithmetic, issue, shared memory and memory, and part of what the others take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from math import ceil
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import ONE, ZERO, Index, ceildiv, floordiv, index, maximum, var
from tcsym.index.values import evaluate, product_of
from tcsym.ir.bounds import extent, relax
from tcsym.ir.device import (
    MATRIX_ROWS,
    ROW_BYTES,
    WARP,
    MatrixMultiply,
    held,
    n_held,
    product_depth,
)
from tcsym.ir.loops import Kernel, Loop, Node, Update, block
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.analysis.loops import children
from tcsym.schedule.device.held import SUMS_BYTES, held_form, kept_bytes
from tcsym.schedule.device.nest import Nest, is_parallel, nest_of
from tcsym.schedule.device.panels import MOST_COPIED, Contraction, Panel, contraction
from tcsym.schedule.device.plan import (
    BLOCK_THREADS,
    BlockRows,
    DevicePlan,
    GridCost,
    SharedRows,
    SharedTiles,
    SplitSum,
    ThreadPoints,
    TurnedTiles,
    WarpTiles,
)
from tcsym.schedule.device.points import NEIGHBOURS, points_of
from tcsym.schedule.device.rows import read_ends, rows_of
from tcsym.schedule.device.staged import lies_in_rows, matrix_steps, panel_shape, tiles_at_once
from tcsym.schedule.device.transposed import in_tiles
from tcsym.schedule.device.work import Sharing, Touch, Work, work_of
from tcsym.target.machine import Machine, Multiprocessor

DEPENDENT = 2  # cycles between two instructions of a thread, most of which need no earlier one
SHUFFLES, EXCHANGE = 20, 150  # instructions and cycles of a sum over a row's threads
ADDRESSES = 40  # registers of a thread for places, counters and conditions
BANK = 4  # bytes of shared memory that one bank gives at a time
OVERHEAD = 1.2  # instructions beside those that compute and load, of a panel
BESIDE = 0.25  # of what is not busiest is not hidden


def grid_cost(plan: DevicePlan, nest: Nest, machine: Machine) -> GridCost | None:
    """None: it is not known, as sizes do not tell how many blocks there are."""
    if not all(extent(x).variables() <= nest.known for x in nest.chain):
        return None
    found = _Grids(nest, machine).of(plan)
    return found if found.cycles.variables() <= nest.known else None


def cycles_of(kernel: Kernel, node: Node, machine: Machine) -> Index | None:
    """Of a sequence of nests, a thread for each point; of what is between them, one thread's."""
    total, once = ZERO, Loop("once", ZERO, ONE, block(), order="parallel")
    for is_nest, nodes in groupby(children(node), is_parallel):
        for x in nodes if is_nest else (replace(once, body=block(*nodes)),):
            assert isinstance(x, Loop)
            nest = nest_of(kernel, x)
            cost = grid_cost(ThreadPoints(nest.variables), nest, machine)
            if cost is None:
                return None
            total += cost.cycles
    return total


class _Grids(Struct, frozen=True):
    """Of a nest: what it takes by each kind of plan."""

    nest: Nest
    machine: Machine

    @property
    def unit(self) -> Multiprocessor:
        return self.machine.unit

    def of(self, plan: DevicePlan) -> GridCost:
        match plan:
            case ThreadPoints():
                return self.points(plan)
            case BlockRows():
                return self.rows(plan)
            case TurnedTiles():
                return self.turned(plan)
            case SharedTiles() | WarpTiles():
                return self.tiles(plan, self.contraction(plan))
            case SplitSum():
                return self.split(plan)
            case _:
                assert_never(plan)

    def points(self, plan: ThreadPoints) -> GridCost:
        work = work_of(self.nest, Sharing(self.nest.chain[-1].variable, {}))
        n, points = plan.points, self.nest.points
        touches = [replace(t, times=t.times * (1 if t.is_vector else n)) for t in work.touches]
        saved = sum(t.is_vector for t in work.touches) * (n - 1)
        own = Work(maximum(work.instructions * n - 2 * saved, 1), work.rounds, tuple(touches))
        moved = maximum(self.memory(work.touches, points), *self.met())
        blocks = ceildiv(ceildiv(points, n), BLOCK_THREADS)
        registers = 2 * len(touches) * n
        return self.grid(BLOCK_THREADS, registers, 0, blocks, own, ONE, moved)

    def met(self) -> Iterator[Index]:
        """Cycles in which updates of one element as a whole follow each other: of as many as there
        are for each, if positions are spread evenly."""
        for n, _ in walk(self.nest.body):
            if isinstance(n, Update) and n.atomic:
                elements = product_of(self.nest.kernel.buffer(n.buffer).shape)
                yield floordiv(self.nest.points, maximum(1, elements)) * self.unit.update

    def rows(self, plan: BlockRows) -> GridCost:
        row, is_shared = rows_of(plan, self.nest), isinstance(plan, SharedRows)
        kept = kept_bytes(row.nest, row.held) * plan.held
        nest = held_form(row.nest, row.held, "shared" if is_shared else "stack")
        loops = [read_ends(x)[1] for x in children(nest.body) if isinstance(x, Loop)]
        sharing = Sharing(nest.rows[-1].variable, {x.variable: plan.width for x in loops})
        sums = sum(x.order == "reduction" for x in loops)
        steps = 2 if plan.width > WARP else 1
        work = work_of(nest, sharing) + Work(index(SHUFFLES * steps * max(1, sums)), ZERO)
        turns = ONE if nest.steps is None else extent(nest.steps)
        work, rows = work.again(turns), product_of(map(extent, nest.rows))
        moved, waits = self.memory(work.touches, rows * plan.width), EXCHANGE * steps * len(loops)
        registers = 4 * len(work.touches) + (0 if is_shared else kept // 4)
        shared = kept * plan.width + SUMS_BYTES if is_shared else 0
        blocks = ceildiv(rows, plan.rows)
        return self.grid(plan.threads, registers, shared, blocks, work, turns * waits, moved)

    def turned(self, plan: TurnedTiles) -> GridCost:
        last, size = self.nest.chain[-1].variable, plan.size
        inside, filled, turned, tiles = in_tiles(self.nest)
        work = work_of(inside, Sharing(plan.across, {}), filled)
        work += work_of(inside, Sharing(last, {}), turned)
        points = size * size // BLOCK_THREADS  # of a thread, whose loads wait together
        work = replace(work.again(index(points)), rounds=work.rounds)
        blocks = self.nest.blocks({plan.across: size, last: size})
        shared = sum(size * (size + 1) * b.dtype.bytes for b in tiles)
        moved = self.memory(work.touches, blocks * BLOCK_THREADS)
        registers = 2 * len(work.touches) * points
        return self.grid(BLOCK_THREADS, registers, shared, blocks, work, index(EXCHANGE), moved)

    def grid(
        self,
        threads: int,
        registers: int,
        shared: int,
        blocks: Index,
        work: Work,
        waits: Index,
        moved: Index,
    ) -> GridCost:
        """registers: beside those for addresses."""
        unit, registers = self.unit, registers + ADDRESSES
        arithmetic = floordiv(work.instructions * threads + unit.fmas - 1, unit.fmas)
        reached = sum((t.times * t.lines for t in work.touches), ZERO) * -(-threads // WARP)
        waits += work.instructions * DEPENDENT + work.rounds * unit.latency
        given = resident_blocks(threads, registers, shared, self.machine)
        lines = max((t.lines for t in work.touches), default=1)
        busy, own = maximum(arithmetic, reached), (threads, registers, shared, given)
        return self.whole(GridCost(*own, blocks, busy, waits, moved, lines=lines))

    def contraction(self, plan: SharedTiles | WarpTiles) -> Contraction:
        return contraction(self.nest, plan.rows, plan.columns, plan.sum)

    def tiles(
        self,
        plan: SharedTiles | WarpTiles,
        x: Contraction,
        terms: Index | None = None,
        parts: Index = ONE,
    ) -> GridCost:
        """terms: of the sum, if it is a part of it; there are so many parts."""
        nest, unit = self.nest, self.unit
        tile = tile_cost(plan, x.panels, self.machine)
        each = product_of(relax(extent(y), nest.known, True) or ONE for y in x.others)
        steps = ceildiv(extent(x.roles.sum) if terms is None else terms, plan.depth) * each
        sharing = Sharing(plan.columns, {})
        rest = work_of(nest, sharing, block(x.before, x.behind))
        last = floordiv(rest.instructions * (plan.block_rows * plan.block_columns), unit.fmas)
        waits = steps * tile.waits + unit.latency * (1 + rest.rounds)
        touches = (*work_of(nest, sharing, x.around[0]).touches, *rest.touches)
        needed = [replace(t, times=ZERO) for t in touches]  # what is staged is in the cost of tiles
        blocks = nest.blocks(plan.sizes) * parts
        busy, moved = steps * tile.cycles + last, self.memory(needed, nest.points)
        own = plan.threads, tile.registers, tile.shared_bytes, tile.resident
        return self.whole(GridCost(*own, blocks, busy, waits, moved, conflicts=tile.conflicts))

    def split(self, plan: SplitSum) -> GridCost:
        x, unit = self.contraction(plan.tiles), self.unit
        parts = floordiv(extent(x.roles.sum) + plan.terms - 1, plan.terms)
        sums = self.tiles(plan.tiles, x, plan.terms, parts)
        moved = floordiv(self.nest.points * parts * 8, unit.l2_bytes * self.machine.workers)
        added = unit.launch + unit.latency * (2 + floordiv(parts, 4)) + moved
        return replace(sums, cycles=sums.cycles + added)

    def whole(self, cost: GridCost) -> GridCost:
        """With its cycles."""
        if not cost.resident:
            return cost
        each = ceildiv(cost.blocks, self.machine.workers)
        waves = ceildiv(each, cost.resident)
        cycles = maximum(each * cost.busy, waves * cost.waits, cost.memory) + self.unit.launch
        return replace(cost, cycles=cycles)

    def memory(self, touches: Sequence[Touch], threads: Index) -> Index:
        """Cycles in which what is needed comes from memory, and from the second cache what is
        again. What the cache does not hold comes from memory each time."""
        largest: dict[str, Index] = {}
        for t in touches:
            largest[t.buffer] = maximum(largest.get(t.buffer, t.elements), t.elements)
        once = sum(largest.values(), ZERO)
        moved = sum((t.times * t.fetched for t in touches), ZERO) * ceildiv(threads, WARP)
        workers, again = self.machine.workers, maximum(moved - once, 0)
        from_memory = floordiv(once, self.unit.memory_bytes * workers)
        return from_memory + floordiv(again, self.unit.l2_bytes * workers)


def resident_blocks(threads: int, registers: int, shared: int, machine: Machine) -> int:
    """Of a multiprocessor at once; 0: it holds none."""
    unit = machine.unit
    if registers > machine.vector_registers or shared > machine.level("shared").bytes:
        return 0
    given = -(-registers // unit.register_unit) * unit.register_unit * threads
    held = unit.threads // threads, unit.registers // given, unit.shared_bytes // max(1, shared)
    return min(unit.blocks, *held)


# ---- tiles


def with_room(node: Node, plan: DevicePlan, nest: Nest, machine: Machine) -> Node:
    """Grids that multiply matrices, in as few registers as their cost counts with: ptxas takes more
    for loads ahead of products, and then fewer blocks have room. The cost does not know the
    registers of narrow copies, so the code of those takes what it needs."""
    tiles = plan.tiles if isinstance(plan, SplitSum) else plan
    cost = grid_cost(plan, nest, machine)
    if cost is None or not isinstance(tiles, WarpTiles) or tiles.copied < MOST_COPIED:
        return node

    def marked(n: Node) -> Node:
        if not isinstance(n, Loop) or n.kind != "block":
            return n
        is_product = any(isinstance(x, MatrixMultiply) for x, _ in walk(n))
        return replace(n, resident=cost.resident) if is_product else n

    return map_node(node, marked)


class TileCost(Struct, frozen=True):
    """registers: of a thread. resident: blocks of a multiprocessor at once; 0: it holds none.
    cycles: of a panel of one. waits: of a panel, at least. conflicts: `wavefronts`, at most."""

    registers: int
    shared_bytes: int
    resident: int
    cycles: int
    waits: int
    conflicts: int


@lru_cache(256)
def tile_cost(
    plan: SharedTiles | WarpTiles, panels: tuple[Panel, ...], machine: Machine
) -> TileCost:
    """Of a device's machine."""
    registers, shared = _registers(plan, panels), sum(_panel_bytes(plan, p) for p in panels)
    resident = resident_blocks(plan.threads, registers, shared, machine)
    busy = _busy(plan, panels, machine.unit)
    cycles = max(busy) * (1 - BESIDE) + sum(busy) * BESIDE
    conflicts = max((wavefronts(plan, p) for p in panels), default=1)
    waits = machine.unit.latency // (plan.stages - 1)
    return TileCost(registers, shared, resident, ceil(cycles), waits, conflicts)


def _registers(plan: SharedTiles | WarpTiles, panels: Sequence[Panel]) -> int:
    """Of a thread: sums, operands of the steps that are loaded at once, and the rest."""
    if isinstance(plan, SharedTiles):
        operands = sum(plan.own(p.side) * (NEIGHBOURS if p.across else 1) for p in panels)
        return plan.row_points * plan.column_points + operands + ADDRESSES
    down, along = plan.own(plan.rows), plan.own(plan.columns)
    depth = product_depth(panels[0].dtype)
    sums = n_held("target", depth) * down * along
    factors = n_held("left", depth) * down + n_held("right", depth) * along
    return sums + factors * panels[0].dtype.bytes // 4 + ADDRESSES


def _panel_bytes(plan: SharedTiles | WarpTiles, p: Panel) -> int:
    rows, _, pitch = panel_shape(plan, p)
    return plan.stages * rows * pitch * p.dtype.bytes


def _busy(
    plan: SharedTiles | WarpTiles, panels: Sequence[Panel], unit: Multiprocessor
) -> tuple[float, ...]:
    """Cycles of a panel of one block, by what could be busiest."""
    terms = plan.block_rows * plan.block_columns * plan.depth
    width = plan.block_rows + plan.block_columns
    copied = sum(p.dtype.bytes for p in panels) / max(1, len(panels)) * width * plan.depth
    waves = sum(wavefronts(plan, p) * _loads(plan, p) * _matrices(plan, p) for p in panels)
    waves *= plan.threads / WARP
    loads = sum(_loads(plan, p) for p in panels)
    if isinstance(plan, WarpTiles):
        per_warp = plan.own(plan.rows) * plan.own(plan.columns)
        own = per_warp * (plan.depth / product_depth(panels[0].dtype))
        arithmetic = terms * panels[0].dtype.bytes / 2 / unit.products
    else:
        own, arithmetic = terms / plan.threads, terms / unit.fmas
    issue = (own + loads) * plan.threads / WARP / unit.schedulers * OVERHEAD
    return arithmetic, issue, waves, copied / unit.l2_bytes


def _loads(plan: SharedTiles | WarpTiles, p: Panel) -> float:
    """Instructions of a thread that load its elements of a panel from shared memory."""
    own = plan.own(p.side)
    if isinstance(plan, WarpTiles):
        depth = product_depth(p.dtype)
        held = 1 if lies_in_rows(p) else n_held(plan.operand(p.side), depth)
        return own / tiles_at_once(plan, p) * held * plan.depth / depth
    at_once = NEIGHBOURS if p.across else min(own, NEIGHBOURS)
    return own / at_once * plan.depth


def _matrices(plan: SharedTiles | WarpTiles, p: Panel) -> int:
    """That a load moves, each by an access of its own; of other loads 1."""
    if not isinstance(plan, WarpTiles) or not lies_in_rows(p):
        return 1
    return tiles_at_once(plan, p) << len(matrix_steps(p, plan.operand(p.side)))


@lru_cache(512)
def wavefronts(plan: SharedTiles | WarpTiles, p: Panel) -> int:
    """Accesses of shared memory's banks that a load by a warp takes: 1, if none conflict.

    By where each lane of the first warp loads its first elements, or each row of a matrix begins.
    """
    *_, pitch = panel_shape(plan, p)
    lanes, n_bytes, step = WARP, p.dtype.bytes, ZERO
    if not isinstance(plan, WarpTiles):
        side, first = points_of(plan, (not p.across, not p.across)).side(p.side, "t")
        place = side.place(first, (ZERO, ZERO))
        n_bytes *= NEIGHBOURS if p.across else side.extents[1]
    elif lies_in_rows(p):
        lanes, n_bytes = MATRIX_ROWS, ROW_BYTES
        place, step = (var("t"), ZERO) if p.across else (ZERO, var("t"))
    else:
        operand = plan.operand(p.side)
        row, column = held(operand, product_depth(p.dtype), var("t"), 0)
        place, step = (row, column) if operand == "left" else (column, row)
    at = place * pitch + step if p.across else step * pitch + place
    banks: dict[int, set[int]] = {}
    for lane in range(lanes):
        start = evaluate(at, {"t": lane}) * p.dtype.bytes
        for word in range(start // BANK, -(-(start + n_bytes) // BANK)):
            banks.setdefault(word % WARP, set()).add(word)
    return max(map(len, banks.values()))
