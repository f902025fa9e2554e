# SPDX-License-Identifier: Apache-2.0
"""Reduction, variable -> values of padding that make each term beyond its range the identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from tcsym.frontend.program import (
    Binary,
    Cast,
    Const,
    Expr,
    Program,
    Range,
    Read,
    Select,
    Statement,
    Unary,
    children,
    reads,
)
from tcsym.index.expr import var
from tcsym.ir.loops import ReduceOp
from tcsym.polyhedral.scop import REDUCE_OPS, identity
from tcsym.trees import fold
from tcsym.types import DType

Fill = int | float
_EXTREMES: tuple[ReduceOp, ...] = ("min", "max")  # a negated term needs the other one's
_MOST_INPUTS = 4  # whose values are tried in all combinations


def fills_that_cancel(
    program: Program, s: Statement, r: Range, given: Mapping[str, Fill]
) -> dict[str, Fill] | None:
    """Input -> value of its padding, such that each term of `s` at `r.variable` >= the true end of
    `r` is the identity of its operator. `given` values are kept. None: there are none.
    """
    if s.op == "=":
        return None
    op = REDUCE_OPS[s.op]
    want = identity(op, program.tensor(s.target).dtype)
    beyond = {x.tensor: x.dtype for x in reads(s.value) if _lies_beyond(program, x, r)}
    if len(beyond) > _MOST_INPUTS:
        return None
    choices = [_candidates(op, name, dtype, given) for name, dtype in beyond.items()]
    for values in product(*choices):
        fill = dict(zip(beyond, values))
        if _is_constant(_value(program, s.value, r, fill), want):
            return fill
    return None


def _candidates(op: ReduceOp, name: str, dtype: DType, given: Mapping[str, Fill]) -> Sequence[Fill]:
    if name in given:
        return (given[name],)
    extremes = [identity(o, dtype) for o in _EXTREMES] if op in _EXTREMES else []
    return tuple(dict.fromkeys((0, identity(op, dtype), 1, *extremes)))


def _lies_beyond(program: Program, x: Read, r: Range) -> bool:
    """True if `x` reads padding of an input wherever `r.variable` is beyond its true range."""
    t = program.tensor(x.tensor)
    if t.role != "input":
        return False
    return any(s == var(r.variable) and t.shape[d] == r.upper for d, s in enumerate(x.subscripts))


def _is_constant(value: Fill | None, want: Fill) -> bool:
    return value is not None and value == want


def _value(program: Program, e: Expr, r: Range, fill: Mapping[str, Fill]) -> Fill | None:
    """The value of `e` at all points beyond; None: not known to be one value.

    An unknown operand may be infinite or NaN, so only integers are cancelled by a zero factor.
    """

    def of(x: Expr, parts: list[Fill | None]) -> Fill | None:
        match x, parts:
            case Const(value, _), _:
                return value
            case Read(tensor), _:
                return fill[tensor] if _lies_beyond(program, x, r) else None
            case Cast(_, dtype), [inner]:
                return inner if inner is not None and _survives(inner, dtype) else None
            case Unary("neg", _, dtype), [inner]:
                return -inner if inner is not None and _survives(-inner, dtype) else None
            case Binary(), [a, b]:
                return _binary(x, a, b)
            case Select(), [a, b]:
                return a if {a} == {b} else None
            case _:
                return None

    return fold(e, _valued, of)


def _valued(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Cast() | Unary() | Binary():
            return children(e)
        case Select(_, a, b):
            return a, b
    return ()


def _binary(e: Binary, a: Fill | None, b: Fill | None) -> Fill | None:
    if e.op == "mul" and 0 in (a, b) and not e.dtype.is_float:
        return 0
    if a is None or b is None or e.dtype is DType.BOOL:
        return None
    match e.op:
        case "add":
            value = a + b
        case "sub":
            value = a - b
        case "mul":
            value = a * b
        case "min":
            value = min(a, b)
        case "max":
            value = max(a, b)
        case _:
            return None
    return value if _survives(value, e.dtype) else None


def _survives(value: Fill, dtype: DType) -> bool:
    """True if `dtype` has the value exactly: small integers, and infinities of floating types."""
    if value in (float("inf"), float("-inf")):
        return dtype.is_float
    if value != value or value != int(value):
        return False
    if dtype is DType.BOOL:
        return value in (0, 1)
    return abs(value) <= 1 if dtype.is_float else dtype.lowest <= value <= dtype.highest
