"""TransposeBlock -> a square block moved through registers.

Rows are loaded, exchanged by shuffles (first within 128 bits, where one unpack instruction moves
two elements, then whole 128-bit quarters), and stored as columns. Without vectors, or where the
last dimension is not contiguous, the block is moved by a loop over its elements.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.codegen.addresses import address
from tcsym.codegen.branches import choose_each
from tcsym.codegen.context import Context, Lanes
from tcsym.codegen.index_code import Number, as_val, lanes_below, lanes_beyond, number
from tcsym.codegen.memory import load, store
from tcsym.codegen.values import Code, Val, bits_of, constant
from tcsym.frontend.program import Const, Read
from tcsym.index import ZERO, all_of, index, lt, minimum, var
from tcsym.loop_ir import Branch, Buffer, Loop, Node, Store, TransposeBlock

_COLUMN = "transpose column"


def fits_registers(context: Context, n: TransposeBlock) -> bool:
    """True if a row of the block is one vector register, contiguous on both sides."""
    source, target = context.buffers[n.source], context.buffers[n.target]
    bits = source.dtype.bits
    return (
        n.block == context.target.lanes(bits)
        and bits in (32, 64)
        and "register" not in (source.space, target.space)
        and source.element_strides()[-1].as_int() == 1
        and target.element_strides()[-1].as_int() == 1
    )


def transpose_in_registers(context: Context, n: TransposeBlock) -> None:
    """A whole block without masks, or a clipped one with them, decided here or at run time.

    Both share the exchange in registers, which is most of the code, and where they may the stores.
    """
    code, block = context.code, n.block
    rows, columns = number(context, n.rows), number(context, n.columns)
    with context.in_lanes(Lanes(_COLUMN, block)):
        if isinstance(rows, int) and isinstance(columns, int):
            rows, columns = min(rows, block), min(columns, block)
            _store(context, n, transposed(code, _loaded(context, n, rows, columns)), rows, columns)
            return
        full = _at_least(code, rows, block)
        if (wide := _at_least(code, columns, block)) is not None:
            full = wide if full is None else code.binary("and", full, wide)
        assert full is not None, "a clipped block"
        taken = choose_each(
            context,
            full,
            lambda: _loaded(context, n, block, block),
            lambda: _loaded(context, n, rows, columns),
        )
        moved = transposed(code, taken)
        if context.buffers[n.target].padded:
            _store(context, n, moved, block, block)
            return
        with context.function.when(full.text):
            _store(context, n, moved, block, block)
        with context.function.when(code.not_(full).text):
            _store(context, n, moved, rows, columns)


def _at_least(code: Code, count: Number, least: int) -> Val | None:
    """None if `count` is known to be that much."""
    if isinstance(count, int) and count >= least:
        return None
    return code.compare("icmp sge", as_val(count), constant(least, "i64"))


def by_element(n: TransposeBlock, source: Buffer, target: Buffer) -> Node:
    """The same as loops: zeros beyond rows and columns if the target is padded."""
    row, column = var(f"{n.target} row"), var(f"{n.target} column")
    at, place = n.element(row, column)
    element = Read(n.source, place, source.dtype)
    inside = all_of([lt(row, n.rows), lt(column, n.columns)])
    clipped: Node = Branch(inside, Store(n.target, at, element))
    if target.padded:
        zero = Const(0.0 if source.dtype.is_float else 0, source.dtype)
        clipped = Branch(inside, Store(n.target, at, element), Store(n.target, at, zero))
    size = index(n.block)
    return Loop(str(column), ZERO, size, Loop(str(row), ZERO, size, clipped))


def _loaded(context: Context, n: TransposeBlock, rows: Number, columns: Number) -> list[Val]:
    """Rows of the source, zeros outside. Counts not below the block need no masks.

    A row beyond the last one has that one's address: to load no element at all takes hundreds of
    cycles where the address is no memory.
    """
    source, lane = context.buffers[n.source], var(_COLUMN)
    across, loaded = lanes_below(context, columns), []
    for r in range(n.block):
        mask = _row_mask(context, across, rows, r)
        row = r if isinstance(rows, int) else minimum(r, n.rows - 1)
        at = address(context, source, n.element(row, lane)[1])
        if mask is False:
            loaded.append(context.code.spread(constant(0, at.kind), n.block))
            continue
        loaded.append(load(context, at, _strict(source), None if mask is True else mask))
    return loaded


def _store(
    context: Context, n: TransposeBlock, moved: list[Val], rows: Number, columns: Number
) -> None:
    """Columns, of which a padded target takes all. Counts as in `_loaded`."""
    target, lane = context.buffers[n.target], var(_COLUMN)
    down = lanes_below(context, rows)
    for c, column in enumerate(moved):
        mask = True if target.padded else _row_mask(context, down, columns, c)
        place = c if mask is True or isinstance(columns, int) else minimum(c, n.columns - 1)
        at = address(context, target, n.element(lane, place)[0])
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
    if along is False:
        return False
    inside = lanes_beyond(context, count, row)
    return inside if along is True else context.code.binary("and", along, inside)


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
