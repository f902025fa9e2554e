# SPDX-License-Identifier: Apache-2.0
"""Statements that read elements of their target which other points of theirs write."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import tcsym

TEXTS = {
    "paths": """def f(int32(N,N) W) -> (int32(N,N) D) {
      D(i,j) = W(i,j)
      for k in N { D(i,j) = min(D(i,j), D(i,k) + D(k,j)) }
    }""",
    "elimination": """def f(int32(M,N) W) -> (int32(M,N) D) {
      D(i,j) = W(i,j)
      for k in 0:min(M,N) { D(i,j) = D(k,k) * D(i,j) - D(i,k) * D(k,j) }
    }""",
    "two of a row": """def f(int32(M,N) W) -> (int32(M,N) D) {
      D(i,j) = W(i,j)
      for k in 1:N { D(i,j) = D(i,j) - D(i,k) + 2 * D(i,k-1) }
    }""",
    "a part": """def f(int32(N,N) W) -> (int32(N,N) D) {
      D(i,j) = W(i,j)
      for k in N { D(i,j) = D(i,j) - D(k,j) + D(i,N-1-k) where i in N/2:N, j in 0:N/2 }
    }""",
    "no columns": """def f(int32(M,N) W) -> (int32(M,N) D) {
      D(i,j) = W(i,j)
      D(i,j) = D(i,j) - D(i,0) * D(0,j)
    }""",
    "under a condition": """def f(int32(N,N) W) -> (int32(N,N) D) {
      D(i,j) = W(i,j)
      for k in N { D(i,j) = i > k && W(i,k) > 0 ? D(i,j) - D(i,k) : D(i,j) + D(k,j) }
    }""",
    "in turn": """def f(int32(N) W) -> (int32(N) D) {
      D(i) = W(i)
      for k in N { D(i) = D(k) - D(i) }
    }""",
    "bytes": """def f(int8(N,N) W) -> (int8(N,N) D) {
      D(i,j) = W(i,j)
      for k in N { D(i,j) = D(i,j) + D(i,k) - D(k,j) }
    }""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_point_reads_what_was_there_before(name: str) -> None:
    kernel = tcsym.define(TEXTS[name]).f
    (kind, dims), *_ = re.findall(r"(\w+)\(([\w,]+)\) W", TEXTS[name])
    names = sorted(set(dims.split(",")))
    rng = np.random.default_rng(1)
    for sides in product((0, 1, 2, 3, 17, 35), repeat=len(names)):
        sizes = dict(zip(names, sides))
        w = rng.integers(-3, 4, [sizes[n] for n in dims.split(",")]).astype(kind)
        want = kernel.reference(w)
        for threads in (1, 2):
            np.testing.assert_array_equal(kernel(w, threads=threads), want, err_msg=f"{sizes}")
