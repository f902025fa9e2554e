# SPDX-License-Identifier: Apache-2.0
"""Normalisations, moments, softmax and its relatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Case, normal


def _group_norm(x: Any, g: Any, b: Any, eps: float = 1e-5) -> Any:
    mean = x.mean((2, 3, 4), keepdims=True)
    var = x.var((2, 3, 4), keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * g[None, :, :, None, None] + b[None, :, :, None, None]


GROUP_NORM = Case(
    "groupnorm",
    "others",
    """def group_normalization(float(N,G,D,H,W) I, float(G,D) gamma, float(G,D) beta) -> (O) {
  mean(n,g) +=! I(n,g,r_d,r_h,r_w)
  var(n,g)  +=! I(n,g,r_d,r_h,r_w) * I(n,g,r_d,r_h,r_w)
  O(n,g,d,h,w) = gamma(g,d) * (I(n,g,d,h,w) - mean(n,g)/(D*H*W))
    * rsqrt(var(n,g)/(D*H*W) - mean(n,g)/(D*H*W)*mean(n,g)/(D*H*W) + 1e-5) + beta(g,d)
}""",
    (normal("N G D H W"), normal("G D"), normal("G D")),
    _group_norm,
    "8*N*G*D*H*W",
    {"groupnorm_n8_g32_d8_28": {"N": 8, "G": 32, "D": 8, "H": 28, "W": 28}},
    {"N": (1, 8), "G": (1, 32), "D": (2, 16), "H": (4, 40), "W": (4, 40)},
)

MOMENTS = Case(
    "moments",
    "others",
    """def moments(float(N,C,H,W) I) -> (mean, var) {
  mean(c) +=! I(r_n,c,r_h,r_w)
  mean(c) = mean(c) / (N*H*W)
  var(c) +=! (I(r_n,c,r_h,r_w) - mean(c)) * (I(r_n,c,r_h,r_w) - mean(c))
  var(c) = var(c) / (N*H*W)
}""",
    (normal("N C H W"),),
    lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))),
    "4*N*C*H*W",
    {"moments_n32_c64_28": {"N": 32, "C": 64, "H": 28, "W": 28}},
    {"N": (1, 32), "C": (1, 128), "H": (4, 40), "W": (4, 40)},
)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


SOFTMAX = Case(
    "softmax",
    "others",
    """def softmax(float(N,D) I) -> (O) {
  mx(n) max=! I(n,d)
  O(n,d) = exp(I(n,d) - mx(n))
  s(n) +=! O(n,d)
  O(n,d) = O(n,d) / s(n)
}""",
    (normal("N D"),),
    softmax,
    "5*N*D",
    {"softmax_1024x1000": {"N": 1024, "D": 1000}},
    {"N": (1, 2048), "D": (1, 2048)},
)


def _layer_norm(x: Any, g: Any, b: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


LAYER_NORM = Case(
    "layernorm",
    "others",
    """def layernorm(float(N,D) I, float(D) gamma, float(D) beta) -> (O) {
  mean(n) +=! I(n,d)
  mean(n) = mean(n) / D
  var(n) +=! (I(n,d) - mean(n)) * (I(n,d) - mean(n))
  O(n,d) = (I(n,d) - mean(n)) * rsqrt(var(n)/D + 1e-5) * gamma(d) + beta(d)
}""",
    (normal("N D"), normal("D"), normal("D")),
    _layer_norm,
    "8*N*D",
    {"layernorm_2048x768": {"N": 2048, "D": 768}},
    {"N": (1, 2048), "D": (2, 2048)},
)

# ---- kernels that nobody tunes for


def _causal_softmax(x: Any) -> Any:
    keep = np.tril(np.ones(x.shape[-2:], bool))
    return softmax(np.where(keep, x, np.float32(-np.inf)))


CAUSAL_SOFTMAX = Case(
    "causal_softmax",
    "others",
    """def causal_softmax(float(N,L,L) X) -> (O) {
  mx(n,i) max=! j <= i ? X(n,i,j) : -INFINITY
  E(n,i,j) = j <= i ? exp(X(n,i,j) - mx(n,i)) : 0.0
  s(n,i) +=! E(n,i,j)
  O(n,i,j) = E(n,i,j) / s(n,i)
}""",
    (normal("N L L"),),
    _causal_softmax,
    "3*N*L*L",
    {"causal_softmax_16x300": {"N": 16, "L": 300}},
    {"N": (1, 32), "L": (1, 500)},
    part="other",
)


def _log_softmax(x: Any) -> Any:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


LOG_SOFTMAX = Case(
    "log_softmax",
    "others",
    """def log_softmax(float(N,D) X) -> (O) {
  mx(n) max=! X(n,d)
  s(n) +=! exp(X(n,d) - mx(n))
  O(n,d) = X(n,d) - mx(n) - log(s(n))
}""",
    (normal("N D"),),
    _log_softmax,
    "4*N*D",
    {"log_softmax_700x1500": {"N": 700, "D": 1500}},
    SOFTMAX.ranges,
    part="other",
)


def _batch_norm(x: Any, g: Any, b: Any) -> Any:
    mean = x.mean((0, 2, 3), keepdims=True)
    scale = g[:, None, None] / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
    return (x - mean) * scale + b[:, None, None]


BATCH_NORM = Case(
    "batchnorm",
    "others",
    """def batchnorm(float(N,C,H,W) X, float(C) g, float(C) b) -> (O) {
  mean(c) +=! X(n,c,h,w)
  mean(c) = mean(c) / (N*H*W)
  var(c) +=! (X(n,c,h,w) - mean(c)) * (X(n,c,h,w) - mean(c))
  O(n,c,h,w) = (X(n,c,h,w) - mean(c)) * rsqrt(var(c) / (N*H*W) + 1e-5) * g(c) + b(c)
}""",
    (normal("N C H W"), normal("C"), normal("C")),
    _batch_norm,
    "7*N*C*H*W",
    {"batchnorm_n12_c50_30x28": {"N": 12, "C": 50, "H": 30, "W": 28}},
    {"N": (2, 32), "C": (1, 128), "H": (4, 40), "W": (4, 40)},
    part="other",
)

CASES = (GROUP_NORM, MOMENTS, SOFTMAX, LAYER_NORM, CAUSAL_SOFTMAX, LOG_SOFTMAX, BATCH_NORM)
