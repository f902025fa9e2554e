"""One tile of a panel whose columns run on from one row of an image into the next.

Within a row, whole vectors are copied. Where a tile crosses the end of a row, each of its vectors
is a run of its own if it can be, and single elements otherwise. Columns beyond the last one repeat
it: all of the panel is filled, and only with elements that exist.
"""

from __future__ import annotations

from tcsym.index import ZERO, Condition, Index, all_of, floordiv, ge, index, minimum, mod, var
from tcsym.loop_ir import Branch, Loop, Node, Store, substitute_value
from tcsym.polyhedral.passes.common.bounds import extent
from tcsym.polyhedral.passes.common.names import Names
from tcsym.polyhedral.passes.contraction.operands import Operand
from tcsym.polyhedral.passes.contraction.register_tile import TileShape


def copy_across(operand: Operand, shape: TileShape, tile: Index, slot: Index, names: Names) -> Node:
    """panel[slot, k.., column] = source for the columns of `tile`. Needs `operand.across`."""
    first, register = tile * shape.columns, names.fresh("r")
    start = var(register) * shape.lanes
    run = _run(operand, first, ZERO, shape.vectors, shape.lanes, slot, names)
    if shape.lanes == 1:
        return _elements(operand, first, ZERO, shape.columns, slot, names)
    part = Branch(
        _is_run(operand, first + start, shape.lanes),
        _run(operand, first + start, start, 1, shape.lanes, slot, names),
        _elements(operand, first + start, start, shape.lanes, slot, names),
    )
    parts = Loop(register, ZERO, index(shape.vectors), part, "serial", "parallel")
    return Branch(_is_run(operand, first, shape.columns), run, parts)


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
    assert operand.across is not None
    register, lane = names.fresh("r"), names.fresh("l")
    n, column = extent(operand.columns), var(register) * lanes + var(lane)
    row = floordiv(first, n)
    values = {
        operand.across.variable: operand.across.lower + row,
        operand.columns.variable: operand.columns.lower + first - n * row + column,
    }
    inner = _inner(operand, names)
    node = _store(operand, {**values, **inner}, start + column, slot, inner)
    node = Loop(lane, ZERO, index(lanes), node, "vector", "parallel")
    node = Loop(register, ZERO, index(vectors), node, "unrolled", "parallel")
    return _around(operand, inner, node)


def _elements(
    operand: Operand, first: Index, start: Index, count: int, slot: Index, names: Names
) -> Node:
    """k.. { elements }, each at a place of its own."""
    element, inner = names.fresh("e"), _inner(operand, names)
    at = minimum(first + var(element), operand.n_columns - 1)
    values = {**operand.at_column(at), **inner}
    node = _store(operand, values, start + var(element), slot, inner)
    node = Loop(element, ZERO, index(count), node, "unrolled", "parallel")
    return _around(operand, inner, node)


def _inner(operand: Operand, names: Names) -> dict[str, Index]:
    """New variables for the reduction loops."""
    return {x.variable: var(names.fresh(x.variable)) for x in operand.inner}


def _store(
    operand: Operand,
    values: dict[str, Index],
    column: Index,
    slot: Index,
    inner: dict[str, Index],
) -> Node:
    at = tuple(inner[x.variable] - x.lower for x in operand.inner)
    value = substitute_value(operand.value, values)
    return Store(operand.panel, (slot, *at, column), value, operand.panel)


def _around(operand: Operand, inner: dict[str, Index], node: Node) -> Node:
    for x in reversed(operand.inner):
        (name,) = inner[x.variable].variables()
        node = Loop(name, x.lower, x.upper, node, "serial", "parallel")
    return node
