"""Typed expression -> exact index expression or condition, where it is one.

Guards (LANGUAGE C7) and schedules use the affine part of a condition; what depends on data is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    Select,
    Unary,
)
from tcsym.index.expr import (
    FALSE,
    TRUE,
    Condition,
    Index,
    all_of,
    any_of,
    choose,
    eq,
    floordiv,
    ge,
    index,
    lt,
    maximum,
    minimum,
    mod,
    negate,
)
from tcsym.types import DType

NOTHING: Mapping[Read, Index] = MappingProxyType({})


def as_index(e: Expr, known: Mapping[Read, Index] = NOTHING, wraps: bool = False) -> Index | None:
    """`e` as an exact integer expression, or None if it depends on data.

    known: what stands for some reads. wraps: or if it is computed in a type in which it may wrap,
    as what is no subscript, range or side of a comparison is (LANGUAGE E4).
    """
    match e:
        case Const(value, dtype) if not dtype.is_float:
            return index(int(value))
        case (Read() as read) | Cast(Read() as read, DType.INT64):
            return known.get(read)
        case IndexValue() | Unary() | Binary() | Select() if not e.dtype.is_integer or (
            wraps and e.dtype is not DType.INT64
        ):
            return None
        case IndexValue(i, _):
            return i
        case Unary("neg", x, _):
            inner = as_index(x, known, wraps)
            return None if inner is None else -inner
        case Binary(op, a, b):
            left, right = as_index(a, known, wraps), as_index(b, known, wraps)
            return None if left is None or right is None else _arithmetic(op, left, right)
        case Select(c, a, b):
            condition = as_condition(c)
            then, orelse = as_index(a, known, wraps), as_index(b, known, wraps)
            if condition is None or then is None or orelse is None:
                return None
            return choose(condition, then, orelse)
        case _:
            return None


def _arithmetic(op: str, a: Index, b: Index) -> Index | None:
    table = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "div": lambda: floordiv(a, b),
        "mod": lambda: mod(a, b),
        "min": lambda: minimum(a, b),
        "max": lambda: maximum(a, b),
    }
    return table[op]() if op in table else None


def exact_value(e: Index) -> Expr:
    """As a side of a comparison: nothing of it wraps (LANGUAGE E4)."""
    known = e.as_int()
    return IndexValue(e, DType.INT64) if known is None else Const(known, DType.INT64)


def as_condition(e: Expr) -> Condition | None:
    """`e` (bool) as a condition on indices and sizes, or None if it depends on data, or on values
    that may wrap."""
    match e:
        case Const(value, DType.BOOL):
            return TRUE if value else FALSE
        case Compare(op, a, b):
            left, right = as_index(a, wraps=True), as_index(b, wraps=True)
            return None if left is None or right is None else _comparison(op, left, right)
        case Unary("not", x, _):
            inner = as_condition(x)
            return None if inner is None else negate(inner)
        case Binary("and" | "or" | "bitand" | "bitor" as op, a, b, DType.BOOL):
            parts = [c for c in (as_condition(a), as_condition(b)) if c is not None]
            if len(parts) < 2:
                return None
            return all_of(parts) if op in ("and", "bitand") else any_of(parts)
        case _:
            return None


def _comparison(op: str, a: Index, b: Index) -> Condition:
    table = {
        "lt": lambda: lt(a, b),
        "le": lambda: ge(b, a),
        "gt": lambda: lt(b, a),
        "ge": lambda: ge(a, b),
        "eq": lambda: eq(a, b),
        "ne": lambda: negate(eq(a, b)),
    }
    return table[op]()


def implied_condition(e: Expr, holds: bool) -> Condition:
    """The affine part of what is known where `e` is true (`holds`) or false: a weaker condition."""
    whole = as_condition(e)
    if whole is not None:
        return whole if holds else negate(whole)
    match e:
        case Binary("and" | "bitand", a, b, DType.BOOL) if holds:
            return all_of((implied_condition(a, True), implied_condition(b, True)))
        case Binary("or" | "bitor", a, b, DType.BOOL) if not holds:
            return all_of((implied_condition(a, False), implied_condition(b, False)))
        case Unary("not", x, _):
            return implied_condition(x, not holds)
        case (
            Binary()
            | Unary()
            | Const()
            | IndexValue()
            | Read()
            | Cast()
            | Compare()
            | Select()
            | Call()
        ):
            return TRUE
