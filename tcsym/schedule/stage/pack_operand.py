# SPDX-License-Identifier: Apache-2.0
"""A factor of a register tile -> a packed panel, laid out as the tile reads it, zero-filled.

Before tiling the factor is redirected to `panel[k.., column]` (`redirect_operand`); after it, the
columns of one tile become the panel's last dimension, the tile its first, and the copy is placed:
before a loop that does not move the operand, or in the panel loop (`contraction.panels`).
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Const, Read, Select, dtype_of
from tcsym.index.expr import (
    ONE,
    TRUE,
    ZERO,
    Index,
    all_of,
    ceildiv,
    condition_variables,
    floordiv,
    ge,
    index,
    minimum,
    var,
)
from tcsym.index.linear import linear_coefficient
from tcsym.ir.bounds import eliminate, extent, extent_from
from tcsym.ir.loops import (
    Branch,
    Buffer,
    Holds,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Value,
    block,
    conditional,
)
from tcsym.ir.traverse import loads, map_node, map_value, substitute_value
from tcsym.schedule.analysis.access import accesses, stride, value_variables
from tcsym.schedule.analysis.loops import (
    conditions_around,
    find_loop,
    loops_around,
    replace_loop,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.operands import Operand, is_held
from tcsym.schedule.order.fuse_parallel import are_even, uses_position
from tcsym.schedule.stage.copy_across import copy_across
from tcsym.schedule.stage.panels import Panels
from tcsym.schedule.tile.register_tile import TileShape
from tcsym.schedule.tile.tile_loop import is_multiple

NEAR_TILES = 16  # of a panel, filled together


def redirect_operand(kernel: Kernel, operand: Operand) -> Kernel:
    """The factor reads panel[k.., column - first column] instead."""
    at = (*(var(x.variable) - x.lower for x in operand.inner), operand.column())
    dtype = dtype_of(operand.value)
    new = Read(operand.panel, at, dtype)

    def value(v: Value) -> Value:
        return new if v == operand.value else v

    def statement(x: Node) -> Node:
        return (
            replace(x, value=map_value(x.value, value, lambda i: i)) if isinstance(x, Update) else x
        )

    inside = replace_loop(
        kernel.body, operand.columns.variable, lambda loop: map_node(loop, statement)
    )
    panel = Buffer(operand.panel, dtype, (), "arena", padded=True)
    return replace(kernel, body=inside).with_buffer(panel)


def reuse_loop(kernel: Kernel, operand: Operand, variable: str) -> str | None:
    """The outermost loop around `variable` that, with all between, leaves the operand as it is.

    Strips of rows with ranges of their own may move with an end of it: a panel has all of it.
    """
    moving, whole = value_variables(operand.value), operand
    found: str | None = None
    for loop in reversed(loops_around(kernel.body, variable)):
        written = any(a.written and a.buffer in operand.tensors for a in accesses(loop))
        if loop.variable in moving or written:
            break
        if loop.value is not None:  # one iteration
            continue
        of_all = _of_all(kernel, whole, loop)
        if of_all is None:
            break
        found, whole = loop.variable, of_all
    return found


def _of_all(kernel: Kernel, operand: Operand, loop: Loop) -> Operand | None:
    """With all that it is in some iteration of the loop; None if its ends move in other ways."""
    loops = (*operand.inner, *operand.sides)
    ends = frozenset[str]().union(*(x.upper.variables() for x in loops))
    if loop.variable in frozenset[str]().union(*(x.lower.variables() for x in loops)):
        return None
    if loop.variable not in ends:
        return operand
    if not loop.independent or operand.across is not None or not isinstance(operand.value, Read):
        return None
    b, read = kernel.buffer(operand.value.tensor), operand.value
    wide: list[Loop] = []
    for x in (*operand.inner, operand.columns):
        upper = eliminate(x.upper, (loop,), True)
        if loop.variable in x.upper.variables():
            room = [n for s, n in zip(read.subscripts, b.shape) if s == var(x.variable)]
            if upper is None or not room:
                return None
            upper = minimum(upper, *room)
        assert upper is not None
        wide.append(replace(x, upper=upper))
    return replace(operand, inner=tuple(wide[:-1]), columns=wide[-1])


def fill_before(
    kernel: Kernel, operand: Operand, column_tile: str, loop: str, shape: TileShape, names: Names
) -> Kernel:
    """All tiles of the panel, filled before `loop` at sizes that lead to reads of it.

    Panels of constants are kept for calls of other sizes, too: those are always filled.
    """
    tile, outer = names.fresh(column_tile), loops_around(kernel.body, loop)
    within = loops_around(kernel.body, column_tile)[len(outer) :]
    for x in reversed(within):
        operand = _of_all(kernel, operand, x) or operand
    upper = eliminate(find_loop(kernel.body, column_tile).upper, within, True)
    assert upper is not None
    kernel = _give_shape(kernel, operand, outer, upper, shape)
    copies = _copies(kernel, operand, tile, Panels(loop, ZERO, upper, ZERO), shape, names)
    around = conditions_around(find_loop(kernel.body, loop), column_tile)
    is_read = (
        TRUE
        if is_held(kernel, operand)
        else all_of(c for c in around if condition_variables(c) <= {*kernel.sizes})
    )
    body = _shift_reads(kernel.body, operand, column_tile, ZERO, shape)
    body = replace_loop(body, loop, lambda x: block(conditional(is_read, copies), x))
    return replace(kernel, body=body)


def fill_inside(
    kernel: Kernel,
    operand: Operand,
    column_tile: str,
    panels: Panels,
    shape: TileShape,
    names: Names,
) -> Kernel:
    """The tiles of one panel, filled at the start of the body of `panels.copies`."""
    at = find_loop(kernel.body, panels.copies)
    outer = (*loops_around(kernel.body, panels.copies), at)
    kernel = _give_shape(kernel, operand, outer, panels.most, shape)
    copies = _panel_copies(kernel, operand, names.fresh(column_tile), panels, shape, names)
    body = _shift_reads(kernel.body, operand, column_tile, panels.first, shape)
    body = replace_loop(body, panels.copies, lambda x: replace(x, body=block(copies, x.body)))
    return replace(kernel, body=body)


def _give_shape(
    kernel: Kernel, operand: Operand, outer: tuple[Loop, ...], n_tiles: Index, shape: TileShape
) -> Kernel:
    extents = panel_extents(kernel, operand, outer, shape)
    private = frozenset(x.variable for x in outer)
    most = eliminate(n_tiles, outer, True)
    assert most is not None
    full = (most, *extents, index(shape.columns))
    return kernel.with_buffer(replace(kernel.buffer(operand.panel), shape=full, private=private))


def panel_extents(
    kernel: Kernel, operand: Operand, outer: tuple[Loop, ...], shape: TileShape
) -> list[Index]:
    """Extents of a panel's reduction dimensions, free of loop variables."""
    extents: list[Index] = []
    for x in operand.inner:
        low, high = eliminate(x.lower, outer, False), eliminate(x.upper, outer, True)
        assert low is not None and high is not None
        extents.append(extent_from(high - low, frozenset(kernel.sizes)))
    if _is_transposed(kernel, operand, shape):
        place = operand.inner.index(operand.inner_by_memory[-1])
        extents[place] = ceildiv(extents[place], shape.lanes) * shape.lanes
    return extents


def _shift_reads(node: Node, operand: Operand, tile: str, first: Index, shape: TileShape) -> Node:
    """panel[k.., column] -> panel[tile - first, k.., column in the tile]"""

    def value(v: Value) -> Value:
        if not isinstance(v, Read) or v.tensor != operand.panel:
            return v
        *inner, last = v.subscripts
        assert isinstance(last, Index)
        column = last - var(tile) * shape.columns
        return replace(v, subscripts=(var(tile) - first, *inner, column))

    return map_node(node, None, value)


def _copies(
    kernel: Kernel, operand: Operand, tile: str, panels: Panels, shape: TileShape, names: Names
) -> Node:
    copy = _copy(kernel, operand, shape, var(tile), var(tile) - panels.first, names)
    return Loop(tile, panels.first, panels.end, copy, "serial", "parallel")


def _panel_copies(
    kernel: Kernel, operand: Operand, tile: str, panels: Panels, shape: TileShape, names: Names
) -> Node:
    """Whole tiles step by step, the columns of a step together as the source has them side by side.

    Rows of the source that are far apart then cost few visits to a page each. So do tiles, which
    are far apart in the panel: their pages are no more than the processor remembers.
    """
    read = loads(operand.value)[0]
    across = operand.across is not None and not _runs_on(kernel, operand, operand.across)
    step = stride(kernel.buffer(read.tensor), read.subscripts, operand.columns.variable)
    if across or step != ONE:
        return _copies(kernel, operand, tile, panels, shape, names)
    n = operand.n_columns
    edge, slot = floordiv(n, shape.columns), var(tile) - panels.first
    group, end = names.fresh(tile), minimum(panels.end, edge)
    first = panels.first + var(group) * NEAR_TILES
    tiles = Loop(tile, first, minimum(first + NEAR_TILES, end), block(), "serial", "parallel")
    whole = _lane_copy(operand, shape, var(tile), slot, False, names, tiles)
    groups = ceildiv(end - panels.first, NEAR_TILES)
    whole = Loop(group, ZERO, groups, whole, "serial", "parallel")
    if is_multiple(n, shape.columns):
        return whole
    ragged = _lane_copy(operand, shape, edge, edge - panels.first, True, names)
    is_here = all_of((ge(edge, panels.first), ge(panels.end - 1, edge)))
    return block(whole, Branch(is_here, ragged))


# ---- the copy of one tile


def _is_transposed(kernel: Kernel, operand: Operand, shape: TileShape) -> bool:
    """A reduction loop runs along memory, the columns along another dimension of the source."""
    read = operand.value
    if not isinstance(read, Read) or not operand.inner:
        return False
    source = kernel.buffer(read.tensor)
    if operand.across is not None:
        return False
    if shape.lanes == 1 or source.dtype.bits not in (32, 64):
        return False
    if source.element_strides()[-1] != ONE or len(read.subscripts) < 2:
        return False
    along, columns = operand.inner_by_memory[-1].variable, operand.columns.variable
    return _dimension(read, along) == -1 and _dimension(read, columns) in range(
        -len(read.subscripts), -1
    )


def _dimension(read: Read, variable: str) -> int | None:
    """The only dimension that moves with the variable, counted from the end, if step by step."""
    moved = [
        d - len(read.subscripts)
        for d, s in enumerate(read.subscripts)
        if isinstance(s, Index) and variable in s.variables()
    ]
    if len(moved) != 1:
        return None
    s = read.subscripts[moved[0]]
    return moved[0] if isinstance(s, Index) and linear_coefficient(s, variable) == ONE else None


def _copy(
    kernel: Kernel, operand: Operand, shape: TileShape, tile: Index, slot: Index, names: Names
) -> Node:
    if _is_transposed(kernel, operand, shape):
        return _transposing_copy(operand, shape, tile, slot, names)
    if operand.across is not None and not _runs_on(kernel, operand, operand.across):
        return copy_across(operand, shape, tile, slot, names)
    n = operand.n_columns
    known = n.as_int()
    whole = _lane_copy(operand, shape, tile, slot, False, names)
    if known is not None and known % shape.columns == 0:
        return whole
    ragged = _lane_copy(operand, shape, tile, slot, True, names)
    return Branch(ge(n, (tile + 1) * shape.columns), whole, ragged)


def _runs_on(kernel: Kernel, operand: Operand, across: Loop) -> bool:
    """The source's elements follow each other from one row to the next, as the columns do."""
    n = extent(operand.columns)
    for r in loads(operand.value):
        b, inner = kernel.buffer(r.tensor), operand.columns.variable
        if not are_even(b, r.subscripts, across.variable, inner, n):
            return False
    return not uses_position(operand.value, frozenset(x.variable for x in operand.sides))


def _lane_copy(
    operand: Operand,
    shape: TileShape,
    tile: Index,
    slot: Index,
    masked: bool,
    names: Names,
    tiles: Loop | None = None,
) -> Node:
    """k.. { tiles { vectors { lanes { panel[k.., column] = source, or 0 beyond the end } } } }"""
    register, lane = names.fresh("r"), names.fresh("l")
    column = var(register) * shape.lanes + (var(lane) if shape.lanes > 1 else 0)
    inner = {x.variable: names.fresh(x.variable) for x in operand.inner}
    values = {old: var(new) for old, new in inner.items()}
    values.update(operand.at_column(tile * shape.columns + column))
    value = substitute_value(operand.value, values)
    if masked:
        inside = Holds(ge(operand.n_columns, tile * shape.columns + column + 1))
        dtype = dtype_of(operand.value)
        zero = Const(0.0 if dtype.is_float else 0, dtype)
        value = Select(inside, value, zero, dtype)  # type: ignore[arg-type]
    at = tuple(var(inner[x.variable]) - x.lower for x in operand.inner)
    node: Node = Store(operand.panel, (slot, *at, column), value, operand.panel)
    if shape.lanes > 1:
        node = Loop(lane, ZERO, index(shape.lanes), node, "vector", "parallel")
    node = Loop(register, ZERO, index(shape.vectors), node, "unrolled", "parallel")
    node = node if tiles is None else replace(tiles, body=node)
    for x in reversed(operand.inner_by_memory):
        node = Loop(inner[x.variable], x.lower, x.upper, node, "serial", "parallel")
    return node


def _transposing_copy(
    operand: Operand, shape: TileShape, tile: Index, slot: Index, names: Names
) -> Node:
    """k.. { blocks of the k along memory { vectors { a block transposed in registers } } }"""
    register, blocks = names.fresh("r"), names.fresh("b")
    size, along, columns = shape.lanes, operand.inner_by_memory[-1], operand.columns
    others = operand.inner_by_memory[:-1]
    inner = {x.variable: names.fresh(x.variable) for x in others}
    values = {old: var(new) for old, new in inner.items()}
    offset = tile * shape.columns + var(register) * size
    values[columns.variable] = columns.lower + offset
    values[along.variable] = along.lower + var(blocks) * size
    read = substitute_value(operand.value, values)
    assert isinstance(read, Read) and isinstance(operand.value, Read)
    row = _dimension(operand.value, columns.variable)
    assert row is not None
    at = tuple(values[x.variable] - x.lower for x in operand.inner)
    node: Node = TransposeBlock(
        operand.panel,
        (slot, *at, var(register) * size),
        read.tensor,
        tuple(s for s in read.subscripts if isinstance(s, Index)),
        extent(columns) - offset,
        extent(along) - var(blocks) * size,
        size,
        row,
        operand.inner.index(along) - len(operand.inner) - 1,
    )
    node = Loop(register, ZERO, index(shape.vectors), node, "serial", "parallel")
    node = Loop(blocks, ZERO, ceildiv(extent(along), size), node, "serial", "parallel")
    for x in reversed(others):
        node = Loop(inner[x.variable], x.lower, x.upper, node, "serial", "parallel")
    return node
