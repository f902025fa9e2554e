# SPDX-License-Identifier: Apache-2.0
"""Extrema of unrolled terms: one of all of them, NaN where one is NaN."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

POOL = """def f({t}(N,H,W) X) -> (O) {{
  O(n,h,w) {op}=! X(n,2*h+i,2*w+j) where i in 0:3, j in 0:3 }}"""


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
@pytest.mark.parametrize("dtype", ["float", "double", "half", "int32"])
@pytest.mark.parametrize("op", ["min", "max"])
def test_windows_with_nan(op: str, dtype: str, target: str) -> None:
    kernel = tcsym.define(POOL.format(t=dtype, op=op), target=target).f
    r = np.random.default_rng(0)
    numpy = {"float": "f4", "double": "f8", "half": "f2", "int32": "i4"}[dtype]
    for n, h, w in ((1, 3, 3), (2, 9, 70), (3, 12, 33), (1, 40, 131)):
        x = (r.standard_normal((n, h, w)) * 100).astype(numpy)
        if dtype != "int32":
            x[r.random(x.shape) < 0.02] = np.nan
            x[r.random(x.shape) < 0.02] = -np.inf
        np.testing.assert_array_equal(kernel(x), kernel.reference(x))


def test_nan_is_asked_for_by_pairs() -> None:
    """Nine terms of each of the rows: not a comparison and a blend for each of them."""
    plan = """n:
      split h tile reg:2 end=overlap
      split w tile lane:16 end=overlap
      split i tile reg:3
      split j tile reg:3
      order n h.tile w.tile"""
    text = POOL.format(t="float", op="max")
    listing = tcsym.define(text, target="cpu:avx512", plan=plan).f.explain("asm")
    parts = str(listing).split(".LBB")
    hot = max(parts, key=lambda x: x.count("vmaxps"))
    assert 0 < hot.count("vcmpunordps") <= 0.6 * hot.count("vmaxps")
