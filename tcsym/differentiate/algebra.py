# SPDX-License-Identifier: Apache-2.0
"""Expressions of derivatives: made with constants folded, changed in indices and reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, assert_never

from msgspec.structs import replace

from tcsym.frontend.affine import exact_value
from tcsym.frontend.literals import round_to
from tcsym.frontend.positions import position_parts
from tcsym.frontend.program import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    Select,
    Statement,
    Unary,
    dtype_of,
    rewritten,
)
from tcsym.frontend.rename import Kind, Rewriting
from tcsym.index.expr import (
    All,
    Any_,
    Condition,
    Index,
    IsZero,
    NonNegative,
    Not,
    var,
)
from tcsym.index.values import substitute
from tcsym.types import DType

TRUTH = Const(1, DType.BOOL)
FALSEHOOD = Const(0, DType.BOOL)
Subscript = Index | Expr


def constant(value: float, dtype: DType) -> Const:
    """The nearest that the type has."""
    return Const(round_to(value, dtype.accumulator) if dtype.is_float else value, dtype)


def is_constant(e: Expr, value: float) -> bool:
    return isinstance(e, Const) and e.value == value and e.dtype is not DType.BOOL


def add(a: Expr, b: Expr) -> Expr:
    if is_constant(a, 0):
        return b
    if is_constant(b, 0):
        return a
    match b:
        case Unary("neg", x, _):
            return subtract(a, x)
        case Binary("sub", x, y, dtype) if is_constant(x, 0):
            return Binary("sub", a, y, dtype)
    return Binary("add", a, b, dtype_of(a))


def subtract(a: Expr, b: Expr) -> Expr:
    if is_constant(b, 0):
        return a
    if is_constant(a, 0):
        return negative(b)
    match b:
        case Unary("neg", x, _):
            return add(a, x)
    return Binary("sub", a, b, dtype_of(a))


def negative(a: Expr) -> Expr:
    match a:
        case Const(value, dtype) if dtype.is_float:
            return Const(-value, dtype)
        case Unary("neg", x, _):
            return x
        case Binary("sub", x, y, dtype) if dtype.is_float:
            return Binary("sub", y, x, dtype)
        case Binary("mul" | "div" as op, x, y, dtype) if isinstance(x, Unary | Const):
            return Binary(op, negative(x), y, dtype)
    return Unary("neg", a, dtype_of(a))


def multiply(a: Expr, b: Expr) -> Expr:
    if is_constant(a, 0) or is_constant(b, 1):
        return a
    if is_constant(b, 0) or is_constant(a, 1):
        return b
    if is_constant(a, -1):
        return negative(b)
    if is_constant(b, -1):
        return negative(a)
    match a, b:
        case Unary("neg", x, _), _:
            return negative(multiply(x, b))
        case _, Unary("neg", y, _):
            return negative(multiply(a, y))
        case Const(x, dtype), Const(y, _):
            return constant(x * y, dtype)
        case _, Binary("div", x, y, dtype) if is_constant(x, 1):
            return divide(a, y)
        case _, Select(c, Const() as x, Const() as y, dtype):
            return Select(c, multiply(a, x), multiply(a, y), dtype)
        case Select(c, Const() as x, Const() as y, dtype), _:
            return Select(c, multiply(x, b), multiply(y, b), dtype)
        case Select(c, x, y, dtype), _ if is_constant(y, 0):
            return Select(c, multiply(x, b), y, dtype)
    return Binary("mul", a, b, dtype_of(a))


def divide(a: Expr, b: Expr) -> Expr:
    if is_constant(a, 0) or is_constant(b, 1):
        return a
    match a:
        case Unary("neg", x, _):
            return negative(divide(x, b))
    return Binary("div", a, b, dtype_of(a))


def select(condition: Expr, a: Expr, b: Expr) -> Expr:
    if condition == TRUTH or a == b:
        return a
    if condition == FALSEHOOD:
        return b
    return Select(condition, a, b, dtype_of(a))


def both(a: Expr, b: Expr) -> Expr:
    if a == TRUTH or b == FALSEHOOD:
        return b
    if b == TRUTH or a == FALSEHOOD:
        return a
    return a if a == b else Binary("and", a, b, DType.BOOL)


def negation(a: Expr) -> Expr:
    opposite: Mapping[str, Literal["lt", "le", "gt", "ge", "eq", "ne"]]
    opposite = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
    match a:
        case Const(value, DType.BOOL):
            return FALSEHOOD if value else TRUTH
        case Unary("not", x, _):
            return x
        case Compare(op, x, y) if not dtype_of(x).is_float:  # NaN compares as false both ways
            return Compare(opposite[op], x, y)
    return Unary("not", a, DType.BOOL)


def converted(e: Expr, dtype: DType) -> Expr:
    if dtype_of(e) is dtype:
        return e
    if isinstance(e, Const):
        return constant(e.value, dtype)
    return Cast(e, dtype)


def wide(e: Expr) -> Expr:
    """`e` with half types computed in float32, and nothing rounded to them in between."""
    return rewritten(e, _wide)


def _wide(e: Expr, _: Expr) -> Expr:
    dtype = dtype_of(e).accumulator
    match e:
        case Cast(x, to) if to.is_float:
            return converted(x, dtype)
        case Read():
            return converted(e, dtype)
    return e if dtype_of(e) is dtype else replace(e, dtype=dtype)


def index_value(e: Index) -> Expr:
    known = e.as_int()
    return IndexValue(e, DType.INT32) if known is None else Const(known, DType.INT32)


def truth(c: Condition) -> Expr:
    """A condition on indices as a value."""
    match c:
        case NonNegative(i):
            left = Index(tuple((a, k) for a, k in i.terms if k > 0), max(i.constant, 0))
            right = Index(tuple((a, -k) for a, k in i.terms if k < 0), max(-i.constant, 0))
            if i.constant == -1 and left.terms:  # a >= b + 1
                right = Index(right.terms, 0)
                return Compare("gt", exact_value(left), exact_value(right))
            return Compare("ge", exact_value(left), exact_value(right))
        case IsZero(i):
            left = Index(tuple((a, k) for a, k in i.terms if k > 0), max(i.constant, 0))
            right = Index(tuple((a, -k) for a, k in i.terms if k < 0), max(-i.constant, 0))
            return Compare("eq", exact_value(left), exact_value(right))
        case Not(inner):
            return negation(truth(inner))
        case All(cs):
            joined = TRUTH if not cs else truth(cs[0])
            for x in cs[1:]:
                joined = both(joined, truth(x))
            return joined
        case Any_(cs):
            joined = FALSEHOOD if not cs else truth(cs[0])
            for x in cs[1:]:
                joined = Binary("or", joined, truth(x), DType.BOOL)
            return joined
        case _:
            assert_never(c)


def compared(e: Expr) -> Expr:
    """An exact integer as a side of a comparison, which widens none."""
    match e:
        case Cast(x, DType.INT64) if dtype_of(x).is_integer:
            return x
    return e


def exactly(e: Expr) -> Expr:
    """An integer as a subscript has it: int64, of which nothing wraps."""
    match e:
        case Const(value):
            return Const(value, DType.INT64)
        case IndexValue(i):
            return IndexValue(i, DType.INT64)
        case Cast(x, DType.INT64) if dtype_of(x).is_integer and not isinstance(x, Cast):
            return exactly(x)
        case Binary("add" | "sub" | "mul" | "div" | "mod" | "min" | "max", a, b):
            return replace(e, left=exactly(a), right=exactly(b), dtype=DType.INT64, exact=True)
        case Unary("neg", x):
            return Binary("sub", Const(0, DType.INT64), exactly(x), DType.INT64, True)
        case Select(c, a, b):
            return Select(c, exactly(a), exactly(b), DType.INT64)
    if dtype_of(e) is DType.INT64 or not dtype_of(e).is_integer:
        return e
    return Cast(e, DType.INT64, exact=dtype_of(e) is DType.UINT64)


# ---- rebuilding


class Substituting(Rewriting):
    """With variables replaced everywhere."""

    def __init__(self, values: Mapping[str, Index]) -> None:
        self.values = values

    def index(self, e: Index) -> Index:
        return substitute(e, self.values)


def with_indices(e: Expr, values: Mapping[str, Index]) -> Expr:
    """`e` with variables replaced everywhere."""
    return Substituting(values).expression(e) if values else e


class _Replacing(Rewriting):
    def __init__(self, f: Callable[[Read], Expr]) -> None:
        self.f = f

    def expression(self, e: Expr) -> Expr:
        return with_reads(e, self.f)


def reads_replaced(item: Kind, f: Callable[[Read], Expr]) -> Kind:
    """A statement with what `f` has for each read, those of positions and ranges, too."""
    return _Replacing(f).items((item,))[0]


def with_reads(e: Expr, f: Callable[[Read], Expr]) -> Expr:
    """`e` with what `f` has for each read; reads in its subscripts come first."""

    return rewritten(e, lambda x, _: f(x) if isinstance(x, Read) else x)


def positions(s: Statement) -> tuple[Subscript, ...]:
    """Where each point of a statement writes: scattered subscripts by what they are."""
    scattered = {r.variable: position_parts(r.at)[1] for r in s.domain if r.at is not None}
    found: list[Subscript] = []
    for e in s.subscripts:
        at = next((at for v, at in scattered.items() if e == var(v)), None)
        found.append(e if at is None else at)
    return tuple(found)
