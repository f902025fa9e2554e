# SPDX-License-Identifier: Apache-2.0
"""Products of which an operand lies where a tensor says: its checks, and what is empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym

FORMS = {
    "weights": "X(g,n,k) * W(e(g),k,m)",
    "transposed": "X(g,n,k) * V(e(g),m,k)",
    "rows": "U(g,k) * W(e(g),k,m)",
    "both": "W(e(g),k,n) * W(e(g),k,m)",
    "window": "X(g,n,k) * F(e(g),m,k+2)",
}
TEXT = """def f({t}(G,N,K) X, {t}(G,K) U, {t}(E,K,M) W, {t}(E,M,K) V, {t}(E,M,P) F, int32(G) e)
    -> ({t}(G,N,M) Y) {{
  Y(g,n,m) +=! {term} where g in 0:G, n in 0:N, m in 0:M, k in 0:K
}}"""
# G, N, K, M, E
SIZES = [(3, 33, 20, 33, 2), (4, 1, 9, 1, 3), (1, 70, 64, 70, 4), (5, 17, 12, 17, 3)]
EMPTY = [(0, 4, 4, 4, 2), (2, 0, 4, 4, 2), (2, 4, 0, 4, 2), (2, 4, 4, 0, 2)]
NO_TABLE = [(2, 4, 0, 4, 0), (2, 4, 4, 4, 0), (2, 0, 4, 4, 0), (2, 4, 4, 0, 0)]


def outcome(call: Any, *args: Any) -> Any:
    try:
        return call(*args)
    except tcsym.TCError as e:
        return e.kind


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2"])
@pytest.mark.parametrize("kind", ["float", "half"])
@pytest.mark.parametrize("name", FORMS)
def test_positions_are_right_and_asked_for_where_a_product_is(
    name: str, kind: str, target: str
) -> None:
    kernel = tcsym.define(TEXT.format(t=kind, term=FORMS[name]), target=target)
    rng, dtype = np.random.default_rng(0), {"float": "f4", "half": "f2"}[kind]
    for g, n, k, m, e in SIZES + EMPTY + NO_TABLE:
        m = n if name == "both" else m
        shapes = [(g, n, k), (g, k), (e, k, m), (e, m, k), (e, m, k + 2)]
        tensors = [rng.integers(-3, 4, s).astype(dtype) for s in shapes]
        at = rng.integers(0, max(e, 1), g).astype("i4")
        for wrong in (None, -1, e, 2**31 - 1):
            if wrong is not None and g:
                at[g // 2] = wrong
            want, found = outcome(kernel.reference, *tensors, at), outcome(kernel, *tensors, at)
            if isinstance(want, str) or isinstance(found, str):
                assert found == want, (g, n, k, m, e, wrong)
            else:
                np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("name", ["weights", "transposed", "both"])
def test_no_product_asks(name: str) -> None:
    text = tcsym.define(TEXT.format(t="float", term=FORMS[name])).explain("mapped")
    asked = [x for x in text.splitlines() if "?" in x.split("#")[0]]
    assert asked and all(x.lstrip().startswith("verify") for x in asked)
