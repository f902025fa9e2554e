# SPDX-License-Identifier: Apache-2.0
"""Leaf schedule `strips`: several vectors along a parallel loop, with the reduction loops inside.

For column reductions, normalisations along an outer axis, pooling, products without reuse: whatever
has its unit strides in an outer parallel loop.
"""

from __future__ import annotations

from math import inf

from tcsym.frontend.program import Call
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node, Update
from tcsym.ir.traverse import subvalues
from tcsym.schedule.analysis.band import Band, band_of, reductions
from tcsym.schedule.analysis.loops import (
    find_loop,
    loops_in,
    outermost_loops,
    statements_in,
    writes_in,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.sliding import slides_over
from tcsym.schedule.analysis.vector_legality import (
    access_cost,
    can_mask,
    is_short,
    vector_refusal,
)
from tcsym.schedule.order.interchange import can_sink
from tcsym.schedule.tile.register_tile import TileShape, can_tile, tile_registers
from tcsym.schedule.tile.row_schedule import leaf_chain, row_choice, split_rest

LOOP_WEIGHT = 16.0
SHORT_COST = 4


def strip_columns(kernel: Kernel, nest: str, setting: Setting) -> str | None:
    """The loop to run in strips, if that beats vectors along the innermost loops."""
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    if not loops_in(band.body) or not band.loops or lanes == 1:
        return None
    best, cost = _best_strips(kernel, band, lanes)
    return best if cost < _row_cost(kernel, band, band.body, lanes) else None


def _best_strips(kernel: Kernel, band: Band, lanes: int) -> tuple[str | None, float]:
    """The cheapest loop of the band to run in strips, and the cost of one point of the band."""
    best, least = None, inf
    for v in reversed(band.variables):
        if can_strip(kernel, band, v):
            cost = _strip_cost(kernel, band, v, lanes)
            if cost < least:
                best, least = v, cost
    return best, least


def can_strip(kernel: Kernel, band: Band, columns: str) -> bool:
    """The loop can be moved inside the others of the band, and run in lanes."""
    inner = _from(band, columns)
    return (
        can_sink(band.body, frozenset((columns,)))
        and can_tile(inner, columns, None, ())
        and vector_refusal(kernel, band.body, columns) is None
    )


def _from(band: Band, columns: str) -> Band:
    """The part of the band that starts with the loop `columns`."""
    return Band(band.loops[band.variables.index(columns) :], band.body)


def _weight(loops: tuple[Loop, ...]) -> float:
    total = 1.0
    for x in loops:
        n = extent(x).as_int()
        total *= LOOP_WEIGHT if n is None else min(n, LOOP_WEIGHT)
    return total


def _strip_cost(kernel: Kernel, band: Band, columns: str, lanes: int) -> float:
    total = 0.0
    for x, around in statements_in(band.body):
        total += _weight(around) * access_cost(kernel, x, columns, lanes)
    return total * (SHORT_COST if is_short(band.loop(columns), lanes) else 1)


def _row_cost(kernel: Kernel, outer: Band, body: Node, lanes: int) -> float:
    """Cost of `body`, all or part of what `outer` has inside, with vectors in every nest of it."""
    nests = outermost_loops(body)
    inside = {id(s) for x in nests for s, _ in statements_in(x)}
    alone = sum(
        access_cost(kernel, x, None, 1) for x, _ in statements_in(body) if id(x) not in inside
    )
    return alone + sum(_nest_cost(kernel, outer, x, lanes) for x in nests)


def _nest_cost(kernel: Kernel, outer: Band, nest: Loop, lanes: int) -> float:
    """Cost of a nest inside `outer` in strips of its own or in rows, whichever is cheaper."""
    band = band_of(nest) if nest.order == "parallel" else Band((nest,), nest.body)
    if not loops_in(band.body):
        lane, cost, _ = row_choice(kernel, leaf_chain(outer.body, band.variables[-1]), lanes)
        cost *= SHORT_COST if lane is not None and _is_window(outer, lane) else 1
        return cost * _weight(band.loops)
    rows = _row_cost(kernel, outer, band.body, lanes)
    strips = _best_strips(kernel, band, lanes)[1] if nest.order == "parallel" else inf
    return min(rows, strips) * _weight(band.loops)


def _is_window(band: Band, variable: str) -> bool:
    """The reduction slides over an operand that the band moves along too: few iterations."""
    loop = find_loop(band.body, variable)
    updates = [x for x in writes_in(loop) if isinstance(x, Update)]
    return any(slides_over(x, (loop,), v) for x in updates for v in band.variables)


def schedule_strips(kernel: Kernel, nest: str, columns: str, setting: Setting) -> Kernel:
    """Whole strips without masks, and the ragged rest in masked vectors or elements."""
    band = band_of(find_loop(kernel.body, nest))
    lanes, names = setting.lanes(kernel, band.body), setting.names
    shape = TileShape(1, _vectors(band, setting.machine.strip_vectors), lanes)
    kernel, rest = split_rest(kernel, columns, columns, shape.columns, names)
    kernel = _tile(kernel, columns, shape, names)
    return schedule_vectors(kernel, rest[1], setting) if rest else kernel


def schedule_vectors(kernel: Kernel, columns: str, setting: Setting) -> Kernel:
    """Single masked vectors, or elements where these cannot be masked."""
    body = band_of(find_loop(kernel.body, columns)).body
    if not can_mask(kernel, body, setting.machine):
        return kernel
    return _tile(kernel, columns, TileShape(1, 1, setting.lanes(kernel, body)), setting.names)


def _tile(kernel: Kernel, columns: str, shape: TileShape, names: Names) -> Kernel:
    band = band_of(find_loop(kernel.body, columns))
    return tile_registers(kernel, band, columns, None, (), shape, names).kernel


def _vectors(band: Band, most: int) -> int:
    """Vectors in flight: fewer where one point holds more accumulators, or calls functions."""
    targets = {(x.buffer, x.subscripts) for x, _ in reductions(band.body)}
    calls = any(
        isinstance(v, Call) for x, _ in statements_in(band.body) for v in subvalues(x.value)
    )
    return max(1, min(most // max(1, len(targets)), 2 if calls else most))
