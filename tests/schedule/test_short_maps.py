# SPDX-License-Identifier: Apache-2.0
"""Maps of which all inner loops are short: another loop in the lanes, on copies in its order."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tests.processors import require

KRONECKER = """def kron(float(N,I,J) A, float(N,K,L) B) -> (Z) {
  Z(n,i,k,j,l) = A(n,i,j) * B(n,k,l)
}"""


@pytest.mark.parametrize("target", ("cpu:avx512", "cpu:avx2", "cpu:novector"))
def test_many_small_kronecker_products(target: str) -> None:
    require(target)
    kernel = tcsym.define(KRONECKER, target=target, strategy="symbolic").kron
    noted = kernel.explain("mapped")
    assert ("interleaved along n" in noted) == (target != "cpu:novector")
    rng = np.random.default_rng(2)
    for n in (1, 15, 16, 37):
        for i, j, k, m in ((2, 2, 2, 2), (3, 3, 3, 3), (1, 2, 5, 7), (2, 17, 3, 2), (1, 1, 1, 1)):
            a = rng.standard_normal((n, i, j), np.float32)
            b = rng.standard_normal((n, k, m), np.float32)
            np.testing.assert_array_equal(kernel(a, b), np.einsum("nij,nkl->nikjl", a, b))


def test_outer_products_have_no_copies() -> None:
    text = "def outer(float(B,N) X, float(B,M) Y) -> (Z) { Z(b,i,j) = X(b,i) * Y(b,j) }"
    kernel = tcsym.define(text, target="cpu:avx512").outer
    assert "interleaved" not in kernel.explain("mapped")
