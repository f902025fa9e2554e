# SPDX-License-Identifier: Apache-2.0
"""Contractions whose operand an index finds, its rows grouped: results, checks, emptiness."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym import Options

FORMS = {
    "chosen twice": "Y(n,m) +=! g(n,j) * X(n,k) * W(c(n,j),m,k)",
    "last dimension": "Y(n,m) +=! X(n,k) * V(t(n),k,m)",
    "of a formula": "Y(n,m) +=! X(n,k) * V(2*t(n)-t(n),k,m)",
    "added to": "Y(n,m) = b(t(n),m)\n Y(n,m) += X(n,k) * W(t(n),m,k)",
    "followed": "Y(n,m) +=! X(n,k) * W(t(n),m,k)\n Y(n,m) = max(Y(n,m) + b(t(n),m), 0)",
    "two operands": "Y(n,m) +=! X(n,k) * W(t(n),m,k) * a(t(n),k)",
    "largest": "Y(n,m) max=! X(n,k) + W(t(n),m,k)",
    "rows found, too": "Y(n,m) +=! X(s(n),k) * W(t(n),m,k)",
    "under a condition": "Y(n,m) +=! (X(n,k) > 0 ? X(n,k) : n) * W(t(n),m,k)",
    "all in one sum": "Y(m) +=! X(n,k) * W(t(n),m,k)",
    "two layers": """H(n,j,k) +=! X(n,q) * A(c(n,j),k,q)
  H(n,j,k) = max(H(n,j,k), 0)
  Y(n,m) +=! g(n,j) * H(n,j,k) * W(c(n,j),m,k)""",
}
TEXT = """def f({t}(N,K) X, {t}(E,M,K) W, {t}(E,K,M) V, {t}(E,K,K) A, {t}(E,M) b, {t}(E,K) a,
    {t}(N,2) g, int32(N,2) c, int32(N) t, int32(N) s) -> (Y) {{
  {term}
}}"""
# N, E, M, K
SIZES = [(40, 3, 19, 17), (33, 1, 9, 70), (7, 20, 35, 4), (1, 1, 1, 1), (64, 2, 33, 1)]
EMPTY = [(0, 3, 4, 4), (9, 3, 0, 4), (9, 3, 4, 0), (9, 0, 4, 4), (9, 0, 0, 4), (9, 0, 4, 0)]


def outcome(call: Any, *args: Any, **options: Any) -> Any:
    try:
        return call(*args, **options)
    except tcsym.TCError as e:
        return e.kind


def arguments(n: int, e: int, m: int, k: int, dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(n + m)
    shapes = [(n, k), (e, m, k), (e, k, m), (e, k, k), (e, m), (e, k), (n, 2)]
    tensors = [rng.integers(-3, 4, s).astype(dtype) for s in shapes]
    places = [rng.integers(0, max(most, 1), s) for most, s in ((e, (n, 2)), (e, n), (n, n))]
    return [*tensors, *(x.astype("i4") for x in places)]


@pytest.mark.thinned(10)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:novector"])
@pytest.mark.parametrize("kind", ["float", "half", "int32"])
@pytest.mark.parametrize("form", FORMS)
def test_results_and_refusals_are_those_of_the_interpreter(
    form: str, kind: str, target: str
) -> None:
    text, dtype = (
        TEXT.format(t=kind, term=FORMS[form]),
        {"float": "f4", "half": "f2", "int32": "i4"}[kind],
    )
    kernel = tcsym.define(text, target=target, options=Options(plan="GroupedRows")).f
    assert "inspector/executor" in kernel.explain("plan")
    for sizes in SIZES + EMPTY:
        n, e = sizes[:2]
        args = arguments(*sizes, dtype)
        for wrong, at in ((None, 7), (-1, 7), (e, 8), (2**31 - 1, 8), (n, 9)):
            if wrong is not None and n:
                args[at][n // 2] = wrong
            want = outcome(kernel.reference, *args)
            for threads in (1, 2):
                found = outcome(kernel, *args, threads=threads)
                if isinstance(want, str) or isinstance(found, str):
                    assert found == want, (sizes, wrong, at)
                else:
                    np.testing.assert_array_equal(found, want, err_msg=f"{sizes}, {wrong} at {at}")


def test_rows_are_grouped_where_that_saves_more_than_it_takes() -> None:
    """All rows of one index, some of no index, and a size too small to sort."""
    kernel = tcsym.define(TEXT.format(t="float", term=FORMS["chosen twice"])).f
    rng = np.random.default_rng(0)
    for n, same in ((300, True), (300, False), (3, True)):
        args = arguments(n, 5, 66, 130, "f4")
        args[7] = np.full((n, 2), 3, "i4") if same else rng.choice([0, 4], (n, 2)).astype("i4")
        want = np.einsum(
            "nj,njm->nm", args[6], np.einsum("nk,njmk->njm", args[0], args[1][args[7]])
        )
        np.testing.assert_array_equal(kernel(*args), want)
        one, two = (kernel(*args, threads=k) for k in (1, 2))
        np.testing.assert_array_equal(one, two)
    assert "left to another kernel: inspector/executor" in kernel.explain("plan")


@pytest.mark.parametrize(
    "term",
    [
        "Y(n,m) +=! W(t(n),m,k)",  # no product
        "Y(n,m) +=! X(n,k) * b(t(n),m)",  # the operand does not move with the sum
        "Y(n,m) +=! V(t(n),k,m) * W(t(n),m,k)",  # nothing left that moves with rows
        "Y(n,m,q) +=! X(q,k) * W(t(n),m,k)",  # has rows that share the operand
        "Y(n,m) +=! X(n,k) * W(t(n),m,s(k)) where k in 0:1",  # is checked at every element
        "Y(n,m) +=! t(n) >= 0 ? X(n,k) * W(t(n),m,k) : X(n,k)",  # some rows have none
    ],
)
def test_others_are_left(term: str) -> None:
    kernel = tcsym.define(TEXT.format(t="float", term=term)).f
    assert "inspector/executor" not in kernel.explain("plan")
