# SPDX-License-Identifier: Apache-2.0
"""Contractions of which a sum may have one term: outer products, as maps."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tcsym
from tests.processors import require

NOTE = "sums of one term: a map"
TARGETS = ("cpu:avx512", "cpu:avx2", "cpu:novector")
OUTER = """def f(float(D,E,G,A) X, float(G,F,B,C) Y) -> (Z) {
  Z(a,b,c,d,e,f) +=! X(d,e,g,a) * Y(g,f,b,c)
}"""


@pytest.mark.parametrize("target", TARGETS)
def test_one_two_and_no_terms(target: str) -> None:
    require(target)
    kernel = tcsym.define(OUTER, target=target, strategy="symbolic").f
    assert (NOTE in kernel.explain("mapped")) == (target != "cpu:novector")
    rng = np.random.default_rng(3)
    for g, d, f in product((0, 1, 2), (1, 4, 19), (1, 2, 5, 16, 17)):
        x = rng.standard_normal((d, 5, g, 3), np.float32)
        y = rng.standard_normal((g, f, 2, 3), np.float32)
        np.testing.assert_allclose(kernel(x, y), np.einsum("dega,gfbc->abcdef", x, y), atol=1e-5)


def test_what_starts_with_another_number_and_is_used_after() -> None:
    kernel = tcsym.define(
        """def f(float(D,E,G,A) X, float(G,F,B) Y) -> (Z) {
  S(a,b,d,e,f) +=! X(d,e,g,a) * Y(g,f,b)
  Z(a,b,d,e,f) = fmax(S(a,b,d,e,f), 0.5) - 1
}""",
        strategy="symbolic",
    ).f
    rng = np.random.default_rng(4)
    for g in (1, 2):
        x = rng.standard_normal((17, 2, g, 3), np.float32)
        y = rng.standard_normal((g, 6, 2), np.float32)
        expected = np.maximum(np.einsum("dega,gfb->abdef", x, y), 0.5) - 1
        np.testing.assert_allclose(kernel(x, y), expected, atol=1e-5)


def test_products_of_matrices_and_windows_have_no_such_version() -> None:
    for name in ("matmul", "batched_matmul", "conv2d", "conv2d_nhwc"):
        assert NOTE not in getattr(tcsym.library, name).explain("mapped")
