# SPDX-License-Identifier: Apache-2.0
"""What the derivative of `min= max= *=` needs beside their results: who won, and which are zero."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tcsym.differentiate.accumulate import Tensors
from tcsym.differentiate.algebra import (
    TRUTH,
    both,
    constant,
    converted,
    divide,
    index_value,
    multiply,
    positions,
    select,
)
from tcsym.differentiate.names import Names
from tcsym.errors import DerivativeError
from tcsym.frontend.program import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Range,
    Read,
    Statement,
    Tensor,
    dtype_of,
)
from tcsym.index.expr import ONE, ZERO, Index, index, var
from tcsym.types import DType

_MOST = (1 << 31) - 1  # no index is this large
_PAIR = index(1 << 32)


class Witness(Struct, frozen=True):
    """`statements` belong behind the reduction; a term gets `share` of the result's gradient.

    winner: where the one term is that has all of it: summed variable -> its value. exists: whether
    there is one.
    """

    statements: tuple[Statement, ...]
    share: Expr
    winner: Mapping[str, Expr] = {}
    exists: Expr = TRUTH


def witness(s: Statement, tensors: Tensors, names: Names, again: bool) -> Witness:
    """again: terms are not to be compared with the result, but with what they give here."""
    return _product(s, tensors, names) if s.op == "*=" else _winner(s, tensors, names, again)


def _winner(s: Statement, tensors: Tensors, names: Names, again: bool) -> Witness:
    """The first term that is the result, counted in the order of the summed variables."""
    t, before = tensors[s.target], tuple[Statement, ...]()
    if again:
        t = replace(t, name=names.fresh(f"{t.name}_again"), role="temporary")
        tensors[t.name], before = t, (replace(s, target=t.name),)
    rank, end = _in_a_byte(s, *_rank(s))
    won = Tensor(names.fresh(f"{s.target}_at"), dtype_of(rank), t.shape, "temporary")
    tensors[won.name] = won
    is_result = Compare("eq", converted(s.value, t.dtype), Read(t.name, positions(s), t.dtype))
    found = replace(s, target=won.name, op="min=", value=select(is_result, rank, end))
    one, zero = constant(1.0, t.dtype.accumulator), constant(0.0, t.dtype.accumulator)
    at = Read(won.name, positions(s), won.dtype)
    share = select(Compare("eq", rank, at), one, zero)
    return Witness((*before, found), share, _winner_of(s, at), Compare("lt", at, end))


def _winner_of(s: Statement, at: Expr) -> dict[str, Expr]:
    """Values of the summed variables, where one won; {} if positions are read from tensors.

    Of ranges that are numbers, values are within these where none won, too: then it can be seen
    that positions are inside.
    """
    reduced = [r for r in s.domain if r.reduced]
    if s.scattered:
        return {}
    at = converted(at, dtype_of(at) if dtype_of(at) is DType.INT64 else DType.INT32)
    counts = [(r.upper - r.lower).as_int() for r in reduced]
    if all(r.lower.as_int() is not None for r in reduced) and all(counts):
        last = prod([n for n in counts if n]) - 1 + (reduced[0].lower if len(counts) == 1 else ZERO)
        at = Binary("min", at, converted(index_value(last), dtype_of(at)), dtype_of(at))
    if len(reduced) == 1:
        r = reduced[0]
        return {r.variable: index_value(r.lower) if counts == [1] else at}
    if not s.is_box:
        first, second = reduced
        return {first.variable: _part("div", at, _PAIR), second.variable: _part("mod", at, _PAIR)}
    found: dict[str, Expr] = {}
    for r in reversed(reduced):
        n = r.upper - r.lower
        if n == ONE:
            found[r.variable] = index_value(r.lower)
            continue
        value = at if r is reduced[0] else _part("mod", at, n)
        at = _part("div", at, n)
        lower = converted(index_value(r.lower), dtype_of(at))
        is_zero = r.lower == ZERO
        found[r.variable] = value if is_zero else Binary("add", value, lower, dtype_of(at))
    return found


def _part(op: Literal["div", "mod"], rank: Expr, n: Index) -> Expr:
    return Binary(op, rank, converted(index_value(n), dtype_of(rank)), dtype_of(rank))


def _in_a_byte(s: Statement, rank: Expr, end: Expr) -> tuple[Expr, Expr]:
    """Both in the type of least memory, if ranges are numbers and these numbers fit: as many of
    them lie in a vector as of bytes, and a byte is never negative."""
    lowers = [r.lower.as_int() for r in s.domain if r.reduced]
    if len(lowers) == 1 and (lowers[0] is None or lowers[0] < 0):
        return rank, end
    if not isinstance(end, Const) or not 0 <= end.value <= DType.UINT8.highest:
        return rank, end
    return Cast(rank, DType.UINT8), Const(end.value, DType.UINT8)


def _rank(s: Statement) -> tuple[Expr, Expr]:
    """The number of a term among those of an element, and a number beyond all of them."""
    reduced = [r for r in s.domain if r.reduced]
    if len(reduced) == 1:
        (r,) = reduced
        end = Const(_MOST, DType.INT32) if s.given else index_value(r.upper)
        return index_value(var(r.variable)), end
    if not s.is_box:
        return _pair(s, reduced)
    strides: list[Index] = [ONE]
    for r in reversed(reduced):
        strides.insert(0, strides[0] * (r.upper - r.lower))
    if strides[0].is_constant:
        parts = [(var(r.variable) - r.lower) * n for r, n in zip(reduced, strides[1:])]
        return index_value(sum(parts[1:], parts[0])), index_value(strides[0])
    rank: Expr = Const(0, DType.INT64)
    size: Expr = Const(1, DType.INT64)
    for r in reduced:
        n = _long(r.upper - r.lower)
        rank = Binary(
            "add",
            Binary("mul", rank, n, DType.INT64),
            _long(var(r.variable) - r.lower),
            DType.INT64,
        )
        size = Binary("mul", size, n, DType.INT64)
    return rank, size


def _pair(s: Statement, reduced: list[Range]) -> tuple[Expr, Expr]:
    """Ranges that depend on others say no strides: each variable has 32 bits."""
    if len(reduced) != 2:
        message = f"`{s.target}` is the largest or least over more than two variables, whose "
        message += "ranges use others or read tensors"
        raise DerivativeError(message, span=s.span, hint="reduce in several statements")
    a, b = (_long(var(r.variable)) for r in reduced)
    first = Binary("mul", a, converted(index_value(_PAIR), DType.INT64), DType.INT64)
    return Binary("add", first, b, DType.INT64), Const((1 << 63) - 1, DType.INT64)


def _long(e: Index) -> Expr:
    known = e.as_int()
    if known is not None:
        return Const(known, DType.INT64)
    return Cast(IndexValue(e, DType.INT32), DType.INT64)


def _product(s: Statement, tensors: Tensors, names: Names) -> Witness:
    """The product of the other terms: over this one, or of all that are not the only zero."""
    t = tensors[s.target]
    term = converted(s.value, t.dtype)
    zero, one = constant(0.0, t.dtype), constant(1.0, t.dtype)
    is_zero = Compare("eq", term, zero)
    count = Tensor(names.fresh(f"{s.target}_zeros"), DType.INT32, t.shape, "temporary")
    rest = Tensor(names.fresh(f"{s.target}_rest"), t.dtype, t.shape, "temporary")
    tensors[count.name], tensors[rest.name] = count, rest
    ones = [Const(k, DType.INT32) for k in (0, 1)]
    counted = replace(s, target=count.name, op="+=", value=select(is_zero, ones[1], ones[0]))
    others = replace(s, target=rest.name, value=select(is_zero, one, term))
    zeros = Read(count.name, positions(s), DType.INT32)
    product: Expr = Read(rest.name, positions(s), t.dtype)
    product = converted(product, t.dtype.accumulator)
    none = constant(0.0, t.dtype.accumulator)
    alone = both(Compare("eq", zeros, ones[1]), is_zero)
    share = select(
        Compare("eq", zeros, ones[0]),
        divide(product, converted(term, t.dtype.accumulator)),
        select(alone, product, none),
    )
    return Witness((counted, others), share)


def shared(gradient: Expr, share: Expr) -> Expr:
    return multiply(share, gradient)
