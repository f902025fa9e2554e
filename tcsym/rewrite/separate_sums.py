# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which a sum chosen by a short index is a sum for each of its values.

Products of complex numbers, stored as pairs, are written with a choice,
`C(i,j,c) +=! c == 0 ? A(i,k,0)*B(k,j,0) - A(i,k,1)*B(k,j,1) : ...`. Asked at every point, it hides
that each arm is a sum of products of matrices.
"""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import (
    Expr,
    For,
    If,
    Item,
    Program,
    Range,
    Select,
    Statement,
    reads,
    subexpressions,
)
from tcsym.index.expr import FALSE, TRUE, ZERO, condition_variables, index, var
from tcsym.index.values import substitute
from tcsym.ir.loops import Value
from tcsym.ir.traverse import map_value, substitute_value
from tcsym.sizes.context import decided

MOST_VALUES = 4  # each is a loop nest to compile


def separate_sums(program: Program) -> Program:
    """Sums of numbers that only constants choose between stay as they are."""
    body = tuple(y for x in program.body for y in _separated(x))
    return program if body == program.body else replace(program, body=body)


def _separated(item: Item) -> tuple[Item, ...]:
    match item:
        case For():
            body = tuple(y for x in item.body for y in _separated(x))
            return (replace(item, body=body),)
        case If():
            then = tuple(y for x in item.then for y in _separated(x))
            orelse = tuple(y for x in item.orelse for y in _separated(x))
            return (replace(item, then=then, orelse=orelse),)
        case _:
            chosen = _choosing(item)
            return (item,) if chosen is None else tuple(_sums(item, chosen))


def _choosing(s: Statement) -> Range | None:
    """The short index that alone tells which arm of some choice is summed."""
    if s.scattered or not s.is_box or not any(r.reduced for r in s.domain):
        return None
    if any(r.tensor == s.target for r in reads(s.value)):
        return None
    short = {r.variable: r for r in s.domain if _count(r) and var(r.variable) in s.subscripts}
    for x in subexpressions(s.value):
        if isinstance(x, Select) and (reads(x.then) or reads(x.orelse)):
            used = _asked(x)
            if len(used) == 1 and used <= short.keys():
                return short[next(iter(used))]
    return None


def _count(r: Range) -> int:
    """How many values the index has, if they are known and few; else 0."""
    n = (r.upper - r.lower).as_int()
    return n if n is not None and 2 <= n <= MOST_VALUES and r.lower == ZERO else 0


def _asked(x: Select) -> frozenset[str]:
    condition = as_condition(x.condition)
    return frozenset() if condition is None else condition_variables(condition)


def _sums(s: Statement, r: Range) -> list[Statement]:
    domain = tuple(x for x in s.domain if x is not r)
    return [
        replace(
            s,
            name=f"{s.name}.{k}",
            subscripts=tuple(substitute(i, {r.variable: index(k)}) for i in s.subscripts),
            domain=domain,
            value=_at(s.value, r.variable, k),
            exists=tuple(_at(x, r.variable, k) for x in s.exists),
        )
        for k in range(_count(r))
    ]


def _at(e: Expr, variable: str, k: int) -> Expr:
    """`e` where the index is k: choices that this decides are made."""
    return cast(Expr, map_value(substitute_value(e, {variable: index(k)}), _decided, lambda i: i))


def _decided(v: Value) -> Value:
    condition = as_condition(v.condition) if isinstance(v, Select) else None
    if not isinstance(v, Select) or condition is None:
        return v
    known = decided(condition, {})
    return v.then if known == TRUE else v.orelse if known == FALSE else v
