# SPDX-License-Identifier: Apache-2.0
"""Scans whose steps sum few terms for few columns: rows in the lanes, around the borders."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tcsym

RNN = """def f(float(T,B,I) X, float(B,H) h0, float(H,I) W, float(H,H) U, float(H) b) -> (S) {
  P(t,n,h) +=! X(t,n,i) * W(h,i)
  for t in T {
    if t == 0 { S(t,n,h) +=! h0(n,k) * U(h,k) } else { S(t,n,h) +=! S(t-1,n,k) * U(h,k) }
    S(t,n,h) = tanh(S(t,n,h) + P(t,n,h) + b(h))
  }
}"""
TEXTS = {
    "rnn": RNN,
    "double": RNN.replace("float", "double"),
    "last step only": """def f(float(T,B,I) X, float(B,H) h0, float(H,H) U) -> (float(B,H) Y) {
  S(0,n,h) = h0(n,h)
  for t in T { S(t+1,n,h) +=! S(t,n,k) * U(h,k) + X(t,n,0) }
  Y(n,h) = S(T,n,h)
}""",
    "gates": """def f(float(T,B,I) X, float(B,H) h0, float(2,H,H) U) -> (float(T+1,B,H) S) {
  S(0,n,h) = h0(n,h)
  for t in T {
    G(n,q,h) +=! S(t,n,k) * U(q,h,k)
    S(t+1,n,h) = tanh(G(n,0,h)) / (1.0 + exp(-G(n,1,h))) + X(t,n,0)
  }
}""",
    "in place": """def f(float(T,B,I) X, float(B,H) h0, float(H,H) U) -> (float(B,H) Y) {
  Y(n,h) = h0(n,h)
  for t in T {
    G(n,h) +=! Y(n,k) * U(h,k)
    Y(n,h) = tanh(G(n,h)) + X(t,n,0)
  }
}""",
}
ROWS, COLUMNS, STEPS = (1, 7, 8, 15, 16, 17, 33), (1, 2, 3, 4, 5), (1, 2, 7)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", TEXTS)
def test_few_columns(name: str) -> None:
    kernel = tcsym.define(TEXTS[name], strategy="symbolic").f
    rng = np.random.default_rng(0)
    for n, h, t in itertools.product(ROWS, COLUMNS, STEPS):
        sizes = {"T": t, "B": n, "I": 3, "H": h}
        shapes = [(x, _shape(x.shape, sizes)) for x in kernel.signature.inputs.values()]
        inputs = [(rng.standard_normal(s) / 4).astype(x.dtype.numpy) for x, s in shapes]
        for threads in (1, 2):
            got = kernel(*inputs, threads=threads)
            want = kernel.reference(*inputs)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=f"{sizes}")


def _shape(shape: tuple[object, ...], sizes: dict[str, int]) -> list[int]:
    return [sizes.get(str(e), 0) or int(str(e)) for e in shape]
