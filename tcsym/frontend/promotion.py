# SPDX-License-Identifier: Apache-2.0
"""Operator and operands -> typed expression: common types, literals adapting, explicit casts.

The rules of LANGUAGE A17, B7, E1 and E2. With `exact` (inside subscripts, E4) integer operands are
already int64 and the result is an exact operation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal as OneOf

from tcsym.errors import Span, TCTypeError
from tcsym.frontend import ast
from tcsym.frontend.literals import Literal, cast_literal, default_type, literal_to_const
from tcsym.frontend.program import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Select,
    Unary,
    dtype_of,
)
from tcsym.types import DType, promote

Typed = Expr | Literal

_ARITHMETIC: dict[str, BinaryOp] = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "%": "mod",
    "min": "min",
    "max": "max",
}
CompareOp = OneOf["lt", "le", "gt", "ge", "eq", "ne"]
_COMPARISONS: dict[str, CompareOp] = {
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "==": "eq",
    "!=": "ne",
}


def typed_dtype(x: Typed, exact: bool = False) -> DType:
    return default_type(x, exact) if isinstance(x, Literal) else dtype_of(x)


def settle(x: Typed, exact: bool = False) -> Expr:
    """A literal that meets nothing takes its default type."""
    return literal_to_const(x, default_type(x, exact)) if isinstance(x, Literal) else x


def convert(x: Typed, dtype: DType) -> Expr:
    """`x` as a value of `dtype`, by an explicit cast where its type differs."""
    if isinstance(x, Literal):
        return literal_to_const(x, dtype)
    return x if dtype_of(x) is dtype else Cast(x, dtype)


def common_type(operands: Sequence[Typed], exact: bool = False) -> DType:
    """The type to which operands are converted; literals adapt to what they meet."""
    common: DType | None = None
    for x in operands:
        if not isinstance(x, Literal):
            common = dtype_of(x) if common is None else promote(common, dtype_of(x))
    for x in operands:
        if isinstance(x, Literal):
            common = _with_literal(common, x, exact)
    assert common is not None
    return common


def _with_literal(common: DType | None, literal: Literal, exact: bool) -> DType:
    default = default_type(literal, exact)
    if common is None:
        return default
    if common.is_float or (not literal.is_float and common.bits >= 32):
        return common
    return promote(common, default)


def infix(op: ast.InfixOp, a: Typed, b: Typed, spans: tuple[Span, Span], exact: bool) -> Expr:
    """`a op b`; `spans` are those of `a` and `b`."""
    if op in ("&&", "||"):
        for x, span in zip((a, b), spans, strict=True):
            require_bool(x, f"an operand of `{op}`", span)
        return Binary("and" if op == "&&" else "or", settle(a), settle(b), DType.BOOL)
    if op in _COMPARISONS:
        _check_chained(op, a, b, spans[0])
        return _comparison(_COMPARISONS[op], a, b, exact)
    return arithmetic(op, a, b, spans[0], exact)


def arithmetic(op: str, a: Typed, b: Typed, span: Span, exact: bool) -> Expr:
    """`+ - * / %`, `min` and `max`."""
    dtype = common_type((a, b), exact)
    if dtype is DType.BOOL and op in "-/%":
        raise TCTypeError(
            f"`{op}` is not defined for bool operands",
            span=span,
            hint="convert one side, e.g. `int32(…)`",
        )
    left, right = convert(a, dtype), convert(b, dtype)
    return Binary(_ARITHMETIC[op], left, right, dtype, exact and dtype is DType.INT64, span)


def _check_chained(op: str, a: Typed, b: Typed, span: Span) -> None:
    """`a < b < c`, `a > 0 & b < c`: the result of a comparison is no number (LANGUAGE F6)."""
    is_bool = [typed_dtype(x) is DType.BOOL for x in (a, b)]
    if not all(is_bool) and any(isinstance(x, Compare) for x in (a, b)):
        raise TCTypeError(
            f"`{op}` compares the result of a comparison with a number",
            span=span,
            hint="comparisons do not chain, and `&`, `^` and `|` bind closer than they do: write "
            "`a > 0 && a < 9`",
        )


def _comparison(op: CompareOp, a: Typed, b: Typed, exact: bool) -> Compare:
    if not isinstance(a, Literal) and not isinstance(b, Literal):
        if dtype_of(a).is_integer and dtype_of(b).is_integer:
            return Compare(op, a, b)  # by value, whatever the signs
    elif (integers := _integer_comparison(op, a, b, exact)) is not None:
        return integers
    dtype = common_type((a, b), exact)
    return Compare(op, _compared(a, dtype), _compared(b, dtype))


def _compared(x: Typed, dtype: DType) -> Expr:
    """A literal beside a half is one that a half may equal (LANGUAGE E2)."""
    wide = convert(x, dtype)
    rounded = cast_literal(x, dtype) if isinstance(x, Literal) and dtype.is_float else wide
    return wide if isinstance(rounded, Const) and math.isinf(rounded.value) else rounded


def _integer_comparison(op: CompareOp, a: Typed, b: Typed, exact: bool) -> Compare | None:
    """A literal against a narrow integer: int32 against that integer, without converting it."""
    dtypes = [typed_dtype(x, exact) for x in (a, b)]
    if not all(t.is_integer for t in dtypes):
        return None
    wide = [t for x, t in zip((a, b), dtypes, strict=True) if not isinstance(x, Literal)]
    if not wide or wide[0].bits >= 32:
        return None
    return Compare(op, settle(a, exact), settle(b, exact))


def prefix(op: str, x: Typed, span: Span, exact: bool) -> Expr:
    """`-x` or `!x`; a literal `x` has already taken its sign."""
    if op == "!":
        require_bool(x, "the operand of `!`", span)
        return Unary("not", settle(x), DType.BOOL)
    operand = settle(x, exact)
    dtype = dtype_of(operand)
    if dtype is DType.BOOL:
        hint = "convert it first, e.g. `-int32(…)`"
        raise TCTypeError("`-` is not defined for a bool", span=span, hint=hint)
    if exact and dtype is DType.INT64:
        return Binary("sub", Const(0, dtype), operand, dtype, True, span)
    return Unary("neg", operand, dtype)


def select(condition: Typed, then: Typed, orelse: Typed, span: Span, exact: bool) -> Expr:
    require_bool(condition, "the condition of `?:`", span)
    dtype = common_type((then, orelse), exact)
    return Select(settle(condition), convert(then, dtype), convert(orelse, dtype), dtype)


def built_in(name: str, args: Sequence[Typed]) -> Call:
    """Arguments are matched with each other in a floating type, float32 if none has one."""
    floats = [dtype_of(x) for x in args if not isinstance(x, Literal) and dtype_of(x).is_float]
    dtype = floats[0] if floats else DType.FLOAT32
    for other in floats[1:]:
        dtype = promote(dtype, other)
    return Call(name, tuple([convert(x, dtype) for x in args]), dtype)


def require_bool(x: Typed, what: str, span: Span) -> None:
    dtype = typed_dtype(x)
    if dtype is not DType.BOOL:
        raise TCTypeError(
            f"{what} must be boolean, not {dtype}",
            span=span,
            hint="compare it with something, e.g. `… != 0`",
        )
