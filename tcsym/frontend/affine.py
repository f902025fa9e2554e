# SPDX-License-Identifier: Apache-2.0
"""Typed expression -> exact index expression or condition, where it is one.

Guards (LANGUAGE C7) and schedules use the affine part of a condition; what depends on data is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

from tcsym.frontend.program import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    Select,
    Unary,
    dtype_of,
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
from tcsym.trees import fold
from tcsym.types import DType

NOTHING: Mapping[Read, Index] = MappingProxyType({})


def as_index(e: Expr, known: Mapping[Read, Index] = NOTHING, wraps: bool = False) -> Index | None:
    """`e` as an exact integer expression, or None if it depends on data.

    known: what stands for some reads. wraps: or if it is computed in a type in which it may wrap,
    as what is no subscript, range or side of a comparison is (LANGUAGE E4).
    """

    def is_exact(x: Expr) -> bool:
        dtype = dtype_of(x)
        return dtype.is_integer and (not wraps or dtype is DType.INT64)

    def below(x: Expr) -> tuple[Expr, ...]:
        match x:
            case Unary("neg", a, _) if is_exact(x):
                return (a,)
            case Binary(_, a, b) | Select(_, a, b) if is_exact(x):
                return a, b
        return ()

    def value(x: Expr, parts: list[Index | None]) -> Index | None:
        match x:
            case Const(number, dtype) if not dtype.is_float:
                return index(int(number))
            case (Read() as read) | Cast(Read() as read, DType.INT64):
                return known.get(read)
            case IndexValue(i, _) if is_exact(x):
                return i
        whole = [i for i in parts if i is not None]
        return _of_parts(x, whole) if parts and len(whole) == len(parts) else None

    return fold(e, below, value)


def _of_parts(e: Expr, parts: list[Index]) -> Index | None:
    match e:
        case Unary():
            return -parts[0]
        case Binary(op):
            return _arithmetic(op, *parts)
        case Select(c):
            condition = as_condition(c)
            return None if condition is None else choose(condition, *parts)
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
    return Meanings().of(e).whole


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
    return Meanings().of(e).known(holds)


class Meaning(Struct, frozen=True):
    """Of a bool expression. `whole`: it is this condition on indices and sizes; if it is none, what
    of such is known where it is `true`, and where it is `false`."""

    whole: Condition | None = None
    true: Condition = TRUE
    false: Condition = TRUE

    def known(self, holds: bool) -> Condition:
        if self.whole is None:
            return self.true if holds else self.false
        return self.whole if holds else negate(self.whole)


class Meanings(Struct):
    """`found` for expressions by their identity, each once: of a chain, all that it begins with may
    be asked for."""

    found: dict[int, tuple[Expr, Meaning]] = field(default_factory=dict)

    def of(self, e: Expr) -> Meaning:
        return fold(e, self._below, self._value)

    def _below(self, e: Expr) -> tuple[Expr, ...]:
        return () if id(e) in self.found else _conditions(e)

    def _value(self, e: Expr, parts: list[Meaning]) -> Meaning:
        if id(e) not in self.found:
            self.found[id(e)] = e, _meaning(e, parts)
        return self.found[id(e)][1]


def _conditions(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Unary("not", x, _):
            return (x,)
        case Binary("and" | "or" | "bitand" | "bitor", a, b, DType.BOOL):
            return a, b
    return ()


def _meaning(e: Expr, parts: list[Meaning]) -> Meaning:
    match e:
        case Const(value, DType.BOOL):
            return Meaning(TRUE if value else FALSE)
        case Compare(op, a, b):
            left, right = as_index(a, wraps=True), as_index(b, wraps=True)
            if left is not None and right is not None:
                return Meaning(_comparison(op, left, right))
        case Unary("not"):
            (inner,) = parts
            if inner.whole is None:
                return Meaning(None, inner.false, inner.true)
            return Meaning(negate(inner.whole))
        case Binary("and" | "bitand", dtype=DType.BOOL):
            wholes = [x.whole for x in parts if x.whole is not None]
            if len(wholes) == 2:
                return Meaning(all_of(wholes))
            return Meaning(None, true=all_of([x.known(True) for x in parts]))
        case Binary("or" | "bitor", dtype=DType.BOOL):
            wholes = [x.whole for x in parts if x.whole is not None]
            if len(wholes) == 2:
                return Meaning(any_of(wholes))
            return Meaning(None, false=all_of([x.known(False) for x in parts]))
    return Meaning()
