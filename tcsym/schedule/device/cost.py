"""A plan of tiles -> what a multiprocessor holds of it, and the cycles that a panel takes.

A panel of a block takes as long as what is busiest: arithmetic, issue, shared memory or memory, and
part of what the others take. Where blocks are too few to hide it, it takes as long as memory takes
to answer. What a grid takes: `grid_cost`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil

from msgspec import Struct

from tcsym.index.expr import ZERO, var
from tcsym.index.values import evaluate
from tcsym.ir.device import (
    MATRIX_ROWS,
    ROW_BYTES,
    TILE_COLUMNS,
    TILE_ROWS,
    WARP,
    held,
    n_held,
    product_depth,
)
from tcsym.schedule.device.panels import Panel
from tcsym.schedule.device.plan import SharedTiles, WarpTiles
from tcsym.schedule.device.points import NEIGHBOURS, points_of
from tcsym.schedule.device.staged import lies_in_rows, matrix_steps, padding_of
from tcsym.target.machine import Machine, Multiprocessor

ADDRESSES = 40  # registers of a thread for places, counters and conditions
SCHEDULERS = 4  # that issue an instruction of a warp a cycle
BANK = 4  # bytes
OVERHEAD = 1.2  # instructions beside those that compute and load, of a panel
BESIDE = 0.25  # of what is not busiest is not hidden


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
    unit = machine.multiprocessor
    assert unit is not None, f"{machine.name} is no device"
    registers, shared = _registers(plan, panels), sum(_panel_bytes(plan, p) for p in panels)
    resident = resident_blocks(plan.threads, registers, shared, machine)
    busy = _busy(plan, panels, unit)
    cycles = max(busy) * (1 - BESIDE) + sum(busy) * BESIDE
    conflicts = max((wavefronts(plan, p) for p in panels), default=1)
    waits = unit.latency // (plan.stages - 1)
    return TileCost(registers, shared, resident, ceil(cycles), waits, conflicts)


def resident_blocks(threads: int, registers: int, shared: int, machine: Machine) -> int:
    """Of a multiprocessor at once; 0: it holds none."""
    unit = machine.multiprocessor
    assert unit is not None
    held = [
        unit.blocks,
        unit.threads // threads,
        unit.registers // (_in_units(registers, 8) * threads),
        unit.shared_bytes // max(1, shared),
    ]
    fits = registers <= machine.vector_registers and shared <= machine.level("shared").bytes
    return min(held) if fits else 0


def _in_units(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _registers(plan: SharedTiles | WarpTiles, panels: Sequence[Panel]) -> int:
    """Of a thread: sums, operands of the steps that are loaded at once, and the rest."""
    if isinstance(plan, SharedTiles):
        points = {plan.rows: plan.row_points, plan.columns: plan.column_points}
        operands = sum(points[p.side] * (NEIGHBOURS if p.across else 1) for p in panels)
        return plan.row_points * plan.column_points + operands + ADDRESSES
    down, along = plan.warp_rows // TILE_ROWS, plan.warp_columns // TILE_COLUMNS
    depth = product_depth(panels[0].dtype)
    words = depth * panels[0].dtype.bytes // 4 / WARP
    factors = words * (TILE_ROWS * down + TILE_COLUMNS * along)
    return n_held("target", depth) * down * along + int(factors) + ADDRESSES


def _panel_bytes(plan: SharedTiles | WarpTiles, p: Panel) -> int:
    rows, pitch = _shape(plan, p)
    return plan.stages * rows * pitch * p.dtype.bytes


def _shape(plan: SharedTiles | WarpTiles, p: Panel) -> tuple[int, int]:
    """Rows of a panel, and elements from one to the next."""
    width = plan.block_rows if p.side == plan.rows else plan.block_columns
    rows, columns = (width, plan.depth) if p.across else (plan.depth, width)
    return rows, columns + padding_of(plan, p) // p.dtype.bytes


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
        per_warp = plan.warp_rows // TILE_ROWS * (plan.warp_columns // TILE_COLUMNS)
        own = per_warp * (plan.depth / product_depth(panels[0].dtype))
        arithmetic = terms * panels[0].dtype.bytes / 2 / unit.products
    else:
        own, arithmetic = terms / plan.threads, terms / unit.fmas
    issue = (own + loads) * plan.threads / WARP / SCHEDULERS * OVERHEAD
    return arithmetic, issue, waves, copied / unit.l2_bytes


def _loads(plan: SharedTiles | WarpTiles, p: Panel) -> float:
    """Instructions of a thread that load its elements of a panel from shared memory."""
    is_row = p.side == plan.rows
    if isinstance(plan, WarpTiles):
        tiles = plan.warp_rows // TILE_ROWS if is_row else plan.warp_columns // TILE_COLUMNS
        depth = product_depth(p.dtype)
        held = 1 if lies_in_rows(p) else n_held("left" if is_row else "right", depth)
        return tiles * held * plan.depth / depth
    points = plan.row_points if is_row else plan.column_points
    at_once = NEIGHBOURS if p.across else min(points, NEIGHBOURS)
    return points / at_once * plan.depth


def _matrices(plan: SharedTiles | WarpTiles, p: Panel) -> int:
    """That a load moves, each by an access of its own; of other loads 1."""
    if not isinstance(plan, WarpTiles) or not lies_in_rows(p):
        return 1
    return 1 << len(matrix_steps(p, "left" if p.side == plan.rows else "right"))


@lru_cache(512)
def wavefronts(plan: SharedTiles | WarpTiles, p: Panel) -> int:
    """Accesses of shared memory's banks that a load by a warp takes: 1, if none conflict.

    By where each lane of the first warp loads its first elements, or each row of a matrix begins.
    """
    is_row = p.side == plan.rows
    points = points_of(plan, (not p.across, not p.across))
    side, first = points.rows if is_row else points.columns, points.first("t")[0 if is_row else 1]
    _, pitch = _shape(plan, p)
    lanes = WARP
    if isinstance(plan, WarpTiles) and lies_in_rows(p):
        lanes, n_bytes = MATRIX_ROWS, ROW_BYTES
        place, step = (var("t"), ZERO) if p.across else (ZERO, var("t"))
    elif isinstance(plan, WarpTiles):
        row, column = held("left" if is_row else "right", product_depth(p.dtype), var("t"), 0)
        place, step = (row, column) if is_row else (column, row)
        n_bytes = p.dtype.bytes
    else:
        place, step = side.place(first, (ZERO, ZERO)), ZERO
        n_bytes = p.dtype.bytes * (NEIGHBOURS if p.across else side.extents[1])
    at = place * pitch + step if p.across else step * pitch + place
    banks: dict[int, set[int]] = {}
    for lane in range(lanes):
        start = evaluate(at, {"t": lane}) * p.dtype.bytes
        for word in range(start // BANK, -(-(start + n_bytes) // BANK)):
            banks.setdefault(word % WARP, set()).add(word)
    return max(map(len, banks.values()))
