# SPDX-License-Identifier: Apache-2.0
"""Sums down columns of which there is one: a version along the rows, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

SUM = "def f(float(B,T,C) X) -> (Y) { Y(b,c) +=! X(b,t,c) }"
SOFTMAX = """def f(float(B,T,C) X) -> (Y) {
  m(b,c) max=! X(b,t,c)
  e(b,t,c) = exp(X(b,t,c) - m(b,c))
  s(b,c) +=! e(b,t,c)
  Y(b,t,c) = e(b,t,c) / s(b,c)
}"""
NORM = """def f(float(B,T,C) X) -> (Y) {
  m(b,c) +=! X(b,t,c)
  m(b,c) = m(b,c) / T
  v(b,c) +=! (X(b,t,c) - m(b,c)) * (X(b,t,c) - m(b,c))
  Y(b,t,c) = (X(b,t,c) - m(b,c)) / sqrt(v(b,c) / T + 0.00001)
}"""
SHIFTED = "def f(float(B,T,C) X) -> (Y) { Y(b,c) +=! X(b,t,c) * X(b,t,C-1-c) where c in 0:C }"
TWO_ROWS = "def f(float(B,T,C) X, float(T,C) W) -> (Y) { Y(b,c) max=! X(b,t,c) + W(t,c) }"
FLAT = "def f(float(T,C) X) -> (Y) { Y(c) +=! X(t,c) }"
CHOSEN = "def f(float(B,T,C) X, int32(B,C) k) -> (Y) { Y(b,c) +=! X(b,t,k(b,c)) }"


def notes(source: str) -> str:
    return tcsym.define(source, target="cpu:avx2").f.explain("mapped")


@pytest.mark.parametrize("source", [SUM, SOFTMAX, NORM, TWO_ROWS])
def test_one_column_is_a_row(source: str) -> None:
    text = notes(source)
    assert text.count("a single column: a row") == 1
    assert text.count("C == 1") == 1


@pytest.mark.parametrize("source", [FLAT, CHOSEN])
def test_no_version_where_nothing_is_around_or_columns_are_chosen(source: str) -> None:
    assert "a single column" not in notes(source)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
@pytest.mark.parametrize("source", [SUM, SOFTMAX, NORM, SHIFTED, TWO_ROWS])
def test_results_are_those_of_the_reference(source: str, target: str) -> None:
    k = tcsym.define(source, target=target).f
    rng = np.random.default_rng(0)
    for b, t, c in [(1, 1, 1), (2, 7, 1), (3, 90, 1), (20, 100, 1), (3, 90, 2), (0, 5, 1)]:
        x = rng.standard_normal((b, t, c), dtype=np.float32)
        more = [rng.standard_normal((t, c), dtype=np.float32)] if source == TWO_ROWS else []
        np.testing.assert_allclose(k(x, *more), k.reference(x, *more), rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("source", [SUM, SOFTMAX])
def test_arguments_in_other_layouts(source: str) -> None:
    k = tcsym.define(source).f
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 80, 4), dtype=np.float32)[:, ::2, 1:2]
    np.testing.assert_allclose(k(x), k.reference(x), rtol=1e-4, atol=1e-5)
    x = rng.standard_normal((1, 80, 3), dtype=np.float32).T
    np.testing.assert_allclose(k(x), k.reference(x), rtol=1e-4, atol=1e-5)
