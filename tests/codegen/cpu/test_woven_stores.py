# SPDX-License-Identifier: Apache-2.0
"""Statements that fill all elements between a vector's lanes store whole vectors."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tests.guarded import guarded

TWO = "def f(float(N) A, float(N) B) -> (Y) { Y(i,0) = A(i) * B(i)  Y(i,1) = A(i) - B(i) }"
SOURCES = {
    "two": TWO,
    "turned": "def f(float(N) A, float(N) B) -> (float(N,2) Y) { Y(i,1) = A(i)  Y(i,0) = -B(i) }",
    "pixels": """def f(float(N,M) A, float(N,M) B) -> (uint8(N,M,3) Y) {
      Y(i,j,0) = uint8(A(i,j))  Y(i,j,1) = uint8(A(i,j) + B(i,j))  Y(i,j,2) = uint8(B(i,j))
    }""",
    "four": """def f(double(N) A) -> (double(N,4) Y) {
      Y(i,0) = A(i)  Y(i,1) = A(i) + 1  Y(i,2) = 7  Y(i,3) = A(i) * 2
    }""",
    "halves": "def f(half(N) A) -> (half(N,2) Y) { Y(i,0) = A(i)  Y(i,1) = A(i) * A(i) }",
    "products": """def f(float(N,2) A, float(N,2) B) -> (float(N,2) Y) {
      Y(i,0) = A(i,0) * B(i,0) - A(i,1) * B(i,1)
      Y(i,1) = A(i,0) * B(i,1) + A(i,1) * B(i,0)
    }""",
    "gap": "def f(float(N) A) -> (float(N,3) Y) { Y(i,0) = A(i)  Y(i,2) = A(i) + 1  Y(i,1) = 3 }",
    "chain": "def f(float(N) A) -> (float(N,2) Y) { Y(i,0) = A(i)  Y(i,1) = Y(i,0) + 1 }",
    "same": "def f(float(N) A) -> (float(N,2) Y) { Y(i,0) = A(i)  Y(i,1) = A(i)  Y(i,0) = 2 }",
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
def test_results(name: str, target: str) -> None:
    m, random = tcsym.define(SOURCES[name], target=target), np.random.default_rng(0)
    for n in (0, 1, 7, 16, 33, 100):
        sizes = {"N": n, "M": 19, "2": 2}
        values = [
            guarded(random.integers(0, 9, [sizes[str(e)] for e in x.shape]).astype(x.dtype.numpy))
            for x in m.signature.inputs.values()
        ]
        np.testing.assert_array_equal(m(*values), m.reference(*values))
