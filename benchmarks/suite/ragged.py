# SPDX-License-Identifier: Apache-2.0
"""Ranges that depend on indices or on data, and scattered results."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.case import Case, indices, normal, offsets

_WINDOW = 64


def _segments(X: Any, off: Any) -> Any:
    """Sums of rows between offsets."""
    return np.stack([X[a:b].sum(0) for a, b in pairwise(off)])


BAG = Case(
    "ragged_bag",
    "others",
    """def ragged_bag(float(V,D) E, int32(M) id, int32(P) off) -> (Y) {
  Y(b,d) +=! E(id(j), d) where j in off(b):off(b+1)
}""",
    (normal("V D"), indices("M", "V"), offsets("P", "M")),
    lambda E, at, off: _segments(E[at], off),
    "M*D",
    {"ragged_bag_256x64": {"V": 20000, "D": 64, "M": 8000, "P": 257}},
    {"V": (10, 20000), "D": (1, 256), "M": (1, 8000), "P": (3, 400)},
    part="ragged",
)

SEGMENT_SUM = Case(
    "segment_sum",
    "others",
    """def segment_sum(float(M,D) X, int32(P) off) -> (Y) {
  Y(s,d) +=! X(j,d) where j in off(s):off(s+1)
}""",
    (normal("M D"), offsets("P", "M")),
    _segments,
    "M*D",
    {"segment_sum_8000x64": {"D": 64, "M": 8000, "P": 257}},
    {"D": (1, 256), "M": (1, 10000), "P": (3, 400)},
    part="ragged",
)

CSR = Case(
    "csr_dense",
    "others",
    """def csr_dense(float(M) value, int32(M) column, int32(P) off, float(K,D) X) -> (Y) {
  Y(r,d) +=! value(j) * X(column(j), d) where j in off(r):off(r+1)
}""",
    (normal("M"), indices("M", "K"), offsets("P", "M"), normal("K D")),
    lambda value, column, off, X: _segments(value[:, None] * X[column], off),
    "2*M*D",
    {"csr_dense_1000x1000x64": {"M": 20000, "P": 1001, "K": 1000, "D": 64}},
    {"M": (1, 20000), "P": (3, 1000), "K": (1, 1000), "D": (1, 128)},
    part="ragged",
)


def _histogram(at: Any) -> Any:
    return np.bincount(at, minlength=256).astype(np.int32)


CSR_VECTOR = Case(
    "csr_vector",
    "others",
    """def csr_vector(float(M) value, int32(M) column, int32(P) off, float(K) X) -> (Y) {
  Y(r) +=! value(j) * X(column(j)) where j in off(r):off(r+1)
}""",
    (normal("M"), indices("M", "K"), offsets("P", "M"), normal("K")),
    lambda value, column, off, X: _segments((value * X[column])[:, None], off)[:, 0],
    "2*M",
    {"csr_vector_20000x20000": {"M": 400000, "P": 20001, "K": 20000}},
    {"P": (3, 20000), "K": (1, 20000), "R": (1, 64), "M": "P*R"},
    part="ragged",
)

HISTOGRAM = Case(
    "histogram",
    "others",
    """def histogram(int32(N) bin) -> (int32(256) H) {
  H(bin(i)) +=! 1
}""",
    (indices("N", "K"),),
    _histogram,
    "N",
    {"histogram_1000000": {"N": 1000000, "K": 256}},
    {"N": (64, 2000000), "K": (1, 256)},
    part="ragged",
)


def _scatter_rows(base: Any, X: Any, at: Any) -> Any:
    out = base.copy()
    np.add.at(out, at, X)
    return out


SCATTER_ROWS = Case(
    "scatter_rows",
    "others",
    """def scatter_rows(float(V,D) Base, float(M,D) X, int32(M) id) -> (Y) {
  Y(v,d) = Base(v,d)
  Y(id(j),d) += X(j,d)
}""",
    (normal("V D"), normal("M D"), indices("M", "V")),
    _scatter_rows,
    "M*D",
    {"scatter_rows_5000x64": {"V": 1000, "D": 64, "M": 5000}},
    {"V": (1, 5000), "D": (1, 256), "M": (1, 5000)},
    part="ragged",
)


def _attention(seen: Any) -> Any:
    def run(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
        rows, columns = np.indices(scores.shape[-2:])
        scores = np.where(seen(rows, columns), scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True)) @ v

    return run


def _attention_text(name: str, first: str) -> str:
    return f"""def {name}(float(B,H,L,D) Q, float(B,H,L,D) K, float(B,H,L,D) V) -> (O) {{
  A(b,h,l,s) +=! Q(b,h,l,d) * K(b,h,s,d)
  m(b,h,l) max=! A(b,h,l,s) where s in {first}:l+1
  z(b,h,l) +=! exp((A(b,h,l,s) - m(b,h,l)) * rsqrt(float(D))) where s in {first}:l+1
  O(b,h,l,e) +=! exp((A(b,h,l,s) - m(b,h,l)) * rsqrt(float(D))) * V(b,h,s,e)
    where s in {first}:l+1
  O(b,h,l,e) = O(b,h,l,e) / z(b,h,l)
}}"""


CAUSAL = Case(
    "ranged_causal_attention",
    "contractions",
    _attention_text("ranged_causal_attention", "0"),
    (normal("B H L D"), normal("B H L D"), normal("B H L D")),
    _attention(lambda rows, columns: columns <= rows),
    "2*B*H*L*L*D",
    {f"causal_l{n}": {"B": 1, "H": 4, "L": n, "D": 64} for n in (512, 1024, 2048, 4096)},
    {"B": (1, 2), "H": (1, 4), "L": (512, 4096), "D": (16, 128)},
    part="ragged",
)

WINDOWED = Case(
    "window_attention",
    "contractions",
    _attention_text("window_attention", f"max(l-{_WINDOW - 1},0)"),
    (normal("B H L D"), normal("B H L D"), normal("B H L D")),
    _attention(lambda rows, columns: (columns <= rows) & (columns > rows - _WINDOW)),
    f"4*B*H*L*{_WINDOW}*D",
    {f"window_l{n}": {"B": 1, "H": 4, "L": n, "D": 64} for n in (512, 1024, 2048)},
    {"B": (1, 2), "H": (1, 8), "L": (64, 1024), "D": (16, 96)},
    part="ragged",
)


def _mixture(X: Any, W: Any, chosen: Any, gate: Any) -> Any:
    """By experts: each one product with the tokens that chose it."""
    Y = np.zeros((len(X), W.shape[1]), np.float32)
    for e in range(len(W)):
        for j in range(chosen.shape[1]):
            n = np.flatnonzero(chosen[:, j] == e)
            Y[n] += gate[n, j, None] * (X[n] @ W[e].T)
    return Y


MIXTURE = Case(
    "mixture",
    "others",
    """def mixture(float(N,K) X, float(E,M,K) W, int32(N,2) chosen, float(N,2) gate) -> (Y) {
  Y(n,m) +=! gate(n,j) * X(n,k) * W(chosen(n,j),m,k)
}""",
    (normal("N K"), normal("E M K", 0.1), indices("N 2", "E"), normal("N 2")),
    _mixture,
    "4*N*K*M",
    {
        "mixture_128x256": {"N": 128, "E": 8, "M": 256, "K": 256},
        "mixture_512x512": {"N": 512, "E": 8, "M": 512, "K": 512},
    },
    {"N": (1, 1024), "E": (2, 16), "M": (16, 512), "K": (16, 512)},
    part="ragged",
)

CASES = (BAG, SEGMENT_SUM, CSR, CSR_VECTOR, HISTOGRAM, SCATTER_ROWS, CAUSAL, WINDOWED, MIXTURE)
