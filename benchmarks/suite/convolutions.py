# SPDX-License-Identifier: Apache-2.0
"""Convolutions: dense, grouped, depthwise; channels first and last, strided, dilated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.case import Case, normal


def convolution(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    """x(N,C,H,W), w(O,C/groups,KH,KW), by windows and a matrix product for each group."""
    n_out, n_in = w.shape[:2]
    windows = sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    parts = []
    for g in range(groups):
        own = windows[:, g * n_in : (g + 1) * n_in].transpose(0, 2, 3, 1, 4, 5)
        rows = own.reshape(-1, w[0].size)
        weights = w[g * (n_out // groups) : (g + 1) * (n_out // groups)].reshape(-1, w[0].size)
        shape = (x.shape[0], *windows.shape[2:4], n_out // groups)
        parts.append((rows @ weights.T).reshape(shape).transpose(0, 3, 1, 2))
    return np.ascontiguousarray(np.concatenate(parts, 1))


def _text(stride: str) -> str:
    return f"""def conv2d(float(N,C,H,W) I, float(O,C,KH,KW) Wt) -> (Out) {{
  Out(n,o,h,w) +=! I(n,c,{stride}h+kh,{stride}w+kw) * Wt(o,c,kh,kw)
}}"""


CONV = Case(
    "conv",
    "contractions",
    _text(""),
    (normal("N C H W"), normal("O C KH KW")),
    convolution,
    "2*N*O*C*KH*KW*(H-KH+1)*(W-KW+1)",
    {"conv3x3_64x64x56": {"N": 1, "C": 64, "H": 58, "W": 58, "O": 64, "KH": 3, "KW": 3}},
    {
        "N": (1, 8),
        "C": (1, 100),
        "KH": (1, 5),
        "KW": "KH",
        "H": (7, 80),
        "W": (7, 80),
        "O": (1, 100),
    },
)

CONV_STRIDED = Case(
    "conv_s2",
    "contractions",
    _text("2*"),
    (normal("N C H W"), normal("O C KH KW")),
    lambda x, w: convolution(x, w, 2),
    "2*N*O*C*KH*KW*((H-KH)//2+1)*((W-KW)//2+1)",
    {"conv7x7s2_3x64x112": {"N": 1, "C": 3, "H": 229, "W": 229, "O": 64, "KH": 7, "KW": 7}},
    {
        "N": (1, 4),
        "C": (1, 32),
        "KH": (1, 7),
        "KW": "KH",
        "H": (7, 230),
        "W": (7, 230),
        "O": (1, 100),
    },
)

GROUPED = Case(
    "gconv",
    "contractions",
    """def gconv(float(N,G,C,H,W) I, float(G,F,C,KH,KW) W1, float(G,F) B) -> (O) {
  O(n,g,o,h,w) +=! I(n,g,i,h+kh,w+kw) * W1(g,o,i,kh,kw)
  O(n,g,o,h,w) = O(n,g,o,h,w) + B(g,o)
}""",
    (normal("N G C H W"), normal("G F C KH KW"), normal("G F")),
    lambda x, w, b: convolution(x, w, 1, x.shape[1] // w.shape[1]) + b[:, None, None],
    "2*N*G*F*C*KH*KW*(H-KH+1)*(W-KW+1)",
    {
        "gconv_n8_g32_c4_f4_56": {
            "N": 8,
            "G": 32,
            "C": 4,
            "F": 4,
            "H": 56,
            "W": 56,
            "KH": 3,
            "KW": 3,
        }
    },
    {
        "N": (1, 8),
        "G": (2, 32),
        "C": (1, 12),
        "F": (1, 12),
        "KH": (1, 5),
        "KW": "KH",
        "H": (7, 60),
        "W": (7, 60),
    },
    library_dims={0: "N G*C H W", 1: "G*F C KH KW", 2: "G*F"},
)


def depthwise(x: Any, w: Any) -> Any:
    height, width = x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1
    total = np.zeros((*x.shape[:2], height, width), np.float32)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            total += x[:, :, i : i + height, j : j + width] * w[:, 0, i, j][:, None, None]
    return total


DEPTHWISE = Case(
    "dwconv",
    "contractions",
    """def dwconv(float(N,C,H,W) I, float(C,KH,KW) Wt) -> (O) {
  O(n,c,h,w) +=! I(n,c,h+kh,w+kw) * Wt(c,kh,kw)
}""",
    (normal("N C H W"), normal("C KH KW")),
    depthwise,
    "2*N*C*KH*KW*(H-KH+1)*(W-KW+1)",
    {"dwconv3x3_n4_c128_56": {"N": 4, "C": 128, "H": 58, "W": 58, "KH": 3, "KW": 3}},
    {"N": (1, 8), "C": (1, 256), "KH": (1, 7), "KW": "KH", "H": (7, 80), "W": (7, 80)},
    library_dims={1: "C 1 KH KW"},
)

# ---- kernels that nobody tunes for

CHANNELS_LAST = Case(
    "conv_nhwc",
    "contractions",
    """def conv_nhwc(float(N,H,W,C) I, float(KH,KW,C,O) Wt) -> (Out) {
  Out(n,h,w,o) +=! I(n,h+kh,w+kw,c) * Wt(kh,kw,c,o)
}""",
    (normal("N H W C"), normal("KH KW C O")),
    lambda x, w: np.ascontiguousarray(
        convolution(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)).transpose(0, 2, 3, 1)
    ),
    "2*N*O*C*KH*KW*(H-KH+1)*(W-KW+1)",
    {"conv_nhwc_2x30x34x48x40": {"N": 2, "H": 30, "W": 34, "C": 48, "O": 40, "KH": 3, "KW": 3}},
    CONV.ranges,
    part="other",
)


def _dilated(x: Any, w: Any) -> Any:
    length = x.shape[2] - 2 * (w.shape[2] - 1)
    parts = (w[:, :, k] @ x[:, :, 2 * k : 2 * k + length] for k in range(w.shape[2]))
    return sum(parts, np.float32(0))


DILATED = Case(
    "conv1d_d2",
    "contractions",
    """def conv1d_d2(float(N,C,T) I, float(O,C,K) Wt) -> (Out) {
  Out(n,o,t) +=! I(n,c,t+2*k) * Wt(o,c,k)
}""",
    (normal("N C T"), normal("O C K")),
    _dilated,
    "2*N*O*C*K*(T-2*K+2)",
    {"conv1d_d2_4x60x80x700": {"N": 4, "C": 60, "O": 80, "T": 700, "K": 5}},
    {"N": (1, 8), "C": (1, 100), "K": (1, 7), "O": (1, 100), "T": (16, 1500)},
    part="other",
)

CASES = (CONV, CONV_STRIDED, GROUPED, DEPTHWISE, CHANNELS_LAST, DILATED)
