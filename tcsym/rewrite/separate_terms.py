# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which a sum of several products is a sum of each.

`Y(i) += A(i,k)*B(k) + C(i,k)*D(k)` is a product, a product with a sum, and a sum; as two statements
it is two products with sums, and each is a contraction of two operands, with a guard of its own.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import (
    Binary,
    Const,
    Expr,
    For,
    If,
    Item,
    Program,
    Select,
    Statement,
    Unary,
    dtype_of,
    reads,
)
from tcsym.types import DType

MOST_PRODUCTS = 4  # each is a statement to schedule
WIDE = (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64)


def separate_terms(program: Program) -> Program:
    """Contract: the program is normalised. Terms of a sum are added in any order."""
    dtypes = {t.name: t.dtype for t in program.tensors}

    def separated(item: Item) -> tuple[Item, ...]:
        match item:
            case For():
                return (replace(item, body=all_of(item.body)),)
            case If():
                return (replace(item, then=all_of(item.then), orelse=all_of(item.orelse)),)
            case _:
                return _sums(item, dtypes[item.target])

    def all_of(items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(y for x in items for y in separated(x))

    body = all_of(program.body)
    return program if body == program.body else replace(program, body=body)


def _sums(s: Statement, dtype: DType) -> tuple[Statement, ...]:
    is_sum = s.op == "+=" and any(r.reduced for r in s.domain) and not s.scattered
    if not is_sum or dtype not in WIDE or dtype_of(s.value) is not dtype:
        return (s,)
    products = _products(s.value)
    if len(products) < 2 or any(r.tensor == s.target for r in reads(s.value)):
        return (s,)
    return tuple(
        replace(s, name=f"{s.name}.{k}", value=x, initialise=s.initialise and not k)
        for k, x in enumerate(products)
    )


def _products(v: Expr) -> list[Expr]:
    """Those that it is the sum of, from left to right; none if it is of others, or of many."""
    found, todo = list[Expr](), [(v, False)]
    while todo:
        x, is_less = todo.pop()
        if isinstance(x, Binary) and not x.exact and x.op in ("add", "sub"):
            todo += [(x.right, is_less != (x.op == "sub")), (x.left, is_less)]
        elif len(found) == MOST_PRODUCTS or not _is_product(x):
            return []
        else:
            found.append(_negated(x) if is_less else x)
    return found


def _is_product(v: Expr) -> bool:
    """Of two values that are read, or 0 where a condition says so."""
    if isinstance(v, Select):
        return isinstance(v.orelse, Const) and not v.orelse.value and _is_product(v.then)
    plain = isinstance(v, Binary) and v.op == "mul" and not v.exact
    return plain and bool(reads(v.left)) and bool(reads(v.right))  # type: ignore[union-attr]


def _negated(product: Expr) -> Expr:
    match product:
        case Select():
            return replace(product, then=_negated(product.then))
        case Binary("mul", a, b, dtype):
            return Binary("mul", Unary("neg", a, dtype_of(a)), b, dtype)
    raise AssertionError(product)
