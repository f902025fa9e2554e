"""A product <-> its factors from left to right."""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.frontend.program import Binary, BinaryOp, Const, Expr, Unary, dtype_of

Factors = Sequence[tuple[BinaryOp, Expr]]  # `mul` above the line, `div` below it


def flattened(v: Expr) -> list[tuple[BinaryOp, Expr]]:
    """The factors of `v`; a sign goes to the first of its product."""
    match v:
        case Binary("mul", a, b) if not v.exact:
            return flattened(a) + flattened(b)
        case Binary("div", a, b) if not v.exact:
            return [*flattened(a), ("div", b)]
        case Unary("neg", a, t):
            (op, first), *rest = flattened(a)
            return [(op, Unary("neg", first, t)), *rest]
        case _:
            return [("mul", v)]


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
