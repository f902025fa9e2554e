"""Region -> a table of its global buffers, by which the twin judges every access (`Global` of
tcsym/native/simt.h)."""

from __future__ import annotations

from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.index_code import as_val, number
from tcsym.codegen.scalar.values import Val, constant
from tcsym.index.expr import ZERO, Index, maximum, minimum
from tcsym.index.values import product_of
from tcsym.ir.loops import Buffer
from tcsym.ir.regions import Region

_FIELDS = 7  # of a `Global`


def number_of(context: Context, buffer: Buffer) -> int:
    """Of a global buffer, in its region: as in `Region.pointers`."""
    return list(context.pointers).index(buffer.name)


def announce(context: Context, region: Region, fault: str) -> None:
    """The global buffers of the grid that is launched next. `fault`: where it notes faults."""
    f, n = context.function, len(region.pointers)
    table = f.alloca(f"[{max(1, n) * _FIELDS} x i64]", 16)
    written = context.stored(region.loop)
    for k, name in enumerate(region.pointers):
        for place, value in enumerate(_global(context, name, name in written)):
            at = f.pure(f"getelementptr i64, ptr {table}, i64 {k * _FIELDS + place}")
            f.do(f"store {value}, ptr {at}, align 8")
    context.module.declare("void", "tcsym_simt_globals", "ptr, i64, ptr")
    f.do(f"call void @tcsym_simt_globals(ptr {table}, i64 {n}, ptr {fault})")


def _global(context: Context, name: str, is_written: bool) -> tuple[str, ...]:
    """The fields, with their types."""
    buffer = context.buffers[name]
    ends = [(n - 1) * s for n, s in zip(buffer.shape, buffer.element_strides(), strict=True)]
    first = sum((minimum(ZERO, e) for e in ends), ZERO)
    last = sum((maximum(ZERO, e) for e in ends), ZERO)
    count = product_of(buffer.shape)
    numbers: tuple[Index | int, ...] = first, last, count, buffer.dtype.bytes, int(is_written)
    values = [constant(e, "i64") if isinstance(e, int) else _value(context, e) for e in numbers]
    text = _text(context, name)
    return f"ptr {context.pointers[name]}", *(v.typed for v in values), f"ptr {text}"


def _value(context: Context, e: Index) -> Val:
    return as_val(number(context, e))


def _text(context: Context, name: str) -> str:
    """A constant of the module, which ends with a zero."""
    symbol, data = f'@"tcsym_name.{name}"', name.encode()
    text = "".join(f"\\{c:02x}" for c in (*data, 0))
    kind = f"private unnamed_addr constant [{len(data) + 1} x i8]"
    context.module.declarations[symbol] = f'{symbol} = {kind} c"{text}"'
    return symbol
