# SPDX-License-Identifier: Apache-2.0
"""Programs as large as users write them: the start-up table says how long they compile."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Case, normal

_GATES = """  {0}i(n,j) +=! {1}(n,i) * W{2}(0,j,i)  {0}i(n,j) += h{2}(n,k) * U{2}(0,j,k)
  {0}f(n,j) +=! {1}(n,i) * W{2}(1,j,i)  {0}f(n,j) += h{2}(n,k) * U{2}(1,j,k)
  {0}g(n,j) +=! {1}(n,i) * W{2}(2,j,i)  {0}g(n,j) += h{2}(n,k) * U{2}(2,j,k)
  {0}o(n,j) +=! {1}(n,i) * W{2}(3,j,i)  {0}o(n,j) += h{2}(n,k) * U{2}(3,j,k)
  C{2}(n,j) = c{2}(n,j) / (1.0 + exp(-{0}f(n,j) - b{2}(1,j)))
            + tanh({0}g(n,j) + b{2}(2,j)) / (1.0 + exp(-{0}i(n,j) - b{2}(0,j)))
  H{2}(n,j) = tanh(C{2}(n,j)) / (1.0 + exp(-{0}o(n,j) - b{2}(3,j)))
"""


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _cell(x: Any, h: Any, c: Any, W: Any, U: Any, b: Any) -> Any:
    i, f, g, o = (x @ W[k].T + h @ U[k].T + b[k] for k in range(4))
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _lstm_2(X: Any, h: Any, c: Any, W: Any, U: Any, b: Any, *second: Any) -> Any:
    H1, C1 = _cell(X, h, c, W, U, b)
    H2, C2 = _cell(H1, *second)
    return H1, C1, H2, C2


def _cell_inputs(width: str) -> Any:
    weights = (normal(f"4 H {width}", 0.05), normal("4 H H", 0.05), normal("4 H"))
    return (normal("B H"), normal("B H"), *weights)


LSTM_2 = Case(
    "lstm_2_layers",
    "contractions",
    """def lstm2(float(B,I) X,
          float(B,H) h1, float(B,H) c1, float(4,H,I) W1, float(4,H,H) U1, float(4,H) b1,
          float(B,H) h2, float(B,H) c2, float(4,H,H) W2, float(4,H,H) U2, float(4,H) b2)
          -> (H1, C1, H2, C2) {
"""
    + _GATES.format("p", "X", 1)
    + _GATES.format("q", "H1", 2)
    + "}",
    (normal("B I"), *_cell_inputs("I"), *_cell_inputs("H")),
    _lstm_2,
    "8*B*H*(I+3*H)",
    {"lstm_2_layers_b20_i200_h300": {"B": 20, "I": 200, "H": 300}},
    {"B": (1, 32), "I": (1, 100), "H": (1, 100)},
    part="other",
)


def _block(X: Any, Q: Any, K: Any, V: Any, O: Any, g: Any, W1: Any, b1: Any, W2: Any) -> Any:  # noqa: E741
    q, k, v = (np.einsum("ble,hde->bhld", X, w) for w in (Q, K, V))
    scores = q @ k.transpose(0, 1, 3, 2) * np.float32(q.shape[-1] ** -0.5)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    heads = (e / e.sum(-1, keepdims=True)) @ v
    r = X + np.einsum("bhld,ehd->ble", heads, O)
    n = r / np.sqrt((r * r).mean(-1, keepdims=True) + np.float32(1e-5)) * g
    return r + np.maximum(n @ W1.T + b1, 0) @ W2.T


ATTENTION_BLOCK = Case(
    "attention_block",
    "contractions",
    """def block(float(B,L,E) X, float(H,D,E) WQ, float(H,D,E) WK, float(H,D,E) WV, float(E,H,D) WO,
          float(E) g, float(F,E) W1, float(F) b1, float(E,F) W2) -> (Y) {
  Q(b,h,l,d) +=! X(b,l,e) * WQ(h,d,e)
  K(b,h,l,d) +=! X(b,l,e) * WK(h,d,e)
  V(b,h,l,d) +=! X(b,l,e) * WV(h,d,e)
  A(b,h,l,t) +=! Q(b,h,l,d) * K(b,h,t,d)
  mx(b,h,l) max=! A(b,h,l,t)
  P(b,h,l,t) = exp((A(b,h,l,t) - mx(b,h,l)) * rsqrt(float(D)))
  s(b,h,l) +=! P(b,h,l,t)
  O(b,h,l,d) +=! P(b,h,l,t) * V(b,h,t,d)
  O(b,h,l,d) = O(b,h,l,d) / s(b,h,l)
  R(b,l,e) +=! O(b,h,l,d) * WO(e,h,d)
  R(b,l,e) = R(b,l,e) + X(b,l,e)
  sq(b,l) +=! R(b,l,e) * R(b,l,e)
  N(b,l,e) = R(b,l,e) * rsqrt(sq(b,l) / float(E) + 1e-5) * g(e)
  U(b,l,f) +=! N(b,l,e) * W1(f,e)
  U(b,l,f) = fmax(U(b,l,f) + b1(f), 0)
  Y(b,l,e) +=! U(b,l,f) * W2(e,f)
  Y(b,l,e) = Y(b,l,e) + R(b,l,e)
}""",
    (
        normal("B L E"),
        *(normal("H D E", 0.1), normal("H D E", 0.1), normal("H D E", 0.1), normal("E H D", 0.1)),
        *(normal("E"), normal("F E", 0.1), normal("F"), normal("E F", 0.1)),
    ),
    _block,
    "2*B*L*(4*E*H*D + 2*L*H*D + 2*E*F)",
    {"attention_block_b2_l128_e256": {"B": 2, "L": 128, "E": 256, "H": 4, "D": 64, "F": 1024}},
    {"B": (1, 3), "L": (1, 60), "E": (8, 64), "H": (1, 4), "D": (4, 32), "F": (8, 128)},
    part="other",
)

CASES = (LSTM_2, ATTENTION_BLOCK)
