# SPDX-License-Identifier: Apache-2.0
"""A product <-> its factors from left to right."""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.frontend.program import Binary, BinaryOp, Const, Expr, Unary, dtype_of
from tcsym.trees import fold

Factors = Sequence[tuple[BinaryOp, Expr]]  # `mul` above the line, `div` below it


def flattened(v: Expr) -> list[tuple[BinaryOp, Expr]]:
    """The factors of `v`; a sign goes to the first of its product."""
    return fold(v, _factored, _flattened)


def _factored(v: Expr) -> tuple[Expr, ...]:
    match v:
        case Binary("mul", a, b) if not v.exact:
            return a, b
        case Binary("div", a) if not v.exact:
            return (a,)
        case Unary("neg", a):
            return (a,)
    return ()


def _flattened(v: Expr, parts: list[list[tuple[BinaryOp, Expr]]]) -> list[tuple[BinaryOp, Expr]]:
    match v, parts:
        case Binary("mul"), [a, b]:
            a += b
        case Binary(_, _, divisor), [a]:
            a.append(("div", divisor))
        case Unary(_, _, dtype), [a]:
            op, first = a[0]
            a[0] = op, Unary("neg", first, dtype)
        case _:
            return [("mul", v)]
    return a


def product(factors: Factors) -> Expr:
    """Those above the line, over those below it one by one."""
    above = [value for op, value in factors if op == "mul"]
    below = [value for op, value in factors if op == "div"]
    if not above:
        above = [Const(1.0, dtype_of(below[0]))]
    value = above[0]
    for x in above[1:]:
        value = Binary("mul", value, x, dtype_of(value))
    for x in below:
        value = Binary("div", value, x, dtype_of(value))
    return value
