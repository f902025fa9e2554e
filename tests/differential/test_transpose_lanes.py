# SPDX-License-Identifier: Apache-2.0
"""Rows of a vector or a few, transposed in blocks: sums, norms, several statements, every type."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

KINDS = {"float": np.float32, "double": np.float64, "int32": np.int32, "int64": np.int64}
LENGTHS = (0, 1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 33, 40, 47, 56, 63, 64, 65)
PROGRAMS = {
    "sums": "def f({kind}(M,N) X) -> (S, T) {{ S(m) +=! X(m,n) * X(m,n)  T(m) max=! X(m,n) }}",
    "map": """def f({kind}(M,N) X, {kind}(N) g) -> (O) {{
  S(m) +=! X(m,n)
  O(m,n) = (X(m,n) - S(m)) * g(n)
}}""",
    "two outputs": """def f({kind}(M,N) X, {kind}(M,N) Y) -> (P, Q) {{
  S(m) max=! X(m,n) + Y(m,n)
  P(m,n) = X(m,n) - S(m)
  Q(m,n) = P(m,n) + Y(m,n)
}}""",
    "in steps": """def f({kind}(M,N) X) -> (O) {{
  S(m) max=! X(m,n)
  O(m,n) = X(m,n) - S(m)
  T(m) +=! O(m,n)
  O(m,n) = O(m,n) * T(m)
}}""",
    "inside": """def f({kind}(A,M,N) X) -> (O) {{
  S(a,m) +=! X(a,m,n)
  O(a,m,n) = X(a,m,n) + S(a,m)
}}""",
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_exact_results(name: str, kind: str) -> None:
    kernel = tcsym.define(PROGRAMS[name].format(kind=kind)).f
    rng = np.random.default_rng(1)
    for n in LENGTHS:
        for m in (1, 8, 13, 16, 37):
            sizes = {"A": 2, "M": m, "N": n}
            inputs = [
                rng.integers(-4, 5, [sizes[str(d)] for d in t.shape]).astype(KINDS[kind])
                for t in kernel.signature.inputs.values()
            ]
            got, want = kernel(*inputs), kernel.reference(*inputs)
            if not isinstance(got, tuple):
                got, want = (got,), (want,)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"{m} {n}")


def test_exponentials() -> None:
    kernel = tcsym.define("""def f(float(M,N) X) -> (O) {
      m(i) max=! X(i,j)
      s(i) +=! exp(X(i,j) - m(i))
      O(i,j) = X(i,j) - m(i) - log(s(i))
    }""").f
    rng = np.random.default_rng(1)
    for n in LENGTHS[1:]:
        x = rng.standard_normal((11, n)).astype(np.float32)
        np.testing.assert_allclose(kernel(x), kernel.reference(x), rtol=3e-6, atol=3e-6)


def test_narrow_rows_end_in_vectors_that_overlap() -> None:
    kernel = tcsym.define("""def f(uint8(N,H,W) I) -> (O) {
      O(n,h,w) max=! I(n,2*h+kh,2*w+kw) where h in 0:H/2, w in 0:W/2, kh in 0:2, kw in 0:2
    }""").f
    rng = np.random.default_rng(1)
    for w in (1, 2, 8, 14, 16, 18, 34, 62, 64, 66, 70, 126, 128, 130, 150):
        x = rng.integers(0, 256, (3, 6, w)).astype(np.uint8)
        np.testing.assert_array_equal(kernel(x), kernel.reference(x), err_msg=str(w))
