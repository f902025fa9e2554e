# SPDX-License-Identifier: Apache-2.0
"""Bit operators and operands -> typed expression (LANGUAGE F6).

Types as for `+`, but a literal that fits takes the other operand's type, and a shift has the type
of its left side. `~x` is `x ^ c` with all bits of `c` set.
"""

from __future__ import annotations

from tcsym.errors import Span, TCTypeError
from tcsym.frontend.literals import Literal, fits, literal_to_const
from tcsym.frontend.program import Binary, BitOp, Cast, Const, Expr, dtype_of
from tcsym.frontend.promotion import Typed, common_type, convert, settle, typed_dtype
from tcsym.types import DType

_MASKING: dict[str, BitOp] = {"&": "bitand", "|": "bitor", "^": "bitxor"}
_SHIFTS: dict[str, BitOp] = {"<<": "shl", ">>": "shr"}
BIT_OPERATORS = frozenset({*_MASKING, *_SHIFTS})
_UNSIGNED = {8: DType.UINT8, 16: DType.UINT16, 32: DType.UINT32, 64: DType.UINT64}


def bit_operation(op: str, a: Typed, b: Typed, span: Span) -> Expr:
    """`a op b`; `span` begins at its first token."""
    for x in (a, b):
        dtype = typed_dtype(x)
        if not dtype.is_integer and (op in _SHIFTS or dtype is not DType.BOOL):
            raise _not_bits(op, dtype, span)
    if op in _SHIFTS:
        left = settle(a)
        return Binary(_SHIFTS[op], left, _count(b, dtype_of(left)), dtype_of(left), False, span)
    dtype = _meeting(a, b) or _meeting(b, a) or common_type((a, b))
    return Binary(_MASKING[op], convert(a, dtype), convert(b, dtype), dtype, False, span)


def complement(x: Typed, span: Span) -> Expr:
    operand = settle(x)
    dtype = dtype_of(operand)
    if not dtype.is_integer:
        raise _not_bits("~", dtype, span)
    ones = Const(-1 if dtype.is_signed else dtype.highest, dtype)
    return Binary("bitxor", operand, ones, dtype, False, span)


_HINTS = {"~": "on bool write `!`", "^": "a power is `pow(a, b)`, or `a * a`"}


def _not_bits(op: str, dtype: DType, span: Span) -> TCTypeError:
    hint = _HINTS.get(op, "convert it first, e.g. `int32(…)`")
    return TCTypeError(f"`{op}` is not defined for {dtype} operands", span=span, hint=hint)


def _meeting(literal: Typed, other: Typed) -> DType | None:
    """The type of `other`, if `literal` is one that fits it."""
    if not isinstance(literal, Literal) or isinstance(other, Literal):
        return None
    dtype = dtype_of(other)
    return dtype if fits(literal, dtype) else None


def _count(b: Typed, dtype: DType) -> Expr:
    """The count as a value of `dtype` that is read as unsigned: what is too large stays so."""
    if isinstance(b, Literal):
        if b.value < 0:
            raise TCTypeError("a negative shift count", span=b.span, hint="shift the other way")
        return literal_to_const(b, dtype) if fits(b, dtype) else Const(dtype.bits, dtype)
    if dtype_of(b) is dtype:
        return b
    count: Expr = convert(b, _UNSIGNED[dtype_of(b).bits])
    if dtype_of(count).bits > dtype.bits:
        wide = dtype_of(count)
        count = Binary("min", count, Const(dtype.bits, wide), wide)
    return count if dtype_of(count) is dtype else Cast(count, dtype)
