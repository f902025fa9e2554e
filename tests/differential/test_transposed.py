# SPDX-License-Identifier: Apache-2.0
"""Transposed arguments and memory for results, compiled: columns lie side by side."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

PROGRAMS = {
    "map": "def f(float(B,M,N) X, float(N) v) -> (O) { O(b,i,j) = X(b,i,j) * v(j) + v(j) }",
    "row sums": "def f(float(B,M,N) X, float(N) v) -> (O) { O(b,i) +=! X(b,i,j) * v(j) }",
    "column sums": "def f(float(B,M,N) X, float(M) v) -> (O) { O(b,j) +=! X(b,i,j) + v(i) }",
    "maxima": "def f(float(B,M,N) X, float(N) v) -> (O) { O(b,i) max=! X(b,i,j) - v(j) }",
    "transposition": "def f(float(B,M,N) X, float(N) v) -> (O) { O(b,j,i) = X(b,i,j) + v(j) }",
    "products": "def f(float(B,M,N) X, float(N) v) -> (O) { O(b,i,k) +=! X(b,i,j) * X(b,k,j) }",
    "exchanged": "def f(float(B,M,N) X, float(N) v) -> (O) { O(b,j,k) +=! X(b,i,j) * X(b,i,k) }",
    "window": """def f(float(B,M,N) X, float(K) v) -> (O) {
      O(b,i,j) +=! X(b,i,j+k) * v(k)
    }""",
    "normal": """def f(float(B,M,N) X, float(N) v) -> (O) {
      s(b,i) +=! X(b,i,j) * X(b,i,j)
      O(b,i,j) = X(b,i,j) + s(b,i) * v(j)
    }""",
    "scan": """def f(float(B,M,N) X, float(N) v) -> (float(B,M,N) O) {
      O(b,0,j) = X(b,0,j) + v(j)
      for i in 1:M { O(b,i,j) = O(b,i-1,j) + X(b,i,j) }
    }""",
}
SIZES = [(1, 1, 1), (2, 1, 9), (1, 700, 1), (2, 5, 3), (2, 33, 17), (1, 8, 64), (3, 40, 70)]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["cpu", "cpu:novector", "cpu:avx2"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_columns(name: str, target: str) -> None:
    kernel = tcsym.define(PROGRAMS[name], target=target).f
    rng = np.random.default_rng(1)
    for b, m, n in SIZES:
        x = rng.integers(-3, 4, (b, n, m)).astype("f4").swapaxes(-1, -2)
        length = {"column sums": m, "window": 1 + n // 2}.get(name, n)
        v = rng.integers(-3, 4, length).astype("f4")
        want = kernel.reference(x, v)
        np.testing.assert_array_equal(kernel(x, v), want, err_msg=f"{b} {m} {n}")
        out = np.empty(want.shape[:-2] + want.shape[:-3:-1], "f4")
        there = out.swapaxes(-1, -2) if want.ndim == 3 else out
        there = there if there.shape == want.shape else np.empty_like(want)
        np.testing.assert_array_equal(kernel(x, v, out=there), want, err_msg=f"{b} {m} {n} out")


def test_such_arguments_have_a_variant() -> None:
    kernel = tcsym.define("def f(float(M,N) X) -> (O) { O(i) +=! X(i,j) }", strategy="symbolic").f
    kernel(np.ones((40, 30), "f4").T)
    assert [v.layouts for v in kernel.stats.variants] == [("columns", "dense")]
