# SPDX-License-Identifier: Apache-2.0
"""Store and Update statements.

A product added to a floating element is one fused multiply-add where the target has it.
"""

from __future__ import annotations

from collections.abc import Callable

from tcsym.codegen.scalar.addresses import address
from tcsym.codegen.scalar.arithmetic import arithmetic
from tcsym.codegen.scalar.casts import cast, from_memory, rounded, to_memory
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.expressions import compared, value, without_widening
from tcsym.codegen.scalar.extrema import extremum
from tcsym.codegen.scalar.values import Val
from tcsym.frontend.program import Binary, Cast, Const, Expr, Read
from tcsym.ir.loops import (
    Buffer,
    Store,
    Update,
    Value,
    value_dtype,
)
from tcsym.types import DType

_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def store_statement(context: Context, n: Store, element: Val) -> None:
    """`element`: what it stores."""
    buffer = context.buffers[n.buffer]
    at = address(context, buffer, n.subscripts)
    streamed = context.machine.stream_bytes if n.streamed else 0
    context.memory.store(context, at, buffer, element, context.mask, streamed)


def element_of(context: Context, n: Store, settled: Callable[[Val], Val] | None = None) -> Val:
    """What it stores. `settled`: made of the value before that becomes an element."""
    buffer = context.buffers[n.buffer]
    result = converted(context, n.value, buffer.dtype)
    if settled is not None:
        result = settled(result)
    if buffer.space == "register" and buffer.dtype in _HALVES and not _is_rounded(n.value):
        result = rounded(context.code, result, buffer.dtype)
    return _element(context, buffer, result)


def _is_rounded(v: Value) -> bool:
    return isinstance(v, Read | Cast | Const) and value_dtype(v) in _HALVES


def converted(context: Context, v: Value, dtype: DType) -> Val:
    """A value in registers for an element of that type."""
    result, source = value(context, v), value_dtype(v)
    in_float = source in (*_HALVES, DType.FLOAT32) and dtype in (*_HALVES, DType.FLOAT32)
    return result if in_float else cast(context.code, result, source, dtype)


def _element(context: Context, buffer: Buffer, result: Val) -> Val:
    """A register value as an element of the buffer."""
    if buffer.space == "register" and buffer.dtype is not DType.BOOL:
        return result
    return to_memory(context.code, result, buffer.dtype)


def update_statement(context: Context, n: Update) -> None:
    buffer, code = context.buffers[n.buffer], context.code
    at = address(context, buffer, n.subscripts)
    with_term = context.backend.intrinsics.term(context, n)
    with_term = with_term or _product_term(context, n, buffer.dtype)
    values = [value(context, v) for v in _compared(context, n, buffer)]
    total = None if with_term or values else converted(context, n.value, buffer.dtype)
    old = context.memory.load(context, at, buffer, context.mask)
    if buffer.space != "register" or buffer.dtype is DType.BOOL:
        old = from_memory(code, old, buffer.dtype)
    if values:
        new = extremum(code, n.op, [old, *values], buffer.dtype)
    elif total is None:
        assert with_term is not None
        new = with_term(old)
    else:
        new = arithmetic(code, n.op, old, total, buffer.dtype)
    context.memory.store(context, at, buffer, _element(context, buffer, new), context.mask)


def _compared(context: Context, n: Update, buffer: Buffer) -> list[Expr]:
    """Of an extremum of several numbers, as they are in registers: NaN is asked for once."""
    v, wide = n.value, (DType.FLOAT32, DType.FLOAT64)
    if not isinstance(v, Binary) or v.op != n.op or n.op not in ("min", "max"):
        return []
    return compared(context, v) if buffer.dtype in wide and v.dtype is buffer.dtype else []


def _product_term(context: Context, n: Update, dtype: DType) -> Callable[[Val], Val] | None:
    """Adds a product to a floating sum by one fused instruction."""
    term = without_widening(n.value)
    if not (isinstance(term, Binary) and term.op == "mul" and n.op == "add"):
        return None
    if not (context.machine.has_fma and dtype.is_float and term.dtype.is_float):
        return None
    if (term.dtype is DType.FLOAT64) != (dtype is DType.FLOAT64):
        return None
    a, b = value(context, term.left), value(context, term.right)
    return lambda total: context.code.intrinsic("fma", a, b, total)
