# SPDX-License-Identifier: Apache-2.0
"""Element-wise chains, reductions, transpositions, gathers, pooling, distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Case, indices, normal

OUTER = Case(
    "outer",
    "contractions",
    "def outer(float(B,I) X, float(B,J) Y) -> (O) { O(b,i,j) = X(b,i) * Y(b,j) }",
    (normal("B I"), normal("B J")),
    lambda X, Y: X[:, :, None] * Y[:, None, :],
    "B*I*J",
    {"outer_256x128x128": {"B": 256, "I": 128, "J": 128}},
    {"B": (1, 300), "I": (1, 300), "J": (1, 300)},
    einsum="bi,bj->bij",
)

LOOKUP = Case(
    "lut1",
    "others",
    "def lut1(float(E,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l),d) }",
    (normal("E D"), indices("B L", below="E")),
    lambda T, at: T[at].sum(1),
    "B*L*D",
    {"lut1_b128_l50_e100k_d64": {"B": 128, "L": 50, "E": 100000, "D": 64}},
    {"B": (1, 256), "L": (1, 80), "E": (10, 100000), "D": (1, 128)},
    traffic="4*(B*L + B*L*D + B*D)",
)


def _max_pool(x: Any) -> Any:
    height, width = (x.shape[2] - 3) // 2 + 1, (x.shape[3] - 3) // 2 + 1
    best = None
    for i in range(3):
        for j in range(3):
            part = x[:, :, i : i + 2 * height - 1 : 2, j : j + 2 * width - 1 : 2]
            best = part if best is None else np.maximum(best, part)
    return best


MAX_POOL = Case(
    "maxpool",
    "others",
    """def maxpool(float(N,C,H,W) I) -> (O) {
  O(n,c,h,w) max=! I(n,c,2*h+kh,2*w+kw) where kh in 0:3, kw in 0:3
}""",
    (normal("N C H W"),),
    _max_pool,
    "9*N*C*((H-3)//2+1)*((W-3)//2+1)",
    {"maxpool3x3s2_n4_c64_113": {"N": 4, "C": 64, "H": 113, "W": 113}},
    {"N": (1, 8), "C": (1, 100), "H": (3, 150), "W": (3, 150)},
)

MIN_DISTANCE = Case(
    "mindist",
    "others",
    """def mindist(float(M,D) X, float(N,D) Y) -> (O) {
  Dist(m,n) +=! (X(m,d) - Y(n,d)) * (X(m,d) - Y(n,d))
  O(m) min=! Dist(m,n)
}""",
    (normal("M D"), normal("N D")),
    lambda X, Y: ((X[:, None, :] - Y[None]) ** 2).sum(-1).min(1),
    "3*M*N*D",
    {"mindist_1024x1024x16": {"M": 1024, "N": 1024, "D": 16}},
    {"M": (1, 1200), "N": (1, 1200), "D": (1, 24)},
)


def _gelu_chain(x: Any, y: Any) -> Any:
    inner = np.float32(0.7978845608) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (1 + np.tanh(inner)) * y + np.tanh(y)


_PLANE = {"M": (1, 3000), "N": (1, 3000)}

GELU = Case(
    "gelu_chain",
    "others",
    """def gelu_chain(float(M,N) X, float(M,N) Y) -> (O) {
  O(m,n) = 0.5*X(m,n)*(1+tanh(0.7978845608*(X(m,n)+0.044715*X(m,n)*X(m,n)*X(m,n))))*Y(m,n)
    + tanh(Y(m,n))
}""",
    (normal("M N"), normal("M N")),
    _gelu_chain,
    "12*M*N",
    {"gelu_chain_4M": {"M": 4096, "N": 1024}},
    _PLANE,
)

ADD_RELU = Case(
    "add_relu",
    "others",
    "def bias_relu(float(M,N) X, float(N) B) -> (O) { O(m,n) = fmax(X(m,n)+B(n), 0) }",
    (normal("M N"), normal("N")),
    lambda X, b: np.maximum(X + b, 0),
    "2*M*N",
    {"add_relu_4M": {"M": 4096, "N": 1024}},
    _PLANE,
)

ROW_SUM = Case(
    "rowsum",
    "others",
    "def rowsum(float(M,N) X) -> (O) { O(m) +=! X(m,n) }",
    (normal("M N"),),
    lambda X: X.sum(1),
    "M*N",
    {"rowsum_4096x1024": {"M": 4096, "N": 1024}},
    _PLANE,
)

TRANSPOSE = Case(
    "transpose",
    "others",
    "def transpose(float(M,N) X) -> (O) { O(n,m) = X(m,n) }",
    (normal("M N"),),
    lambda X: X.T.copy(),  # `ascontiguousarray` copies no single row
    "0",
    {"transpose_2048": {"M": 2048, "N": 2048}},
    _PLANE,
)

# ---- kernels that nobody tunes for

COLUMN_SUM = Case(
    "colsum",
    "others",
    "def colsum(float(M,N) X) -> (O) { O(n) +=! X(m,n) }",
    (normal("M N"),),
    lambda X: X.sum(0),
    "M*N",
    {"colsum_3000x1100": {"M": 3000, "N": 1100}},
    _PLANE,
    part="other",
)

PERMUTE = Case(
    "permute",
    "others",
    "def permute(float(A,B,C,D) X) -> (O) { O(a,c,b,d) = X(a,b,c,d) }",
    (normal("A B C D"),),
    lambda X: X.transpose(0, 2, 1, 3).copy(),
    "0",
    {"permute_8x200x12x64": {"A": 8, "B": 200, "C": 12, "D": 64}},
    {"A": (1, 16), "B": (1, 300), "C": (1, 16), "D": (1, 100)},
    part="other",
)

CASES = (
    OUTER,
    LOOKUP,
    MAX_POOL,
    MIN_DISTANCE,
    GELU,
    ADD_RELU,
    ROW_SUM,
    TRANSPOSE,
    COLUMN_SUM,
    PERMUTE,
)
