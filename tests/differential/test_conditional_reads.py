# SPDX-License-Identifier: Apache-2.0
"""What is read behind a condition may lie outside: no mechanism reads it ahead of the condition."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tests.guarded import guarded

ROWS = """def f(float(N,K) X, float(N,D) P) -> (O) {{
  m(n) max=! {value} where d in 0:D
  O(n,d) = {value} - m(n) where d in 0:D
}}"""
TURNED = """def f(float(K,N) X, float(N,D) P) -> (O) {{
  O(n,d) = {value} where n in 0:N, d in 0:D
}}"""
CASES = {
    "rows, nested": ROWS.format(value="(P(n,d) > 0.0 ? (d < K ? X(n,d) : -1.0) : 0.5)"),
    "rows, and": ROWS.format(value="(d < K && X(n,d) > 0.0 ? 1.0 : P(n,d))"),
    "turned, nested": TURNED.format(value="P(n,d) > 0.0 ? (d < K ? X(d,n) : -1.0) : 0.5"),
    "turned, and": TURNED.format(value="d < K && X(d,n) > 0.0 ? 1.0 : P(n,d)"),
    "turned, or": TURNED.format(value="d >= K || X(d,n) > 0.0 ? 1.0 : P(n,d)"),
}
SIZES = ((11, 60, 1), (9, 203, 17), (40, 50, 3), (33, 70, 70), (17, 24, 30))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["cpu", "cpu:novector", "cuda:twin"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_read_ahead(name: str, target: str) -> None:
    kernel = tcsym.define(CASES[name], target=target, strategy="symbolic").f
    rng = np.random.default_rng(3)
    for n, d, k in SIZES:
        shape = (n, k) if name.startswith("rows") else (k, n)
        x = rng.standard_normal(shape, np.float32)
        p = rng.standard_normal((n, d), np.float32)
        want = kernel.reference(x, p)
        np.testing.assert_array_equal(kernel(guarded(x), guarded(p)), want)


@pytest.mark.parametrize("g", [1, 2, 3])
def test_a_choice_that_is_the_same_in_all_lanes_of_a_copy(g: int) -> None:
    """Of two vectors of a row, the second one lies beyond where the choice ends."""
    text = "def f(double(K) A, size G) -> (Y) { Y(i) = A((i % G < 2 ? i : 0)) where i in 0:K }"
    f = tcsym.define(text, sizes={"K": tcsym.Dim(14, 16), "G": tcsym.Dim(1, 3)}).f
    A = np.arange(15.0) + 1
    assert np.array_equal(f(A, g), f.reference(A, g))
