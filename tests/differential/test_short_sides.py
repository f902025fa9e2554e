# SPDX-License-Identifier: Apache-2.0
"""Contractions of several loops a side, each of which may be short: rows of two loops are one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tcsym

PROGRAMS = {
    "around, apart in what is stored": """
def f(float(K,A,B) X, float(K,C,D) Y) -> (Z) { Z(a,c,b,d) +=! X(k,a,b) * Y(k,c,d) }""",
    "inside": """
def f(float(A,B,K) X, float(C,K,D) Y) -> (Z) { Z(d,a,c,b) +=! X(a,b,k) * Y(c,k,d) }""",
    "read in place, epilogue": """
def f(float(A,E,B,F) X, float(D,F,C,E) Y, float(D) s) -> (Z) {
  Z(a,b,c,d) +=! X(a,e,b,f) * Y(d,f,c,e)
  Z(a,b,c,d) = max(Z(a,b,c,d) + s(d), 0.0)
}""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_of_two_loops_are_one(name: str) -> None:
    kernel = tcsym.define(PROGRAMS[name])["f"]
    random = np.random.default_rng(0)
    for few, many in product((1, 2, 5), (1, 7, 30)):
        for short in ("AC", "BD", "AD"):
            sizes = {n: few if n in short else many for n in kernel.sizes}
            sizes |= {n: v for n, v in {"K": 9, "E": 3, "F": 5}.items() if n in sizes}
            inputs = [
                random.integers(-3, 4, [sizes[str(d)] for d in t.shape]).astype(np.float32)
                for t in kernel.signature.inputs.values()
            ]
            np.testing.assert_array_equal(kernel(*inputs), kernel.reference(*inputs))
