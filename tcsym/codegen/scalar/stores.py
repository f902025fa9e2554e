"""Store and Update statements.

A product added to a floating element is one fused multiply-add where the target has it.
"""

from __future__ import annotations

from collections.abc import Callable

from tcsym.codegen.cpu.memory import load, store
from tcsym.codegen.cpu.packed import add_dot
from tcsym.codegen.cpu.pairs import in_order, takes_pairs
from tcsym.codegen.cpu.woven_stores import store_woven
from tcsym.codegen.scalar.addresses import address
from tcsym.codegen.scalar.arithmetic import arithmetic
from tcsym.codegen.scalar.casts import cast, from_memory, rounded, to_memory
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.expressions import value, without_widening
from tcsym.codegen.scalar.values import Val, register_kind
from tcsym.frontend.program import Binary, Call, Cast, Const, Read
from tcsym.index.expr import ZERO
from tcsym.ir.loops import (
    STREAM_BYTES,
    Buffer,
    Node,
    Store,
    TransposeBlock,
    Update,
    Value,
    value_dtype,
)
from tcsym.ir.packed import is_dot
from tcsym.ir.traverse import loads, walk
from tcsym.types import DType

_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def store_statement(context: Context, n: Store) -> None:
    context.is_shuffled = n.buffer in context.order.buffers
    alone = not context.is_shuffled and takes_pairs(context, n)
    context.is_shuffled = context.is_shuffled or alone
    _store(context, n, alone)
    context.is_shuffled = False


def woven_statement(context: Context, group: tuple[Store, ...]) -> None:
    """Stores that `woven_stores.grouped` has found."""
    elements = []
    for n in group:
        context.is_shuffled = takes_pairs(context, n)
        elements.append(_stored(context, n, context.is_shuffled))
        context.is_shuffled = False
    store_woven(context, group, elements)


def _store(context: Context, n: Store, alone: bool) -> None:
    buffer = context.buffers[n.buffer]
    element = _stored(context, n, alone)
    at = address(context, buffer, n.subscripts)
    streamed = STREAM_BYTES if n.streamed else 0
    store(context, at, buffer, element, context.mask, streamed)


def _stored(context: Context, n: Store, alone: bool) -> Val:
    """The element. `alone`: only the value is computed in shuffled order."""
    buffer = context.buffers[n.buffer]
    with context.reading(loads(n.value) if alone else ()):
        result = _converted(context, n.value, buffer.dtype)
    if alone:
        result = in_order(context, result)
        context.is_shuffled = False
    if buffer.space == "register" and buffer.dtype in _HALVES and not _is_rounded(n.value):
        result = rounded(context.code, result, buffer.dtype)
    return _element(context, buffer, result)


def _is_rounded(v: Value) -> bool:
    return isinstance(v, Read | Cast | Const) and value_dtype(v) in _HALVES


def _converted(context: Context, v: Value, dtype: DType) -> Val:
    result, source = value(context, v), value_dtype(v)
    in_float = source in (*_HALVES, DType.FLOAT32) and dtype in (*_HALVES, DType.FLOAT32)
    return result if in_float else cast(context.code, result, source, dtype)


def _element(context: Context, buffer: Buffer, result: Val) -> Val:
    """A register value as an element of the buffer."""
    if buffer.space == "register" and buffer.dtype is not DType.BOOL:
        return result
    return to_memory(context.code, result, buffer.dtype)


def update_statement(context: Context, n: Update) -> None:
    context.is_shuffled = n.buffer in context.order.buffers
    _update(context, n)
    context.is_shuffled = False


def _update(context: Context, n: Update) -> None:
    buffer, code = context.buffers[n.buffer], context.code
    at = address(context, buffer, n.subscripts)
    with_term = _dot_term(context, n, buffer.dtype) or _product_term(context, n, buffer.dtype)
    total = None if with_term else _converted(context, n.value, buffer.dtype)
    old = load(context, at, buffer, context.mask)
    if buffer.space != "register" or buffer.dtype is DType.BOOL:
        old = from_memory(code, old, buffer.dtype)
    if total is None:
        assert with_term is not None
        new = with_term(old)
    else:
        new = arithmetic(code, n.op, old, total, buffer.dtype)
    store(context, at, buffer, _element(context, buffer, new), context.mask)


def end_streams(context: Context, node: Node) -> None:
    """Streamed stores of `node` become visible in order with all that this thread stores later."""
    if any(map(_is_streamed, (n for n, _ in walk(node)))):
        context.module.declare("void", "llvm.x86.sse.sfence", "")
        context.function.do("call void @llvm.x86.sse.sfence()")


def _is_streamed(n: Node) -> bool:
    if isinstance(n, TransposeBlock):
        return n.streamed != ZERO
    return isinstance(n, Store) and n.streamed


def _dot_term(context: Context, n: Update, dtype: DType) -> Callable[[Val], Val] | None:
    """Adds a dot product by the instruction that computes it."""
    v = n.value
    if not (isinstance(v, Call) and is_dot(v) and n.op == "add"):
        return None
    if register_kind(dtype) != register_kind(v.dtype):
        return None
    x, y = (value(context, a) for a in v.args)
    return lambda total: add_dot(context.code, v.function, total, x, y)


def _product_term(context: Context, n: Update, dtype: DType) -> Callable[[Val], Val] | None:
    """Adds a product to a floating sum by one fused instruction."""
    term = without_widening(n.value)
    if not (isinstance(term, Binary) and term.op == "mul" and n.op == "add"):
        return None
    if not (context.target.has_fma and dtype.is_float and term.dtype.is_float):
        return None
    if (term.dtype is DType.FLOAT64) != (dtype is DType.FLOAT64):
        return None
    a, b = value(context, term.left), value(context, term.right)
    return lambda total: context.code.intrinsic("fma", a, b, total)
