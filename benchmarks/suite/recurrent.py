# SPDX-License-Identifier: Apache-2.0
"""Recurrences in time, and WaveNet's block."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Case, normal, uniform


def _rnn(X: Any, h: Any, W: Any, U: Any, b: Any) -> Any:
    P = X @ W.T + b
    states = []
    for p in P:
        h = np.tanh(p + h @ U.T)
        states.append(h)
    return np.stack(states)


RNN = Case(
    "rnn",
    "contractions",
    """def rnn(float(T,B,I) X, float(B,H) H0, float(H,I) W, float(H,H) U, float(H) bias) -> (S) {
  P(t,b,h) +=! X(t,b,i) * W(h,i)
  for t in T {
    if t == 0 { S(t,b,h) +=! H0(b,k) * U(h,k) }
    else { S(t,b,h) +=! S(t-1,b,k) * U(h,k) }
    S(t,b,h) = tanh(S(t,b,h) + P(t,b,h) + bias(h))
  }
}""",
    (normal("T B I"), normal("B H"), normal("H I", 0.05), normal("H H", 0.05), normal("H")),
    _rnn,
    "2*T*B*H*(I+H)",
    {"rnn_t32_b32_h256": {"T": 32, "B": 32, "I": 256, "H": 256}},
    {"T": (1, 50), "B": (1, 64), "I": (1, 400), "H": (1, 300)},
)


def _qrnn(Z: Any, F: Any, out: Any) -> Any:
    c = np.zeros_like(Z[0])
    states = []
    for t in range(len(Z)):
        c = F[t] * c + (1 - F[t]) * Z[t]
        states.append(out[t] * c)
    return np.stack(states)


QRNN = Case(
    "qrnn",
    "others",
    """def qrnn(float(T,B,H) Z, float(T,B,H) Fg, float(T,B,H) O) -> (Hh) {
  for t in T {
    if t == 0 { C(t,b,h) = (1.0 - Fg(t,b,h)) * Z(t,b,h) }
    else { C(t,b,h) = Fg(t,b,h) * C(t-1,b,h) + (1.0 - Fg(t,b,h)) * Z(t,b,h) }
  }
  Hh(t,b,h) = O(t,b,h) * C(t,b,h)
}""",
    (normal("T B H"), uniform("T B H"), uniform("T B H")),
    _qrnn,
    "5*T*B*H",
    {"qrnn_t256_b32_h256": {"T": 256, "B": 32, "H": 256}},
    {"T": (1, 300), "B": (1, 40), "H": (1, 300)},
)


def _wavenet(X: Any, FW: Any, FB: Any, GW: Any, GB: Any, RW: Any, RB: Any, SW: Any, SB: Any) -> Any:
    late = np.zeros_like(X)
    late[:, :, 32:] = X[:, :, :-32]

    def convolved(W: Any, b: Any) -> Any:
        return W[:, :, 1] @ X + W[:, :, 0] @ late + b[:, None]

    gated = np.tanh(convolved(FW, FB)) / (1 + np.exp(-convolved(GW, GB)))
    return X + RB[:, None] + RW @ gated, SW @ gated + SB[:, None]


WAVENET = Case(
    "wavenet",
    "contractions",
    """def wavenet1(float(B,RC,RF) Data, float(DC,RC,2) FW, float(DC) FB, float(DC,RC,2) GW,
             float(DC) GB, float(RC,DC) RW, float(RC) RB, float(SC,DC) SW, float(SC) SB)
             -> (Res, Skip) {
  Fo(b,c,t) = FB(c) where b in 0:B, t in 0:RF
  Fo(b,c,t) += Data(b,r,t) * FW(c,r,1) + ((t - 32 >= 0) ? Data(b,r,t-32) * FW(c,r,0) : 0)
  Go(b,c,t) = GB(c) where b in 0:B, t in 0:RF
  Go(b,c,t) += Data(b,r,t) * GW(c,r,1) + ((t - 32 >= 0) ? Data(b,r,t-32) * GW(c,r,0) : 0)
  NL(b,c,t) = tanh(Fo(b,c,t)) / (1 + exp(-Go(b,c,t)))
  Res(b,r,t) = Data(b,r,t) + RB(r)
  Res(b,r,t) += NL(b,c,t) * RW(r,c)
  Skip(b,s,t) +=! NL(b,c,t) * SW(s,c)
  Skip(b,s,t) = Skip(b,s,t) + SB(s)
}""",
    (
        normal("B RC RF"),
        *(normal("DC RC 2", 0.2), normal("DC")),
        *(normal("DC RC 2", 0.2), normal("DC")),
        *(normal("RC DC", 0.2), normal("RC")),
        *(normal("SC DC", 0.2), normal("SC")),
    ),
    _wavenet,
    "2*B*RF*(4*RC*DC + RC*DC + DC*SC)",
    {"wavenet_b1_r32_s256_rf4000": {"B": 1, "RC": 32, "DC": 32, "SC": 256, "RF": 4000}},
    {"B": (1, 4), "RC": (4, 48), "DC": (4, 48), "SC": (8, 256), "RF": (40, 4000)},
)

# ---- kernels that nobody tunes for


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _lstm_cell(X: Any, h: Any, c: Any, W: Any, U: Any, b: Any) -> Any:
    n = h.shape[1]
    gates = X @ W.T + h @ U.T + b
    i, f, g, o = (gates[:, k * n : (k + 1) * n] for k in range(4))
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


LSTM_CELL = Case(
    "lstm_cell",
    "contractions",
    """def lstm_cell(float(B,I) X, float(B,H) H0, float(B,H) C0, float(4,H,I) W, float(4,H,H) U,
              float(4,H) b) -> (H1, C1) {
  G(g,n,j) = b(g,j) where n in 0:B
  G(g,n,j) += X(n,i) * W(g,j,i)
  G(g,n,j) += H0(n,k) * U(g,j,k)
  C1(n,j) = C0(n,j) / (1.0 + exp(-G(1,n,j))) + tanh(G(2,n,j)) / (1.0 + exp(-G(0,n,j)))
  H1(n,j) = tanh(C1(n,j)) / (1.0 + exp(-G(3,n,j)))
}""",
    (
        *(normal("B I"), normal("B H"), normal("B H")),
        *(normal("4 H I", 0.05), normal("4 H H", 0.05), normal("4 H")),
    ),
    _lstm_cell,
    "8*B*H*(I+H)",
    {"lstm_cell_b20_i200_h300": {"B": 20, "I": 200, "H": 300}},
    {"B": (1, 64), "I": (1, 400), "H": (1, 400)},
    part="other",
    library_dims={3: "4*H I", 4: "4*H H", 5: "4*H"},
)


def _viterbi(E: Any, A: Any) -> Any:
    scores = [E[0]]
    for e in E[1:]:
        scores.append((scores[-1][:, None] + A).max(0) + e)
    return np.stack(scores)


VITERBI = Case(
    "viterbi",
    "others",
    """def viterbi(float(T,S) E, float(S,S) A) -> (V) {
  for t in T {
    if t == 0 { V(t,j) = E(t,j) }
    else {
      V(t,j) max=! V(t-1,i) + A(i,j)
      V(t,j) = V(t,j) + E(t,j)
    }
  }
}""",
    (normal("T S"), normal("S S")),
    _viterbi,
    "2*T*S*S",
    {"viterbi_100x130": {"T": 100, "S": 130}},
    {"T": (1, 200), "S": (2, 200)},
    part="other",
)

PREFIX_SUM = Case(
    "prefix_sum",
    "others",
    """def prefix_sum(float(B,N) X) -> (Y) {
  for i in N {
    if i == 0 { Y(b,i) = X(b,i) } else { Y(b,i) = Y(b,i-1) + X(b,i) }
  }
}""",
    (normal("B N"),),
    lambda X: X.cumsum(1),
    "B*N",
    {"prefix_sum_500x1200": {"B": 500, "N": 1200}},
    {"B": (1, 1000), "N": (1, 2000)},
    part="other",
)

CASES = (RNN, QRNN, WAVENET, LSTM_CELL, VITERBI, PREFIX_SUM)
