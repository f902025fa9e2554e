# SPDX-License-Identifier: Apache-2.0
"""Positions that are a loop's quotient by a quotient of sizes: heads that share keys."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import tcsym

TEXTS = {
    "of a product": """def f(int32(H,M,K) Q, int32(G,N,K) X) -> (O) {
      O(h,m,n) +=! Q(h,m,k) * X(h/(H/G),n,k)
    }""",
    "of a row": "def f(int32(H,M) Q, int32(G,M) X) -> (O) { O(h,m) = Q(h,m) - X(h/(H/G),m) }",
    "of its elements": """def f(int32(M,H) Q, int32(M,G) X) -> (O) {
      O(m,h) = Q(m,h) - X(m,h/(H/G))
    }""",
    "counted back": """def f(int32(H,M) Q, int32(G,M) X) -> (O) {
      O(h,m) = Q(h,m) - X(G-1-(H-1-h)/(H/G),m)
    }""",
    "with a step": """def f(int32(H,M) Q, int32(G,M) X) -> (O) {
      O(h,m) = Q(h,m) - X((2*h+1)/(2*(H/G)),m)
    }""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_results_and_refusals_are_those_of_the_interpreter(name: str) -> None:
    kernel = tcsym.define(TEXTS[name]).f
    shapes = [d.split(",") for d in re.findall(r"int32\(([\w,]+)\)", TEXTS[name])]
    rng = np.random.default_rng(1)
    refused = 0
    for heads, groups, m in product((0, 1, 2, 3, 4, 6, 12), (0, 1, 2, 3, 4), (1, 2, 17)):
        sizes = {"H": heads, "G": groups, "M": m, "N": 9, "K": 5}
        arrays = [rng.integers(-3, 4, [sizes[n] for n in d]).astype("i4") for d in shapes]
        try:
            want = kernel.reference(*arrays)
        except tcsym.TCError:
            refused += 1
            with pytest.raises(tcsym.TCError):
                kernel(*arrays)
        else:
            for threads in (1, 2):
                np.testing.assert_array_equal(
                    kernel(*arrays, threads=threads), want, err_msg=f"{sizes}"
                )
    assert refused
