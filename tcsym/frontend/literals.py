# SPDX-License-Identifier: Apache-2.0
"""Literals -> constants of the type they take (LANGUAGE B7, E1).

A literal is a number, `INFINITY` or `NAN`, with an optional prefix `-` and parentheses. Only it
adapts its type to what it meets; whether it fits is decided here.
"""

from __future__ import annotations

import math

from tcsym.errors import NOWHERE, Span, TCTypeError
from tcsym.frontend import ast
from tcsym.frontend.program import Const
from tcsym.keyed import Keyed
from tcsym.types import DType


class Literal(Keyed, frozen=True):
    """`value` is exact if an integer. `span`: from its sign or first digit."""

    text: str
    value: int | float
    span: Span = NOWHERE

    @property
    def is_float(self) -> bool:
        return isinstance(self.value, float)


def literal_of(e: ast.Expr) -> Literal | None:
    """`e` as a literal, or None if it is something computed."""
    outer = ast.unparenthesised(e)
    negative = isinstance(outer, ast.Prefix) and outer.op == "-"
    inner = ast.unparenthesised(outer.operand) if isinstance(outer, ast.Prefix) else outer
    if isinstance(outer, ast.Prefix) and not negative:
        return None
    value = _value(inner)
    if value is None:
        return None
    text = inner.text if isinstance(inner, ast.Number) else str(getattr(inner, "name", ""))
    if math.isnan(value):
        return Literal(text, math.nan, outer.span)
    return Literal("-" * negative + text, -value if negative else value, outer.span)


def _value(e: ast.Expr) -> int | float | None:
    match e:
        case ast.Number(text):
            return float(text) if is_float_text(text) else int(text)
        case ast.Constant("INFINITY"):
            return math.inf
        case ast.Constant("NAN"):
            return math.nan
        case _:
            return None


def is_float_text(text: str) -> bool:
    return any(c in text for c in ".eE")


def default_type(literal: Literal, exact: bool = False) -> DType:
    """float32 or int32; int64 in subscripts, where integers are exact."""
    if literal.is_float:
        return DType.FLOAT32
    return DType.INT64 if exact else DType.INT32


def fits(literal: Literal, dtype: DType) -> bool:
    """True for an integer that `dtype`, bool or an integer type, has."""
    return not literal.is_float and dtype.lowest <= literal.value <= dtype.highest


def literal_to_const(literal: Literal, dtype: DType) -> Const:
    """The literal as a constant of `dtype`; TCTypeError if it does not fit."""
    value = literal.value
    if dtype.is_float:
        rounded = round_to(value, dtype.accumulator)  # halves are computed in float32
        if math.isinf(rounded) and not literal.text.endswith("INFINITY"):
            raise _misfit(literal, dtype, ": it becomes infinite")
        return Const(rounded, dtype)
    if isinstance(value, float):
        raise _misfit(literal, dtype, ": it is a floating-point number")
    if not dtype.lowest <= value <= dtype.highest:
        raise _misfit(literal, dtype, f", which holds {dtype.lowest} to {dtype.highest}")
    return Const(value, dtype)


def stored_literal(literal: Literal, dtype: DType) -> Const:
    """The literal as what a tensor of `dtype` keeps; TCTypeError if it does not fit."""
    infinite = dtype.is_float and math.isinf(round_to(literal.value, dtype))
    if infinite and not literal.text.endswith("INFINITY"):
        raise _misfit(literal, dtype, ": it becomes infinite")
    return literal_to_const(literal, dtype)


def is_lost(literal: Literal, dtype: DType) -> bool:
    """True if a number that is not 0 becomes 0 or subnormal in `dtype`."""
    value = literal.value
    if not (isinstance(value, float) and dtype.is_float) or value == 0 or not math.isfinite(value):
        return False
    return abs(round_to(value, dtype)) < 2.0 ** _LEAST_EXPONENT[dtype]


def _misfit(literal: Literal, dtype: DType, why: str) -> TCTypeError:
    text = literal.text if len(literal.text) <= 24 else literal.text[:24] + "…"
    return TCTypeError(
        f"literal `{text}` does not fit type {dtype}{why}",
        span=literal.span,
        hint=f"write `{dtype}({text})` to convert it",
    )


def cast_literal(literal: Literal, dtype: DType) -> Const:
    """`dtype(literal)`, converted from the literal's exact value (LANGUAGE B8, E1)."""
    value = literal.value
    if dtype.is_float:
        return Const(round_to(value, dtype), dtype)
    if dtype is DType.BOOL:
        return Const(int(value != 0), dtype)
    if isinstance(value, float):
        return Const(_saturated(value, dtype), dtype)
    span = dtype.highest - dtype.lowest + 1
    return Const((value - dtype.lowest) % span + dtype.lowest, dtype)


def _saturated(value: float, dtype: DType) -> int:
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return dtype.highest if value > 0 else dtype.lowest
    return max(dtype.lowest, min(dtype.highest, math.trunc(value)))


_PRECISION = {  # significant bits, least normal exponent, greatest finite value
    DType.FLOAT16: (11, -14, 65504.0),
    DType.BFLOAT16: (8, -126, (2 - 2.0**-7) * 2.0**127),
    DType.FLOAT32: (24, -126, (2 - 2.0**-23) * 2.0**127),
}


_LEAST_EXPONENT = {DType.FLOAT64: -1022, **{t: p[1] for t, p in _PRECISION.items()}}


def round_to(value: int | float, dtype: DType) -> float:
    """Nearest value of a floating type (ties to even), as a Python float; infinite if too large."""
    try:
        x = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    if dtype is DType.FLOAT64 or x == 0 or not math.isfinite(x):
        return x
    bits, least, greatest = _PRECISION[dtype]
    exponent = max(math.frexp(x)[1] - bits, least - bits + 1)
    rounded = math.ldexp(round(math.ldexp(x, -exponent)), exponent)
    return rounded if abs(rounded) <= greatest else math.copysign(math.inf, x)
