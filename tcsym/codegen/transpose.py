"""TransposeBlock -> a square block moved through registers.

Rows are loaded, exchanged by shuffles (first within 128 bits, where one unpack instruction moves
two elements, then whole 128-bit quarters), and stored as columns. Without vectors, or where the
last dimension is not contiguous, element by element.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.codegen.casts import element_kind
from tcsym.codegen.context import Bound, Context, Lanes
from tcsym.codegen.index_code import Number, as_val, lanes_below, number
from tcsym.codegen.memory import address, load, store
from tcsym.codegen.values import Code, Val, bits_of, constant
from tcsym.index import Index, var
from tcsym.loop_ir import Buffer, TransposeBlock

_ROW, _COLUMN = "transpose row", "transpose column"


def transpose_block(context: Context, n: TransposeBlock) -> None:
    source, target = context.buffers[n.source], context.buffers[n.target]
    kind = element_kind(source.dtype, False)
    lanes = context.target.lanes(bits_of(kind))
    in_registers = (
        n.block == lanes
        and bits_of(kind) in (32, 64)
        and "register" not in (source.space, target.space)
        and source.element_strides()[-1].as_int() == 1
        and target.element_strides()[-1].as_int() == 1
    )
    rows, columns = number(context, n.rows), number(context, n.columns)
    if not in_registers:
        _by_element(context, n, source, target, rows, columns)
        return
    code, block = context.code, n.block
    if isinstance(rows, int) and isinstance(columns, int):
        _by_register(context, n, source, target, min(rows, block), min(columns, block))
        return
    full = code.binary(
        "and",
        code.compare("icmp sge", as_val(rows), constant(block, "i64")),
        code.compare("icmp sge", as_val(columns), constant(block, "i64")),
    )
    with context.function.when(full.text):
        _by_register(context, n, source, target, block, block)
    with context.function.when(code.not_(full).text):
        _by_register(context, n, source, target, rows, columns)


def _at(context: Context, subscripts: tuple[Index, ...], step: int) -> tuple[Index, ...]:
    """Subscripts with the last but one moved by `step`, the last by the lane."""
    moved = subscripts[-2] + step
    return (*subscripts[:-2], moved, subscripts[-1] + var(context.lane_variable or _COLUMN))


def _by_register(
    context: Context,
    n: TransposeBlock,
    source: Buffer,
    target: Buffer,
    rows: Number,
    columns: Number,
) -> None:
    """With constant full extents: without masks or branches."""
    code = context.code
    with context.in_lanes(Lanes(_COLUMN, n.block)):
        across, down = lanes_below(context, columns), lanes_below(context, rows)
        loaded = []
        for r in range(n.block):
            at = address(context, source, _at(context, n.source_subscripts, r))
            mask = _row_mask(context, across, rows, r)
            if mask is False:
                zero = constant(0, at.kind)
                loaded.append(code.spread(zero, n.block))
                continue
            whole = None if mask is True else mask
            loaded.append(load(context, at, _strict(source), whole))
        for c, column in enumerate(transposed(code, loaded)):
            at = address(context, target, _at(context, n.target_subscripts, c))
            mask = True if target.padded else _row_mask(context, down, columns, c)
            if mask is not False:
                store(context, at, _strict(target), column, None if mask is True else mask)
    context.note_store(target.name)


def _strict(buffer: Buffer) -> Buffer:
    """Clipped rows must become zeros, so that masks matter also in padded buffers."""
    return replace(buffer, padded=False)


def _row_mask(context: Context, along: Val | bool, count: Number, row: int) -> Val | bool:
    """Lanes of row `row`: none if row >= count."""
    if isinstance(count, int):
        return along if row < count else False
    inside = context.code.compare("icmp sgt", count, constant(row, "i64"))
    if isinstance(along, bool):
        return context.code.spread(inside, context.width) if along else False
    return context.code.binary("and", along, context.code.spread(inside, context.width))


def transposed(code: Code, rows: list[Val]) -> list[Val]:
    """Columns of a square block of n rows of n lanes, n a power of two."""
    lanes = len(rows)
    quarter = 128 // bits_of(rows[0].kind)  # elements in 128 bits
    distance = 1
    while distance < min(quarter, lanes):
        rows = _exchange(code, rows, distance, quarter)
        distance *= 2
    while distance < lanes:
        rows = _exchange(code, rows, distance, lanes)
        distance *= 2
    return rows


def _exchange(code: Code, rows: list[Val], distance: int, group: int) -> list[Val]:
    """Swap, between rows r and r + distance, the off-diagonal runs of `distance` elements.

    Within 128 bits (group < lanes) this is blend and shuffle; LLVM joins two stages into unpacks.
    """
    lanes = len(rows)
    low, high = [], []
    for lane in range(lanes):
        upper = bool(lane & distance)
        low.append(lane - distance + lanes if upper else lane)
        high.append(lane + lanes if upper else lane + distance)
    out = list(rows)
    for r in range(lanes):
        if not r & distance:
            a, b = rows[r], rows[r + distance]
            out[r] = code.shuffle(a, b, tuple(low))
            out[r + distance] = code.shuffle(a, b, tuple(high))
    return out


def _by_element(
    context: Context,
    n: TransposeBlock,
    source: Buffer,
    target: Buffer,
    rows: Number,
    columns: Number,
) -> None:
    """The definition, point by point: zeros beyond rows and columns if the target is padded."""
    code, f = context.code, context.function
    for c in range(n.block):
        for r in range(n.block):
            inside = _inside(context, rows, columns, r, c)
            with context.bound(_COLUMN, Bound(None, c)), context.bound(_ROW, Bound(None, r)):
                s = (*n.source_subscripts[:-2], n.source_subscripts[-2] + var(_ROW))
                t = (*n.target_subscripts[:-2], n.target_subscripts[-2] + var(_COLUMN))
                at = address(context, source, (*s, n.source_subscripts[-1] + var(_COLUMN)))
                to = address(context, target, (*t, n.target_subscripts[-1] + var(_ROW)))
            if inside is True or isinstance(inside, Val):
                with f.when("true" if inside is True else inside.text):
                    store(context, to, target, load(context, at, source, None), None)
            if target.padded and inside is not True:
                outside = "true" if inside is False else code.not_(inside).text
                with f.when(outside):
                    store(context, to, target, constant(0, to.kind), None)


def _inside(context: Context, rows: Number, columns: Number, row: int, column: int) -> bool | Val:
    known = [n > i for n, i in ((rows, row), (columns, column)) if isinstance(n, int)]
    if not all(known):
        return False
    limits = [(n, i) for n, i in ((rows, row), (columns, column)) if not isinstance(n, int)]
    held: Val | None = None
    for n, i in limits:
        held = context.code.and_(held, context.code.compare("icmp sgt", n, constant(i, "i64")))
    return True if held is None else held
