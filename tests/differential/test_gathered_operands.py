# SPDX-License-Identifier: Apache-2.0
"""Products with gathered rows: right, and out of range where the interpreter is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym

FORMS = {
    "rows": "A(p(i),k) * B(k,j)",
    "steps": "A(i,p(k)) * B(k,j)",
    "both": "A(p(i),p(k)) * B(k,j)",
    "converted": "float(H(p(i),k)) * B(k,j)",
    "scaled": "A(p(i),k) * s(k) * B(k,j)",
    "other side": "A(i,k) * B(p(k),j)",
}
TEXT = """def f(float(Q,K) A, half(Q,K) H, float(K,N) B, int32(M) p, float(K) s)
    -> (float(M,N) O) {{
  O(i,j) +=! {0} where i in 0:M, j in 0:N, k in 0:K
}}"""

SIZES = [(40, 33, 40, 41), (17, 64, 17, 20), (9, 5, 9, 9), (6, 0, 6, 6), (0, 8, 0, 3)]


def outcome(call: Any, *args: Any) -> Any:
    try:
        return call(*args)
    except tcsym.TCError as e:
        return e.kind


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", FORMS)
def test_gathers(name: str) -> None:
    """Positions are asked for where a sum has points, and only there."""
    kernel = tcsym.define(TEXT.format(FORMS[name]))
    rng = np.random.default_rng(0)
    for m, n, k, q in [
        (40, 33, 40, 41),
        (17, 64, 17, 20),
        (9, 5, 9, 9),
        (6, 0, 6, 6),
        (0, 8, 0, 3),
    ]:
        a, b = (rng.integers(-3, 4, s).astype("f4") for s in ((q, k), (k, n)))
        p = rng.integers(0, min(q, k), m).astype("i4") if k else np.zeros(m, "i4")
        s = np.ones(k, "f4") * 2
        for bad in (None, -1, q, k):
            if bad is not None and m:
                p[m // 2] = bad
            args = a, a.astype("f2"), b, p, s
            want, found = outcome(kernel.reference, *args), outcome(kernel, *args)
            if isinstance(want, str):
                assert found == want
            else:
                np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("length", [0, 3])
def test_nothing_is_asked_for_where_another_sum_is_empty(length: int) -> None:
    kernel = tcsym.define("""def f(float(Q,K) A, float(K,N,L) B, int32(M) p) -> (float(M,N) O) {
      O(i,j) +=! A(p(i),k) * B(k,j,l)
    }""")
    a, b = np.ones((5, 7), "f4"), np.ones((7, 33, length), "f4")
    p = np.array([0, 9, 1] * 9, "i4")
    want, found = (outcome(call, a, b, p) for call in (kernel.reference, kernel))
    assert isinstance(want, str) is (length > 0)
    np.testing.assert_array_equal(found, want)


def test_no_copy_of_windows() -> None:
    """A window's elements are many times those of the tensor."""
    text = (
        """def f(float(Q,C) A, float(O,C,3) F, int32(W+2) p) -> (float(O,W) Y) {
      Y(o,w) +=! A(p(w+k),c) * F(o,c,k) where w in 0:W
    }""".replace("W+2", "V")
        .replace("0:W", "0:V-2")
        .replace("(O,W)", "(O,V-2)")
    )
    kernel = tcsym.define(text)
    assert "A_values" not in kernel.explain("mapped")
    rng = np.random.default_rng(1)
    a, f = (rng.integers(-3, 4, s).astype("f4") for s in ((30, 7), (20, 7, 3)))
    p = rng.integers(0, 30, 50).astype("i4")
    np.testing.assert_array_equal(kernel(a, f, p), kernel.reference(a, f, p))
