# SPDX-License-Identifier: Apache-2.0
"""Sums over rows of many columns, compiled: values, element types, checks of gathered rows."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.errors import BoundsError

COLUMN_SUM = "def f({0}(M,N) X) -> (O) {{ O(n) {1}=! X(m,n) }}"
SIZES = [(16, 16), (23, 9), (40, 133), (259, 8), (600, 70), (20, 4100)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("reduction", ["+", "max"])
@pytest.mark.parametrize("kind", ["float", "double", "half", "int8", "int32"])
def test_column_reductions(kind: str, reduction: str) -> None:
    kernel = tcsym.define(COLUMN_SUM.format(kind, reduction))
    dtype = {"float": "f4", "double": "f8", "half": "f2", "int8": "i1", "int32": "i4"}[kind]
    rng = np.random.default_rng(1)
    for m, n in SIZES:
        x = rng.integers(-3, 4, (m, n)).astype(dtype)
        for threads in (1, 2):
            got = kernel(x, threads=threads)
            np.testing.assert_array_equal(got, kernel.reference(x), err_msg=f"{m} {n} {threads}")


PRODUCT = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_products_of_a_row_or_two(rows: int) -> None:
    kernel = tcsym.define(PRODUCT)
    rng = np.random.default_rng(1)
    for k, n in SIZES:
        a, b = (rng.integers(-3, 4, s).astype("f4") for s in ((rows, k), (k, n)))
        for threads in (1, 2):
            got = kernel(a, b, threads=threads)
            np.testing.assert_array_equal(got, a @ b, err_msg=f"{k} {n} {threads}")


BAG = "def f(float(E,J) T, int32(B,K) I, float(B,K) W) -> (O) { O(b,j) +=! T(I(b,k),j) * W(b,k) }"


@pytest.mark.parametrize("sizes", [(7, 9, 3, 16), (30, 133, 2, 23), (5, 64, 2, 17), (4, 8, 1, 3)])
def test_weighted_rows_of_a_table(sizes: tuple[int, int, int, int]) -> None:
    e, j, b, k = sizes
    rng = np.random.default_rng(2)
    table, weights = (rng.integers(-3, 4, s).astype("f4") for s in ((e, j), (b, k)))
    at = rng.integers(0, e, (b, k)).astype("i4")
    kernel = tcsym.define(BAG)
    np.testing.assert_array_equal(kernel(table, at, weights), kernel.reference(table, at, weights))


@pytest.mark.parametrize("wrong", [-1, 5, 2**31 - 1])
@pytest.mark.parametrize("place", [0, 9, 17, 18])
def test_a_row_outside_of_the_table_is_an_error(place: int, wrong: int) -> None:
    table, weights = np.ones((5, 20), "f4"), np.ones((2, 19), "f4")
    at = np.zeros((2, 19), "i4")
    at[1, place] = wrong
    with pytest.raises(BoundsError, match="out of range in `T`"):
        tcsym.define(BAG)(table, at, weights)


def test_an_empty_table_has_no_rows_to_read() -> None:
    table, weights = np.ones((0, 20), "f4"), np.ones((1, 19), "f4")
    with pytest.raises(BoundsError, match="out of range in `T`"):
        tcsym.define(BAG)(table, np.zeros((1, 19), "i4"), weights)
