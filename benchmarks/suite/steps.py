# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers at few and many steps, of small and large batches: one compilation for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tcsym
from benchmarks.case import Case, Draw, Sizes, normal, uniform

STEPS_AND_BATCHES = ((1, 1), (1, 64), (16, 1), (16, 16), (128, 1), (128, 64), (1024, 1), (1024, 16))


def _grid(name: str, rest: Sizes, steps: str = "T", batch: str = "B") -> dict[str, Sizes]:
    return {f"{name}_t{t}_b{b}": {steps: t, batch: b, **rest} for t, b in STEPS_AND_BATCHES}


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _lstm(X: Any, h: Any, c: Any, W: Any, U: Any, b: Any) -> Any:
    n, P = h.shape[1], X @ W.T + b
    states = []
    for p in P:
        i, f, g, o = np.split(p + h @ U.T, [n, 2 * n, 3 * n], axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.stack(states)


def _gru(X: Any, h: Any, W: Any, U: Any, b: Any, c: Any) -> Any:
    n, P = h.shape[1], X @ W.T + b
    states = []
    for p in P:
        r, z, m = np.split(p, [n, 2 * n], axis=1)
        hr, hz, hm = np.split(h @ U.T + c, [n, 2 * n], axis=1)
        z = _sigmoid(z + hz)
        h = (1 - z) * np.tanh(m + _sigmoid(r + hr) * hm) + z * h
        states.append(h)
    return np.stack(states)


def _qrnn(Z: Any, F: Any, out: Any) -> Any:
    c = np.zeros_like(Z[0])
    states = []
    for z, f, o in zip(Z, F, out):
        c = f * c + (1 - f) * z
        states.append(o * c)
    return np.stack(states)


def _state_space(X: Any, D: Any, A: Any, Bm: Any, C: Any) -> Any:
    h = np.zeros((X.shape[1], *A.shape), np.float32)
    out = []
    for x, d, b, c in zip(X, D, Bm, C):
        h = np.exp(-d[:, :, None] * A) * h + (d * x)[:, :, None] * b[:, None, :]
        out.append((h * c[:, None, :]).sum(2))
    return np.stack(out)


def _linear_attention(Q: Any, K: Any, V: Any) -> Any:
    state = np.zeros((Q.shape[1], Q.shape[2], V.shape[2]), np.float32)
    out = []
    for q, k, v in zip(Q, K, V):
        state = state + k[:, :, None] * v[:, None, :]
        out.append((q[:, :, None] * state).sum(1))
    return np.stack(out)


def _viterbi(E: Any, A: Any) -> Any:
    scores = [E[0]]
    for e in E[1:]:
        scores.append((scores[-1][:, :, None] + A).max(1) + e)
    return np.stack(scores)


def _case(
    name: str,
    text: str,
    inputs: tuple[Any, ...],
    reference: Callable[..., Any],
    flops: str,
    rest: Sizes,
    ranges: dict[str, Draw],
    dims: dict[int, str] | None = None,
) -> Case:
    drawn: dict[str, Draw] = {"T": (1, 300), "B": (1, 64), **ranges}
    sizes = _grid(name, rest)
    return Case(
        name, "others", text, inputs, reference, flops, sizes, drawn, "recurrent", "", dims or {}
    )


_HIDDEN: dict[str, Draw] = {"I": (1, 300), "H": (1, 300)}

LSTM = _case(
    "lstm",
    """def lstm(float(T,B,I) X, float(B,H) h0, float(B,H) c0, float(4,H,I) W, float(4,H,H) U,
    float(4,H) b) -> (S) {
  P(t,n,q,h) +=! X(t,n,i) * W(q,h,i)
  State(n,h) = h0(n,h)
  Cell(n,h) = c0(n,h)
  for t in T {
    G(n,q,h) +=! State(n,k) * U(q,h,k)
    G(n,q,h) = G(n,q,h) + P(t,n,q,h) + b(q,h)
    Cell(n,h) = Cell(n,h) / (1.0 + exp(-G(n,1,h))) + tanh(G(n,2,h)) / (1.0 + exp(-G(n,0,h)))
    State(n,h) = tanh(Cell(n,h)) / (1.0 + exp(-G(n,3,h)))
    S(t,n,h) = State(n,h)
  }
}""",
    (
        *(normal("T B I"), normal("B H"), normal("B H")),
        *(normal("4 H I", 0.05), normal("4 H H", 0.05), normal("4 H")),
    ),
    _lstm,
    "8*T*B*H*(I+H)",
    {"I": 256, "H": 256},
    _HIDDEN,
    {3: "4*H I", 4: "4*H H", 5: "4*H"},
)

GRU = _case(
    "gru",
    """def gru(float(T,B,I) X, float(B,H) h0, float(3,H,I) W, float(3,H,H) U, float(3,H) b,
    float(3,H) c) -> (S) {
  P(t,n,q,h) +=! X(t,n,i) * W(q,h,i)
  State(n,h) = h0(n,h)
  for t in T {
    G(n,q,h) +=! State(n,k) * U(q,h,k)
    G(n,q,h) = G(n,q,h) + c(q,h)
    R(n,h) = 1.0 / (1.0 + exp(-(P(t,n,0,h) + b(0,h) + G(n,0,h))))
    Z(n,h) = 1.0 / (1.0 + exp(-(P(t,n,1,h) + b(1,h) + G(n,1,h))))
    N(n,h) = tanh(P(t,n,2,h) + b(2,h) + R(n,h) * G(n,2,h))
    State(n,h) = (1.0 - Z(n,h)) * N(n,h) + Z(n,h) * State(n,h)
    S(t,n,h) = State(n,h)
  }
}""",
    (
        *(normal("T B I"), normal("B H")),
        *(normal("3 H I", 0.05), normal("3 H H", 0.05), normal("3 H"), normal("3 H")),
    ),
    _gru,
    "6*T*B*H*(I+H)",
    {"I": 256, "H": 256},
    _HIDDEN,
    {2: "3*H I", 3: "3*H H", 4: "3*H", 5: "3*H"},
)

QRNN = _case(
    "qrnn_steps",
    tcsym.library.source("qrnn").replace("def qrnn(", "def qrnn_steps("),
    (normal("T B H"), uniform("T B H"), uniform("T B H")),
    _qrnn,
    "5*T*B*H",
    {"H": 256},
    {"H": (1, 300)},
)

STATE_SPACE = _case(
    "state_space",
    """def state_space(float(T,B,D) X, float(T,B,D) Dt, float(D,S) A, float(T,B,S) Bm,
    float(T,B,S) C) -> (Y) {
  for t in T {
    if t == 0 { H(t,b,d,s) = Dt(t,b,d) * X(t,b,d) * Bm(t,b,s) }
    else {
      H(t,b,d,s) = exp(-Dt(t,b,d) * A(d,s)) * H(t-1,b,d,s) + Dt(t,b,d) * X(t,b,d) * Bm(t,b,s)
    }
    Y(t,b,d) +=! H(t,b,d,s) * C(t,b,s)
  }
}""",
    (normal("T B D"), uniform("T B D"), uniform("D S"), normal("T B S"), normal("T B S")),
    _state_space,
    "7*T*B*D*S",
    {"D": 128, "S": 16},
    {"D": (1, 200), "S": (1, 32)},
)

LINEAR_ATTENTION = _case(
    "linear_attention",
    """def linear_attention(float(T,B,K) Q, float(T,B,K) Ke, float(T,B,V) Va) -> (Y) {
  for t in T {
    if t == 0 { S(t,b,k,v) = Ke(t,b,k) * Va(t,b,v) }
    else { S(t,b,k,v) = S(t-1,b,k,v) + Ke(t,b,k) * Va(t,b,v) }
    Y(t,b,v) +=! Q(t,b,k) * S(t,b,k,v)
  }
}""",
    (normal("T B K"), normal("T B K", 0.1), normal("T B V")),
    _linear_attention,
    "4*T*B*K*V",
    {"K": 64, "V": 64},
    {"K": (1, 64), "V": (1, 64)},
)

VITERBI = _case(
    "viterbi_batch",
    """def viterbi_batch(float(T,B,S) E, float(S,S) A) -> (V) {
  for t in T {
    if t == 0 { V(t,b,j) = E(t,b,j) }
    else {
      V(t,b,j) max=! V(t-1,b,i) + A(i,j)
      V(t,b,j) = V(t,b,j) + E(t,b,j)
    }
  }
}""",
    (normal("T B S"), normal("S S")),
    _viterbi,
    "2*T*B*S*S",
    {"S": 64},
    {"S": (2, 100)},
)

CASES = (LSTM, GRU, QRNN, STATE_SPACE, LINEAR_ATTENTION, VITERBI)
