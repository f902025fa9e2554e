# SPDX-License-Identifier: Apache-2.0
"""Short rows along themselves, or another loop in the lanes -> what each takes, in strided loads.

A row pays for a nearly empty vector with each statement, for functions and for sums of its lanes;
with another loop in the lanes an element pays for each access that is gathered or scattered, or for
its share of a copy whose lanes lie side by side.
"""

from __future__ import annotations

from tcsym.frontend.program import Call, Read, Select
from tcsym.index.expr import ONE, ZERO, Index
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Store, Update, Value, Verify
from tcsym.ir.traverse import subvalues
from tcsym.schedule.analysis.access import (
    Access,
    accesses,
    stride,
    subscript_variables,
    value_variables,
)
from tcsym.schedule.analysis.band import Band
from tcsym.schedule.analysis.cost import is_light
from tcsym.schedule.analysis.loops import Statement, statements_in
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.vector_legality import access_cost
from tcsym.schedule.tile.transpose_lanes import stored_element, strided_access

VECTOR_COST = 20.0  # of one nearly empty vector, in strided loads: loop, mask, pieces of its store
ACROSS_COST = 16.0  # of a vector that a row gathers, however short
MASKED_COST = 4.0  # where a mask register makes it one store
BLOCK_COST, CLIPPED_COST = 2.0, 4.0  # of a block that is transposed, for each of its rows
CALL_COST = 10.0
GATHER_COST = 1.0
GUARD_COST = 5.0  # of an element that is read only where a condition holds: a branch in each lane
COMBINE_COST = 25.0  # of a reduction's lanes, or a function of it: what follows waits for it
SAVED = 0.6  # of an element that is transposed in a block, not gathered or scattered
LOOP_WEIGHT = 16


def longest_row(band: Band, rows: tuple[str, ...], lanes: int, in_blocks: bool) -> int:
    """Longest row that counts as short, in vectors: more if it is transposed in blocks.

    Half as much again as a vector if it is reduced; just not four if functions of its sums wait.
    """
    statements = tuple(statements_in(band.body))
    combined = any(_is_combined(x, around, rows) for x, around in statements)
    calls = any(_is_call(v) for x, _ in statements for v in subvalues(x.value))
    if combined and calls:
        return lanes * (8 if in_blocks else 4) - 1
    if combined:
        return lanes * 3 if in_blocks else lanes + lanes // 2
    return lanes


def _is_combined(x: Statement, around: tuple[Loop, ...], rows: tuple[str, ...]) -> bool:
    """All lanes of a row are reduced into one element."""
    own = {y.variable for y in around} & set(rows)
    return isinstance(x, Update) and bool(own - subscript_variables(x.subscripts))


def row_cost(band: Band, rows: tuple[str, ...], vector: float) -> float:
    """Of one row. vector: of one ragged end, for each time that a statement runs."""
    total = 0.0
    for x, around in statements_in(band.body):
        moving = _calls(x, rows)
        waiting = sum(map(_is_call, subvalues(x.value))) - moving
        waiting += _is_combined(x, around, rows)
        cost = vector + CALL_COST * moving + COMBINE_COST * waiting
        total += cost * _trips(around, rows)
    return total


def across_cost(kernel: Kernel, band: Band, rows: tuple[str, ...]) -> float:
    """Of the elements that one row gathers; plain transpositions are moved in blocks."""
    if not isinstance(band.body, Store) or isinstance(band.body.value, Read):
        return 0.0
    read = (a for a in accesses(band.body) if not a.written)
    steps = (stride(kernel.buffer(a.buffer), a.subscripts, rows[-1]) for a in read)
    return ACROSS_COST * sum(s not in (None, ZERO, ONE) for s in steps)


def point_cost(
    kernel: Kernel, band: Band, rows: tuple[str, ...], columns: str, lanes: int
) -> float:
    """Of one element of a row, with `columns` in the lanes."""
    total = 0.0
    for x, around in statements_in(band.body):
        cost = access_cost(kernel, x, columns, lanes) + CALL_COST * _calls(x, rows) / lanes
        cost += GATHER_COST * sum(_is_gathered(a, columns) for a in accesses(x))
        cost += GUARD_COST * sum(map(_is_guarded, subvalues(x.value)))
        total += cost * _trips(around, rows)
    return total


def saved_cost(
    kernel: Kernel, band: Band, rows: tuple[str, ...], columns: str, setting: Setting
) -> float:
    """What blocks that are transposed in registers save of an element's cost."""
    lanes, total = setting.lanes(kernel, band.body), 0.0
    for x, around in statements_in(band.body):
        if not around or around[-1].variable not in rows or isinstance(x, Verify):
            continue
        row = around[-1].variable
        places = [v for v in subvalues(x.value) if isinstance(v, Read)]
        places += [stored_element(kernel, x)] if isinstance(x, Store) else []
        strided = (strided_access(kernel, v, row, (columns,), lanes, setting) for v in places)
        total += SAVED * sum(s is not None for s in strided) * _trips(around, rows)
    return total


def _calls(x: Statement, rows: tuple[str, ...]) -> int:
    """Of functions for each element of a row: those of its sums are called once."""
    moved = [v for v in subvalues(x.value) if _is_call(v)]
    return sum(bool(value_variables(v) & set(rows)) for v in moved)


def _is_call(v: Value) -> bool:
    return isinstance(v, Call) and not is_light(v.function)


def _is_guarded(v: Value) -> bool:
    return isinstance(v, Select) and not v.eager and any(isinstance(x, Read) for x in subvalues(v))


def _is_gathered(a: Access, columns: str) -> bool:
    """A subscript is computed in each lane, and checked there."""
    return any(not isinstance(s, Index) for s in a.subscripts) and columns in subscript_variables(
        a.subscripts
    )


def _trips(around: tuple[Loop, ...], rows: tuple[str, ...]) -> int:
    total = 1
    for x in around:
        if x.variable not in rows:
            total *= min(extent(x).as_int() or LOOP_WEIGHT, LOOP_WEIGHT)
    return total


def lane_cost(band: Band, rows: tuple[str, ...], lanes: int) -> float:
    """Of one element of a row whose lanes lie side by side."""
    total = 0.0
    for x, around in statements_in(band.body):
        cost = sum(1 for _ in accesses(x)) + CALL_COST * _calls(x, rows)
        total += cost / lanes * _trips(around, rows)
    return total
