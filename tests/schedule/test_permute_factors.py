# SPDX-License-Identifier: Apache-2.0
"""Maps on copies of operands that lie across the result."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tcsym
from tests.processors import require

NOTE = "operands across the result from copies"
TARGETS = ("cpu:avx512", "cpu:avx2", "cpu:novector")


@pytest.mark.parametrize("target", TARGETS)
def test_outer_product_of_a_transposed_matrix(target: str) -> None:
    require(target)
    text = "def f(float(A,B) X, float(D,C) Y) -> (Z) { Z(a,b,c,d) = X(a,b) * Y(d,c) }"
    kernel = tcsym.define(text, target=target, strategy="symbolic").f
    assert NOTE in kernel.explain("mapped")
    rng = np.random.default_rng(1)
    for a, b, c, d in product((1, 2), (0, 1, 3), (1, 5, 33), (1, 7, 40)):
        x, y = rng.standard_normal((a, b), np.float32), rng.standard_normal((d, c), np.float32)
        np.testing.assert_array_equal(kernel(x, y), np.einsum("ab,dc->abcd", x, y))


def test_what_a_guard_keeps_from_being_read_is_not_copied() -> None:
    text = """def f(float(A,N,M) X, float(M,N) Y) -> (Z) {
  Z(a,i,j) = j > 0 ? X(a,i,j) + Y(j-1,i) : X(a,i,j) where j in 0:M
}"""
    kernel = tcsym.define(text).f
    assert NOTE not in kernel.explain("mapped")


def test_an_operand_that_every_loop_moves_is_not_copied() -> None:
    kernel = tcsym.define("def f(float(N,M) X) -> (Z) { Z(j,i) = 2 * X(i,j) }").f
    assert NOTE not in kernel.explain("mapped")
