# SPDX-License-Identifier: Apache-2.0
"""Factors beside the two operands of a contraction: with which of them they are multiplied."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.frontend.program import Binary, Cast, Const, Expr, IndexValue, Read, Unary, dtype_of
from tcsym.ir.loops import Kernel, Update
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.order.associate_factors import associate_factors
from tcsym.types import DType

SIGNS = {"mul": "*", "div": "/"}


def naive(term: str, dtype: str = "float") -> Kernel:
    source = f"""def f({dtype}(M,K) A, {dtype}(K,N) B, {dtype}(M) r, {dtype}(N) c, {dtype}(K) t,
  {dtype}(M,N) D, {dtype} s) -> (C) {{ C(i,j) +=! {term} }}"""
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


def terms(k: Kernel) -> list[str]:
    return [text(x.value) for x, _ in walk(k.body) if isinstance(x, Update)]


def text(e: Expr) -> str:
    """With as many parentheses as there are operations."""
    match e:
        case Read():
            return e.tensor
        case Binary(op, a, b):
            return f"({text(a)}{SIGNS[op]}{text(b)})"
        case Unary("neg", a):
            return f"-{text(a)}"
        case Cast(a):
            return text(a)
        case Const(value):
            return f"{value:g}"
        case IndexValue(index):
            return str(index)
        case _:
            raise AssertionError(e)


@pytest.mark.parametrize(
    ("term", "associated"),
    [
        ("A(i,k) * B(k,j) * 0.5", "((A*0.5)*B)"),
        ("A(i,k) * B(k,j) / K", "((A/K)*B)"),
        ("A(i,k) * B(k,j) * s / r(i)", "(((A*s)/r)*B)"),
        ("A(i,k) * B(k,j) * c(j) / t(k)", "((A/t)*(B*c))"),
        ("B(k,j) * A(i,k) / K", "(B*(A/K))"),
        ("B(k,j) / K * A(i,k)", "(B*(A/K))"),
        ("-(A(i,k) * B(k,j)) / c(j)", "(-A*(B/c))"),
        ("s * (B(k,j) * r(i)) * A(i,k)", "(((s*r)*A)*B)"),
        ("A(i,k) * B(k,j) * A(i,k)", "((A*A)*B)"),
        ("A(i,k) * B(k,j) * B(k,j) / A(i,k)", "((A/A)*(B*B))"),
    ],
)
def test_each_factor_goes_where_its_loops_are(term: str, associated: str) -> None:
    assert terms(associate_factors(naive(term))) == [associated]


@pytest.mark.parametrize(
    "term",
    [
        "A(i,k) * B(k,j)",
        "0.5 * A(i,k) * B(k,j)",
        "A(i,k) * B(k,j) * D(i,j)",  # moves with rows and columns
        "A(i,k) * A(i,k) * B(k,j)",
        "A(i,k) * A(i,k) / K * D(i,j)",  # no columns
        "A(i,k) / B(k,j) * s",
        "A(i,k) + B(k,j) * s",
    ],
)
def test_what_is_no_product_of_two_stays(term: str) -> None:
    k = naive(term)
    assert associate_factors(k) is k


def test_integers_wrap_and_stay() -> None:
    k = naive("A(i,k) * B(k,j) * s", "int32")
    assert associate_factors(k) is k


def test_halves_are_multiplied_in_the_type_of_their_sum() -> None:
    k = associate_factors(naive("A(i,k) * B(k,j) * s", "half"))
    (term,) = [x.value for x, _ in walk(k.body) if isinstance(x, Update)]
    assert text(term) == "((A*s)*B)"  # type: ignore[arg-type]
    assert dtype_of(term) is DType.FLOAT32  # type: ignore[arg-type]
