# SPDX-License-Identifier: Apache-2.0
"""Rows that differ in what they sum: threads take turns, and a row's position is checked once."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

BAG = """def f(int32(P) off, int32(J) id, float(V,D) E) -> (Y) {
  Y(b,d) +=! E(id(j),d) where j in off(b):off(b+1)
}"""
TRIANGLE = """def f(float(N,N) A, float(N,M) B) -> (C) {
  C(i,j) +=! A(i,k) * B(k,j) where k in 0:i+1
}"""
PRODUCT = "def f(float(N,K) A, float(K,M) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }"


@pytest.mark.parametrize(("text", "takes_turns"), [(BAG, 1), (TRIANGLE, 1), (PRODUCT, 0)])
def test_threads_take_turns_where_rows_differ(text: str, takes_turns: int) -> None:
    code = tcsym.define(text, target="cpu:avx2", strategy="symbolic").f.explain("llvm")
    assert code.count("define internal void @tcsym_kernel.claim") == takes_turns


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_row_is_made_once(threads: int) -> None:
    kernel = tcsym.define(BAG, strategy="symbolic").f
    table = np.random.default_rng(0).standard_normal((50, 40)).astype("f4")
    for rows in (1, 2, 333):
        off = np.minimum(np.arange(rows + 1) ** 3, 90000).astype("i4")
        at = np.arange(off[-1], dtype="i4") % 50
        found = kernel(off, at, table, threads=threads)
        np.testing.assert_allclose(found, kernel.reference(off, at, table), 1e-3, 1e-2)


def test_a_position_is_checked_once_for_all_vectors_of_a_row() -> None:
    mapped = tcsym.define(BAG, target="cpu:avx2", strategy="symbolic").f.explain("mapped")
    assert "verify E[int64(id[j." in mapped and "+= E[int64(id" not in mapped
