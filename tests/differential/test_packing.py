# SPDX-License-Identifier: Apache-2.0
"""Panels operand by operand: every choice is right, and each is code of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym

PROGRAMS = {
    "rows lie apart": "def f(float(K,M) A, float(N,K) B) -> (C) { C(i,j) +=! A(k,i) * B(j,k) }",
    "batched, integers": """
def f(int32(B,N,M) X, int32(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }""",
    "windows, epilogue": """
def f(float(N,C,H,W) I, float(O,C,KH,KW) F, float(O) b) -> (R) {
  R(n,o,h,w) +=! I(n,c,h+kh,w+kw) * F(o,c,kh,kw)
  R(n,o,h,w) = max(R(n,o,h,w) + b(o), 0.0)
}""",
}
COMPUTED = {
    "half, few columns": """
def f(half(M,K) A, half(N,K) B) -> (C) { C(i,j) +=! A(i,k) * B(j,k) }""",
    "int8, scaled": """
def f(int8(M,K) A, float(K,N) B, float(K) s) -> (C) {
  C(i,j) +=! float(A(i,k)) * s(k) * B(k,j)
}""",
    "sum of two, batched": """
def f(float(B,M,K) X, float(B,M,K) Y, float(N,K) W) -> (Z) {
  Z(b,i,j) +=! (X(b,i,k) + Y(b,i,k)) * W(j,k)
}""",
}
SMALL = {"KH": 2, "KW": 3}


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("name", "target"), [*((x, "cpu") for x in PROGRAMS), ("batched, integers", "cpu:novector")]
)
def test_operands_that_are_packed(name: str, target: str) -> None:
    kernel = tcsym.define(PROGRAMS[name], target=target)["f"]
    for size in (1, 6) if name.startswith("windows") else (1, 7, 18):
        inputs = _inputs(kernel, size)
        np.testing.assert_array_equal(kernel(*inputs), kernel.reference(*inputs))


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", ["cpu", "cpu:novector"])
@pytest.mark.parametrize("name", COMPUTED)
def test_operands_are_computed_before_they_are_packed(name: str, target: str) -> None:
    kernel = tcsym.define(COMPUTED[name], target=target)["f"]
    for size in (1, 5, 7, 18, 33):
        inputs = _inputs(kernel, size)
        np.testing.assert_array_equal(kernel(*inputs), kernel.reference(*inputs))


def _inputs(kernel: Any, size: int) -> list[Any]:
    """Small integers, of which sums are exact."""
    random = np.random.default_rng(size)
    sizes = {n: size + k for k, n in enumerate(kernel.sizes)}
    sizes |= {n: v for n, v in SMALL.items() if n in sizes}
    sizes |= {n: sizes[n] + 3 for n in ("H", "W") if n in sizes}
    return [
        random.integers(-3, 4, [sizes[str(d)] for d in t.shape]).astype(t.dtype.numpy)
        for t in kernel.signature.inputs.values()
    ]
