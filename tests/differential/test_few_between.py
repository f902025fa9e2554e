# SPDX-License-Identifier: Apache-2.0
"""Few columns between the nests of a row: rows in the lanes, for all sizes around the border."""

from __future__ import annotations

import itertools

import pytest

import tcsym
from tests.differential.inputs import LAYOUTS
from tests.differential.test_few import check

NEAREST = """def f(float(M,D) X, float(N,D) Y) -> (O) {
  P(m,n) +=! (X(m,d) - Y(n,d)) * (X(m,d) - Y(n,d))
  O(m) min=! P(m,n)
}"""
TEXTS = {
    "nearest": NEAREST,
    "double": NEAREST.replace("float", "double"),
    "heads": """def f(float(2,M,D) Q, float(2,N,D) K, float(2,N,D) V) -> (O) {
  P(h,m,n) +=! Q(h,m,d) * K(h,n,d)
  t(h,m) max=! P(h,m,n)
  E(h,m,n) = exp(P(h,m,n) - t(h,m))
  z(h,m) +=! E(h,m,n)
  O(h,m,d) +=! E(h,m,n) * V(h,n,d)
  O(h,m,d) = O(h,m,d) / z(h,m)
}""",
    "log-softmax": """def f(float(M,D) Q, float(N,D) K) -> (O) {
  P(m,n) +=! Q(m,d) * K(n,d)
  P(m,n) = m + 2 > n ? P(m,n) * 0.25 : -1000.0
  t(m) max=! P(m,n)
  z(m) +=! exp(P(m,n) - t(m))
  O(m,n) = P(m,n) - t(m) - log(z(m))
}""",
    "two layers": """def f(float(M,D) X, float(N,D) W, float(D,N) U) -> (O) {
  P(m,n) +=! X(m,d) * W(n,d)
  P(m,n) = fmax(P(m,n), 0)
  O(m,j) +=! P(m,n) * U(j,n)
}""",
}
SIZES = tuple(itertools.product((1, 7, 9, 16, 21), (1, 2, 3, 5, 17), (1, 3, 17)))


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", TEXTS)
def test_few_columns(name: str) -> None:
    kernel = tcsym.define(TEXTS[name], strategy="symbolic").f
    for m, n, d in SIZES[list(TEXTS).index(name) % 2 :: 2]:
        check(kernel, {"M": m, "N": n, "D": d}, "dense")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("layout", LAYOUTS[1:3])
def test_few_columns_in_other_layouts(layout: str) -> None:
    kernel = tcsym.define(NEAREST, strategy="symbolic").f
    for m, n, d in SIZES[::7]:
        check(kernel, {"M": m, "N": n, "D": d}, layout)
