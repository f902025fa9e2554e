# SPDX-License-Identifier: Apache-2.0
"""Scattered subscripts of terms that add nothing where a condition does not hold (LANGUAGE F4).

`dT(id(b,l), d) +=! l < len(b) ? dY(b,d) : 0.0` has a position only where l < len(b): elsewhere the
term is the identity of `+=`, so that no element gets anything, and none need be there. In a program
such a position is a choice whose other arm is `NO_POSITION`.
"""

from __future__ import annotations

from tcsym.frontend.interpret_values import identity
from tcsym.frontend.program import (
    NO_POSITION,
    AssignOp,
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
)
from tcsym.index.expr import Index
from tcsym.types import DType


def adding(op: AssignOp, term: Expr, dtype: DType) -> Expr | None:
    """The condition under which a term changes what it is accumulated into, as far as its outermost
    choices say; None: it always may. dtype: of the target."""
    if op == "=":
        return None
    match term:
        case Cast(x) if op in ("+=", "*="):
            return adding(op, x, dtype)
        case Select(c, x, other) if _is_identity(op, other, dtype):
            return _both(c, adding(op, x, dtype))
        case Select(c, other, x) if _is_identity(op, other, dtype):
            return _both(Unary("not", c, DType.BOOL), adding(op, x, dtype))
    return None


def _is_identity(op: AssignOp, e: Expr, dtype: DType) -> bool:
    if not isinstance(e, Const):
        return False
    is_same = op in ("+=", "*=") or e.dtype is dtype
    return is_same and e.value == identity(op, dtype)


def _both(a: Expr, b: Expr | None) -> Expr:
    return a if b is None else Binary("and", a, b, DType.BOOL)


def position_if(condition: Expr | None, at: Expr) -> Expr:
    """A position that there is only where the condition holds."""
    return at if condition is None else Select(condition, at, NO_POSITION, DType.INT64)


def position_parts(at: Index | Expr) -> tuple[Expr | None, Index | Expr]:
    """The condition under which there is a position, None if there always is, and the position."""
    match at:
        case Select(condition, place, other) if other == NO_POSITION:
            return condition, place
    return None, at
