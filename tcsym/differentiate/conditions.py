# SPDX-License-Identifier: Apache-2.0
"""Conditions on indices as values: which of them hold in a box, and what is left of choices."""

from __future__ import annotations

from collections.abc import Mapping

from tcsym.differentiate.algebra import TRUTH, both, select
from tcsym.differentiate.places import is_at_least
from tcsym.frontend.program import Binary, Compare, Const, Expr, IndexValue, Select
from tcsym.index.expr import All, Condition, Index, NonNegative, index
from tcsym.trees import preorder
from tcsym.types import DType


def index_condition(c: Expr) -> NonNegative | None:
    match c:
        case Compare("ge" | "gt" | "le" | "lt" as op, a, b):
            left, right = index_of(a), index_of(b)
            if left is None or right is None:
                return None
            difference = left - right if op in ("ge", "gt") else right - left
            return NonNegative(difference - (op in ("gt", "lt")))
    return None


def parts_of(c: Condition) -> list[NonNegative]:
    parts = c.conditions if isinstance(c, All) else (c,)
    return [x for x in parts if isinstance(x, NonNegative)]


def simplified(e: Expr, bounds: Mapping[str, tuple[Index, Index]]) -> Expr:
    """`e` without conditions of its outermost choice that hold in the box of `bounds`."""
    if not isinstance(e, Select):
        return e
    kept: Expr = TRUTH
    for c in conjuncts(e.condition):
        if not holds(c, bounds):
            kept = both(kept, c)
    return select(kept, e.then, e.orelse)


def conjuncts(e: Expr) -> list[Expr]:
    found = [x for x in preorder(e, _sides) if not _sides(x)]
    return list(dict.fromkeys(found))


def _sides(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Binary("and", a, b, DType.BOOL):
            return a, b
    return ()


def holds(c: Expr, bounds: Mapping[str, tuple[Index, Index]]) -> bool:
    match c:
        case Compare("eq", a, b):
            left, right = index_of(a), index_of(b)
            return left is not None and left == right
        case Compare("ge" | "gt" | "le" | "lt" as op, a, b):
            left, right = index_of(a), index_of(b)
            if left is None or right is None:
                return False
            difference = left - right if op in ("ge", "gt") else right - left
            return is_at_least(difference, 1 if op in ("gt", "lt") else 0, bounds)
    return c == TRUTH


def index_of(e: Expr) -> Index | None:
    match e:
        case IndexValue(i, _):
            return i
        case Const(int() as n, dtype) if dtype.is_integer:
            return index(n)
    return None
