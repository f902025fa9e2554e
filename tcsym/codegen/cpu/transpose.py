# SPDX-License-Identifier: Apache-2.0
"""TransposeBlock -> a square block moved through registers.

Rows are loaded, exchanged by shuffles (first within 128 bits, where one unpack instruction moves
two elements, then whole 128-bit quarters), and stored as columns. Elements of 8 and 16 bits go
through rounds of unpacks, sixteen a side. Where there are mask registers,
clipped blocks are moved by one function for all blocks of a kernel. Without vectors, or where the
last dimension is not contiguous, the block is moved by a loop over its elements.
"""

from __future__ import annotations

from functools import reduce

from msgspec.structs import replace

from tcsym.codegen.cpu.memory import load, store
from tcsym.codegen.scalar.addresses import Address, address, moved_by
from tcsym.codegen.scalar.branches import choose_each
from tcsym.codegen.scalar.context import Context, Lanes
from tcsym.codegen.scalar.index_code import Number, as_val, lanes_below, lanes_beyond, number
from tcsym.codegen.scalar.values import Code, Val, bits_of, constant
from tcsym.index.expr import ZERO, Condition, Index, all_of, ge, index, minimum, var
from tcsym.ir.loops import Buffer, Indices, TransposeBlock
from tcsym.target.machine import Machine

_COLUMN = "transpose column"
_FEW_IN_QUARTER = 4  # elements of 128 bits whose exchanges LLVM makes unpacks of


def fits_registers(machine: Machine, n: TransposeBlock, source: Buffer, to: Buffer) -> bool:
    """True if a row of the block is one vector register, contiguous on both sides."""
    return (
        n.block == machine.block_lanes(source.dtype.bits)
        and "register" not in (source.space, to.space)
        and source.element_strides()[-1].as_int() == 1
        and to.element_strides()[-1].as_int() == 1
    )


def is_whole(n: TransposeBlock) -> Condition:
    """No row and no column of the block is outside."""
    return all_of([ge(n.rows, n.block), ge(n.columns, n.block)])


def transpose_whole(context: Context, n: TransposeBlock) -> None:
    """A whole block, without masks.

    Rows are loaded in pieces of 128 bits, or eight elements, each into its place in a register:
    half the shuffles of the exchange are then part of loads.
    """
    source, target, lane = context.buffers[n.source], context.buffers[n.target], var(_COLUMN)
    piece = min(8, 128 // target.dtype.bits)
    across = source.element_strides()[n.source_row], target.element_strides()[n.target_column]
    for first in range(0, n.block, piece):
        with context.in_lanes(Lanes(_COLUMN, piece)):
            at = _address(context, source, n.element(ZERO, lane + first)[1])
            rows = [_moved_by(context, at, across[0], r) for r in range(n.block)]
            columns = _piece_columns(context, source, rows, piece)
        with context.in_lanes(Lanes(_COLUMN, n.block)):
            at = _address(context, target, n.element(lane, 0)[0])
            for c, column in enumerate(columns):
                place = _moved_by(context, at, across[1], first + c)
                store(context, place, target, column, None)
    context.note_store(target.name)


def _address(context: Context, buffer: Buffer, subscripts: Indices) -> Address:
    """Of short elements the bits are moved: halves would be converted, one by one."""
    at = address(context, buffer, subscripts)
    bits = bits_of(at.kind)
    return replace(at, kind=f"i{bits}") if bits < 32 else at


def _moved_by(context: Context, at: Address, step: Index, count: int) -> Address:
    """The address `count` steps on."""
    pointer = moved_by(context, at.pointer, step * count, at.kind)
    return replace(at, pointer=pointer, place=None) if count else at


def _piece_columns(
    context: Context, source: Buffer, places: list[Address], piece: int
) -> list[Val]:
    """The columns that start where `places`, one a row, say: as many as a piece of a row holds.

    The first stage of bytes fills registers from pieces of half their length.
    """
    quarter, rows = 128 // source.dtype.bits, []
    if quarter > piece:
        loaded = [load(context, at, source, None) for at in places]
        return _unpacked(context.code, _interleaved(context.code, loaded, piece), quarter)
    for r in range(piece):
        taken = [load(context, at, source, None) for at in places[r::piece]]
        rows.append(_joined(context.code, taken))
    if quarter > _FEW_IN_QUARTER:
        return _unpacked(context.code, rows, quarter)
    distance = 1
    while distance < piece:
        rows = _exchange(context.code, rows, distance, piece)
        distance *= 2
    return rows


def _joined(code: Code, parts: list[Val]) -> Val:
    """One vector of several, as many as a power of two."""
    while len(parts) > 1:
        lanes = tuple(range(2 * parts[0].lanes))
        parts = [code.shuffle(a, b, lanes) for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


def transpose_in_registers(context: Context, n: TransposeBlock) -> None:
    """A whole block, or a clipped one under masks, into a padded target; decided at run time.

    Both share the exchange in registers, which is most of the code.
    """
    code, block = context.code, n.block
    rows, columns = number(context, n.rows), number(context, n.columns)
    with context.in_lanes(Lanes(_COLUMN, block)):
        if isinstance(rows, int) and isinstance(columns, int):
            taken = _loaded(context, n, min(rows, block), min(columns, block))
        else:
            taken = choose_each(
                context,
                _is_whole(code, rows, columns, block),
                lambda: _loaded(context, n, block, block),
                lambda: _loaded(context, n, rows, columns),
            )
        _store(context, n, transposed(code, taken))


def _is_whole(code: Code, rows: Number, columns: Number, block: int) -> Val:
    """Both counts are at least `block`; one of them is not known."""
    whole = [
        code.compare("icmp sge", as_val(count), constant(block, "i64"))
        for count in (rows, columns)
        if not isinstance(count, int) or count < block
    ]
    return reduce(lambda a, b: code.binary("and", a, b), whole)


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
        at = _address(context, source, n.element(row, lane)[1])
        if mask is False:
            loaded.append(context.code.spread(constant(0, at.kind), n.block))
            continue
        loaded.append(load(context, at, _strict(source), None if mask is True else mask))
    return loaded


def _store(context: Context, n: TransposeBlock, moved: list[Val]) -> None:
    """All columns."""
    target, lane = context.buffers[n.target], var(_COLUMN)
    for c, column in enumerate(moved):
        at = _address(context, target, n.element(lane, index(c))[0])
        store(context, at, target, column, None)
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
    distance = 1 if quarter <= _FEW_IN_QUARTER else quarter
    while distance < min(quarter, lanes):
        rows = _exchange(code, rows, distance, quarter)
        distance *= 2
    while distance < lanes:
        rows = _exchange(code, rows, distance, lanes)
        distance *= 2
    if quarter > _FEW_IN_QUARTER:
        parts = (rows[k : k + quarter] for k in range(0, lanes, quarter))
        rows = [column for part in parts for column in _unpacked(code, part, quarter)]
    return rows


def _unpacked(code: Code, rows: list[Val], quarter: int) -> list[Val]:
    """Columns of blocks of `quarter` elements a side, in each 128 bits, by unpacks.

    The rows' upper half goes between the lower, element by element: a round moves one bit of the
    number of a row into the number of the lane, and one of the lane's back. Rows of half as many
    have had their first round.
    """
    half, lanes, stay = len(rows) // 2, rows[0].lanes, quarter // 2
    pairs = [(g + k, g + k + lanes) for g in range(0, lanes, quarter) for k in range(quarter)]
    low = tuple(x for a, b in pairs if a % quarter < stay for x in (a, b))
    high = tuple(x for a, b in pairs if a % quarter >= stay for x in (a, b))
    for _ in range(half.bit_length()):
        both = zip(rows[:half], rows[half:])
        rows = [code.shuffle(a, b, picks) for a, b in both for picks in (low, high)]
    return rows


def _interleaved(code: Code, rows: list[Val], lanes: int) -> list[Val]:
    """Each row of the first half with one of the second, element by element."""
    half, picks = len(rows) // 2, tuple(x for k in range(lanes) for x in (k, k + lanes))
    return [code.shuffle(a, b, picks) for a, b in zip(rows[:half], rows[half:])]


def _exchange(code: Code, rows: list[Val], distance: int, group: int) -> list[Val]:
    """Swap, between rows r and r + distance, the off-diagonal runs of `distance` elements.

    Within 128 bits (group < lanes) this is blend and shuffle; LLVM joins two stages into unpacks.
    """
    lanes = rows[0].lanes
    low, high = [], []
    for lane in range(lanes):
        upper = bool(lane & distance)
        low.append(lane - distance + lanes if upper else lane)
        high.append(lane + lanes if upper else lane + distance)
    out = list(rows)
    for r in range(len(rows)):
        if not r & distance:
            a, b = rows[r], rows[r + distance]
            out[r] = code.shuffle(a, b, tuple(low))
            out[r + distance] = code.shuffle(a, b, tuple(high))
    return out
