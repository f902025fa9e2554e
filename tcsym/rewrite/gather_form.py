# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which affine scattered subscripts are left indices of their own.

`O(S*i + k) +=! X(i)*W(k)` adds each term to one element. The access is inverted: i is what solves
S*i + k == p, so each element gathers its terms, `O(p) +=! X((p-k)/S)*W(k)` where S divides p - k
and the quotient is in the range of i. That is a transposed convolution as one would write it: its
schedule splits the residues and the guards. A position that no summed index can be solved for stays
scattered (`A(i,i+1) +=! X(i)`), as do those that read tensors.
"""

from __future__ import annotations

from functools import reduce
from typing import cast

from msgspec.structs import replace

from tcsym.frontend.infer_forms import split
from tcsym.frontend.program import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    If,
    IndexValue,
    Item,
    Program,
    Range,
    Select,
    Statement,
    dtype_of,
)
from tcsym.index.expr import ONE, ZERO, Index, floordiv, mod, var
from tcsym.index.values import substitute
from tcsym.ir.traverse import substitute_value
from tcsym.polyhedral.scop import REDUCE_OPS, identity
from tcsym.types import DType


def gather_form(program: Program) -> Program:
    body = tuple(_item(x, program) for x in program.body)
    return program if body == program.body else replace(program, body=body)


def _item(item: Item, program: Program) -> Item:
    match item:
        case For():
            return replace(item, body=tuple(_item(x, program) for x in item.body))
        case If():
            then = tuple(_item(x, program) for x in item.then)
            return replace(item, then=then, orelse=tuple(_item(x, program) for x in item.orelse))
        case _:
            return _gathered(item, program)


def _gathered(s: Statement, program: Program) -> Statement:
    for p in s.scattered if s.is_box else ():
        solved = _solvable(s, p)
        if solved is not None:
            return _gathered(_inverted(s, p, solved, program), program)
    return s


def _solvable(s: Statement, p: Range) -> Range | None:
    """The summed index to solve for: that of the greatest factor leaves the fewest points."""
    if not isinstance(p.at, Index):
        return None
    found: list[tuple[int, Range]] = []
    for r in s.domain:
        parts = split(p.at, r.variable) if r.reduced else None
        if parts is None or parts[0] == ZERO or _is_used_by_ranges(s, r):
            continue
        factor = parts[0].as_int()
        found.append((-1 if factor is None else abs(factor), r))
    symbolic = [r for factor, r in found if factor < 0]
    return symbolic[0] if symbolic else max(found, key=lambda x: x[0], default=(0, None))[1]


def _is_used_by_ranges(s: Statement, r: Range) -> bool:
    return any(r.variable in x.lower.variables() | x.upper.variables() for x in s.domain)


def _inverted(s: Statement, p: Range, r: Range, program: Program) -> Statement:
    """`s` with p as a left index, and r as what p and the others make it."""
    assert isinstance(p.at, Index)
    parts = split(p.at, r.variable)
    assert parts is not None
    factor, rest = parts
    n = factor.as_int()
    moved = (var(p.variable) - rest) * (-1 if n is not None and n < 0 else 1)
    step = factor if n is None or n > 0 else -factor
    solved = {r.variable: moved if step == ONE else floordiv(moved, step)}
    first, last = r.lower * step, (r.upper - 1) * step
    guards = [_compared("ge", moved, first), _compared("le", moved, last)]
    if step != ONE:
        guards.insert(0, _compared("eq", mod(moved, step), ZERO))
    test = reduce(lambda a, b: Binary("and", a, b, DType.BOOL), guards)
    dtype = program.tensor(s.target).dtype.accumulator
    value = _at(s.value, solved)
    if dtype_of(value) is not dtype:
        value = Cast(value, dtype)
    neutral = Const(identity(REDUCE_OPS[s.op], dtype), dtype)
    return replace(
        s,
        domain=tuple(_range(x, p, solved) for x in s.domain if x is not r),
        value=Select(test, value, neutral, dtype),
        exists=tuple(_guarded(test, _at(e, solved)) for e in s.exists),
    )


def _range(x: Range, p: Range, solved: dict[str, Index]) -> Range:
    if x is p:
        return replace(p, at=None)
    if x.at is None:
        return x
    at = substitute(x.at, solved) if isinstance(x.at, Index) else _at(x.at, solved)
    return replace(x, at=at)


def _at(e: Expr, values: dict[str, Index]) -> Expr:
    return cast(Expr, substitute_value(e, values))


def _guarded(test: Expr, e: Expr) -> Expr:
    dtype = dtype_of(e)
    return Select(test, e, Const(0, dtype), dtype)


def _compared(op: str, a: Index, b: Index) -> Expr:
    return Compare(op, IndexValue(a - b, DType.INT64), Const(0, DType.INT64))  # type: ignore[arg-type]
