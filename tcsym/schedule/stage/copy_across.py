# SPDX-License-Identifier: Apache-2.0
"""One tile of a panel whose columns run on from one row of an image into the next.

Within a row, whole vectors are copied. A vector that crosses the end of a row is filled row by row,
under masks: where an image is seven columns wide, seven elements at a time. Without mask registers
that would be masked stores, which are dear, and single elements take their place. All of the panel
is filled: beyond the last column with zeros, or with its elements.
"""

from __future__ import annotations

from collections.abc import Callable

from tcsym.frontend.program import Const, Read, Select, dtype_of
from tcsym.index.expr import (
    ZERO,
    Condition,
    Index,
    all_of,
    floordiv,
    ge,
    index,
    maximum,
    minimum,
    mod,
    var,
)
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Holds, Loop, Node, Store, Value, block
from tcsym.ir.traverse import substitute_value
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.operands import Operand
from tcsym.schedule.tile.register_tile import TileShape


def copy_across(operand: Operand, shape: TileShape, tile: Index, slot: Index, names: Names) -> Node:
    """panel[slot, k.., column] = source for the columns of `tile`. Needs `operand.across`."""
    first, register = tile * shape.columns, names.fresh("r")
    if shape.lanes == 1:
        return _elements(operand, first, ZERO, shape.columns, slot, names)
    start = var(register) * shape.lanes
    fill = _rows if shape.masks else _elements
    part = Branch(
        _is_run(operand, first + start, shape.lanes),
        _run(operand, first + start, start, 1, shape.lanes, slot, names),
        fill(operand, first + start, start, shape.lanes, slot, names),
    )
    node = Loop(register, ZERO, index(shape.vectors), part, "serial", "parallel")
    whole = _run(operand, first, ZERO, shape.vectors, shape.lanes, slot, names)
    return Branch(_is_run(operand, first, shape.columns), whole, node)


def _is_run(operand: Operand, first: Index, count: int) -> Condition:
    """The columns from `first` on are in one row, and exist."""
    row = ge(extent(operand.columns), mod(first, extent(operand.columns)) + count)
    return all_of((row, ge(operand.n_columns, first + count)))


def _run(
    operand: Operand,
    first: Index,
    start: Index,
    vectors: int,
    lanes: int,
    slot: Index,
    names: Names,
) -> Node:
    """k.. { vectors { lanes } }, `first` and all others in one row."""
    row, inner = floordiv(first, extent(operand.columns)), _inner(operand, names)

    def copied(column: Index) -> Node:
        value = _source(operand, row, first + column, inner)
        return _store(operand, start + column, value, slot, inner)

    return _around(operand, inner, _vectors(copied, vectors, lanes, names))


def _rows(
    operand: Operand, first: Index, start: Index, lanes: int, slot: Index, names: Names
) -> Node:
    """first row { k.. { lanes } }, rows { .. }: the first one leaves zeros in other lanes."""
    n, end, row = extent(operand.columns), operand.n_columns, names.fresh("y")
    top, last = floordiv(minimum(first, end), n), floordiv(minimum(first + lanes, end) - 1, n)
    whole = _row(operand, top, True, first, start, lanes, slot, names)
    node = _row(operand, var(row), False, first, start, lanes, slot, names)
    return block(whole, Loop(row, top + 1, maximum(top, last) + 1, node, "serial", "parallel"))


def _row(
    operand: Operand,
    row: Index,
    is_first: bool,
    first: Index,
    start: Index,
    lanes: int,
    slot: Index,
    names: Names,
) -> Node:
    """k.. { lanes }: of a vector, what the row has; the rest is zero, or stays."""
    n, inner, dtype = extent(operand.columns), _inner(operand, names), dtype_of(operand.value)
    zero = Const(0.0 if dtype.is_float else 0, dtype)

    def copied(lane: Index) -> Node:
        at, column = first + lane, start + lane
        inside = ge(minimum(operand.n_columns, (row + 1) * n) - 1, at)
        here = inside if is_first else all_of((ge(at, row * n), inside))
        old = Read(operand.panel, _place(operand, column, slot, inner), dtype)
        value = _source(operand, row, at, inner)
        value = Select(Holds(here), value, zero if is_first else old, dtype)  # type: ignore[arg-type]
        return _store(operand, column, value, slot, inner)

    return _around(operand, inner, _vectors(copied, 1, lanes, names))


def _elements(
    operand: Operand, first: Index, start: Index, count: int, slot: Index, names: Names
) -> Node:
    """k.. { elements }, each at a place of its own; columns beyond the last one repeat it."""
    element, inner = names.fresh("e"), _inner(operand, names)
    at = minimum(first + var(element), operand.n_columns - 1)
    value = substitute_value(operand.value, {**operand.at_column(at), **inner})
    node: Node = _store(operand, start + var(element), value, slot, inner)
    node = Loop(element, ZERO, index(count), node, "unrolled", "parallel")
    return _around(operand, inner, node)


def _vectors(body: Callable[[Index], Node], vectors: int, lanes: int, names: Names) -> Node:
    """vectors { lanes }: the body for each column."""
    register, lane = names.fresh("r"), names.fresh("l")
    node = body(var(register) * lanes + var(lane))
    node = Loop(lane, ZERO, index(lanes), node, "vector", "parallel")
    return Loop(register, ZERO, index(vectors), node, "unrolled", "parallel")


def _inner(operand: Operand, names: Names) -> dict[str, Index]:
    """New variables for the reduction loops."""
    return {x.variable: var(names.fresh(x.variable)) for x in operand.inner}


def _source(operand: Operand, row: Index, at: Index, inner: dict[str, Index]) -> Value:
    """Column `at` of all, which is in `row`."""
    assert operand.across is not None
    values = {
        operand.across.variable: operand.across.lower + row,
        operand.columns.variable: operand.columns.lower + at - extent(operand.columns) * row,
    }
    return substitute_value(operand.value, {**values, **inner})


def _store(
    operand: Operand, column: Index, value: Value, slot: Index, inner: dict[str, Index]
) -> Node:
    return Store(operand.panel, _place(operand, column, slot, inner), value, operand.panel)


def _place(
    operand: Operand, column: Index, slot: Index, inner: dict[str, Index]
) -> tuple[Index, ...]:
    return (slot, *(inner[x.variable] - x.lower for x in operand.inner), column)


def _around(operand: Operand, inner: dict[str, Index], node: Node) -> Node:
    for x in reversed(operand.inner):
        (name,) = inner[x.variable].variables()
        node = Loop(name, x.lower, x.upper, node, "serial", "parallel")
    return node
