# SPDX-License-Identifier: Apache-2.0
"""Products of few columns whose rows lie far apart in the result."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

TEXT = """def f(int32(G,E,B,C) X, int32(D,G,A,F) Y) -> (Z) {
  Z(a,b,c,d,e,f) +=! X(g,e,b,c) * Y(d,g,a,f)
}"""


@pytest.mark.thinned(2)
@pytest.mark.parametrize("columns", [0, 1, 2, 3, 5, 8, 13])
def test_results_are_exact(columns: int) -> None:
    kernel = tcsym.define(TEXT).f
    rng = np.random.default_rng(1)
    for a, b, c, d, e, g in ((2, 3, 7, 2, 3, 4), (1, 5, 5, 4, 2, 37), (3, 4, 8, 8, 8, 0)):
        x = rng.integers(-3, 4, (g, e, b, c)).astype("i4")
        y = rng.integers(-3, 4, (d, g, a, columns)).astype("i4")
        want = np.einsum("gebc,dgaf->abcdef", x, y)
        for threads in (1, 2):
            np.testing.assert_array_equal(kernel(x, y, threads=threads), want)
