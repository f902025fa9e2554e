# SPDX-License-Identifier: Apache-2.0
"""Rows, and sums of columns over them, in parts: what the interpreter gives, at any threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym

TEXTS = {
    "norm": """def f(float(N,D) X, float(N,D) dY, float(D) g) -> (dX, dg, db) {
      S(n) +=! X(n,d) * X(n,d)
      r(n) = rsqrt(S(n) / D + 0.001)
      dot(n) +=! dY(n,d) * g(d) * X(n,d)
      dX(n,d) = r(n) * (dY(n,d) * g(d) - X(n,d) * dot(n) * r(n) * r(n) / D)
      dg(d) +=! dY(n,d) * X(n,d) * r(n)
      db(d) +=! dY(n,d)
    }""",
    "products with a matrix and its transpose": """def f(float(N,D) A, float(D) p, float(N) r)
        -> (q, s) {
      q(n) +=! A(n,d) * p(d)
      s(d) +=! A(n,d) * r(n)
    }""",
    "largest of columns": """def f(half(N,D) X) -> (float(N,D) E, m) {
      t(n) +=! float(X(n,d))
      E(n,d) = X(n,d) - t(n)
      m(d) max=! E(n,d)
    }""",
}
SIZES = ((1024, 130), (1055, 300), (2100, 67), (1024, 32), (1023, 300), (40, 130), (0, 300), (1, 1))


@pytest.mark.parametrize("target", ["avx2", "avx512", "novector"])
@pytest.mark.parametrize("name", TEXTS)
def test_rows_and_sums_of_their_columns(name: str, target: str) -> None:
    kernel = tcsym.define(TEXTS[name], target=f"cpu:{target}", strategy="symbolic").f
    for n, d in SIZES:
        given = _arguments(kernel, n, d)
        wanted = _several(kernel.reference(*given))
        for threads in (1, 3):
            found = _several(kernel(*given, threads=threads))
            for x, y in zip(found, wanted, strict=True):
                np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3)


def test_sums_that_need_all_rows_follow_all_rows() -> None:
    """What is added is not of the same row, or changes what rows read."""
    texts = (
        "def f(float(N,D) X) -> (Y, s) { t(n) +=! X(n,d)\n Y(n,d) = X(n,d) * t(n)\n"
        " s(d) +=! X(n,d) * t(N-1-n) }",
        "def f(float(N,N) X) -> (Y, s) { t(n) +=! X(n,d)\n Y(n,d) = X(n,d) * t(n)\n"
        " s(d) +=! X(d,n) * t(n) }",
    )
    for text in texts:
        kernel = tcsym.define(text, target="cpu:avx2").f
        x = np.random.default_rng(0).standard_normal((37, 37), "f4")
        for found, wanted in zip(kernel(x), kernel.reference(x), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)


def _arguments(kernel: Any, n: int, d: int) -> list[Any]:
    rng = np.random.default_rng(n + d)
    sizes = {"N": n, "D": d}
    return [
        rng.standard_normal([sizes[str(e)] for e in t.shape]).astype(t.dtype.numpy)
        for t in kernel.program.inputs
    ]


def _several(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, tuple) else (results,)
