# SPDX-License-Identifier: Apache-2.0
"""Reductions along rows of types without masks: groups of vectors, single vectors, elements."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

KINDS = {"int8": np.int8, "uint8": np.uint8, "int16": np.int16, "half": np.float16}
LENGTHS = (0, 1, 15, 16, 31, 32, 33, 63, 65, 96, 127, 128, 129, 200, 255, 257, 300)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_maxima(kind: str) -> None:
    kernel = tcsym.define(
        f"def f({kind}(M,N) X) -> (S, T) {{ S(m) +=! X(m,n)  T(m) max=! X(m,n) }}"
    ).f
    rng = np.random.default_rng(1)
    for n in LENGTHS:
        x = rng.integers(0, 9, (3, n)).astype(KINDS[kind])
        for got, want in zip(kernel(x), kernel.reference(x), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=str(n))


def test_any_and_all() -> None:
    kernel = tcsym.define("def f(bool(M,N) X) -> (S, T) { S(m) max=! X(m,n)  T(m) min=! X(m,n) }").f
    rng = np.random.default_rng(1)
    for n in LENGTHS:
        for share in (0.01, 0.5, 0.99):
            x = rng.random((5, n)) < share
            for got, want in zip(kernel(x), kernel.reference(x), strict=True):
                np.testing.assert_array_equal(got, want, err_msg=str(n))
