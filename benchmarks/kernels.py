"""Ten kernels of different kinds, the same in numpy and torch, and sizes to run them at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """`shapes`: the dimensions of each input (float32) by size names."""

    name: str
    source: str
    shapes: Mapping[str, tuple[str, ...]]
    sizes: tuple[Mapping[str, int], ...]
    numpy: Callable[..., Any]
    torch: Callable[..., Any] | None = None
    flops: Callable[[Mapping[str, int]], float] | None = None

    def inputs(self, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        made = {}
        for name, dims in self.shapes.items():
            x = rng.standard_normal([sizes[d] for d in dims], dtype=np.float32)
            # weights scaled by their fan-in: a recurrence of random ones would be chaotic
            made[name] = x / np.float32(np.sqrt(x.shape[-1])) if name.startswith("W") else x
        return made


def _softmax(X: Any) -> Any:
    e = np.exp(X - X.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _layer_norm(X: Any, g: Any, b: Any) -> Any:
    m = X.mean(1, keepdims=True)
    v = X.var(1, keepdims=True)
    return (X - m) / np.sqrt(v + 1e-5) * g + b


def _convolution(X: Any, K: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(X, K.shape[2:], (2, 3))
    return np.einsum("nchwyx,ocyx->nohw", windows, K, optimize=True)


def _attention(Q: Any, K: Any, V: Any) -> Any:
    return _softmax(Q @ K.T * 0.125) @ V


def _recurrent(X: Any, Wx: Any, Wh: Any) -> Any:
    h = np.zeros((X.shape[0], X.shape[1], Wh.shape[0]), np.float32)
    for t in range(X.shape[0]):
        h[t] = np.tanh(X[t] @ Wx.T + (h[t - 1] @ Wh.T if t else 0))
    return h


def _torch(call: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arrays: Any) -> Any:
        import torch

        return call(torch, *arrays)

    return run


def _torch_recurrent(torch: Any, X: Any, Wx: Any, Wh: Any) -> Any:
    z = torch.matmul(X, Wx.t())
    out = torch.empty_like(z)
    h = None
    for t in range(X.shape[0]):
        h = torch.tanh(z[t] if h is None else torch.addmm(z[t], h, Wh.t()))
        out[t] = h
    return out


CASES = (
    Case(
        "linear + relu",
        """def linear(float(B,K) X, float(K,N) W, float(N) b) -> (Y) {
  Y(i,j) +=! X(i,k) * W(k,j)
  Y(i,j) = fmax(Y(i,j) + b(j), 0)
}""",
        {"X": ("B", "K"), "W": ("K", "N"), "b": ("N",)},
        ({"B": 128, "K": 1024, "N": 1024}, {"B": 97, "K": 300, "N": 211}),
        lambda X, W, b: np.maximum(X @ W + b, 0),
        _torch(lambda t, X, W, b: t.relu_(t.addmm(b, X, W))),
        lambda s: 2.0 * s["B"] * s["K"] * s["N"],
    ),
    Case(
        "matmul, both transposed",
        "def tt(float(K,M) A, float(N,K) B) -> (C) { C(m,n) +=! A(k,m) * B(n,k) }",
        {"A": ("K", "M"), "B": ("N", "K")},
        ({"M": 512, "N": 512, "K": 512}, {"M": 255, "N": 257, "K": 253}),
        lambda A, B: A.T @ B.T,
        _torch(lambda t, A, B: A.t() @ B.t()),
        lambda s: 2.0 * s["M"] * s["N"] * s["K"],
    ),
    Case(
        "batched matmul",
        "def bmm(float(B,N,M) X, float(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }",
        {"X": ("B", "N", "M"), "Y": ("B", "K", "M")},
        ({"B": 500, "N": 26, "M": 72, "K": 26},),
        lambda X, Y: X @ Y.transpose(0, 2, 1),
        _torch(lambda t, X, Y: t.bmm(X, Y.transpose(1, 2))),
        lambda s: 2.0 * s["B"] * s["N"] * s["M"] * s["K"],
    ),
    Case(
        "convolution 3x3",
        """def conv(float(N,C,H,W) X, float(O,C,KH,KW) K) -> (Y) {
  Y(n,o,h,w) +=! X(n,c,h+p,w+q) * K(o,c,p,q)
}""",
        {"X": ("N", "C", "H", "W"), "K": ("O", "C", "KH", "KW")},
        (
            {"N": 1, "C": 64, "H": 58, "W": 58, "O": 64, "KH": 3, "KW": 3},
            {"N": 2, "C": 13, "H": 37, "W": 41, "O": 21, "KH": 3, "KW": 3},
        ),
        _convolution,
        _torch(lambda t, X, K: t.nn.functional.conv2d(X, K)),
        lambda s: 2.0 * s["N"] * s["O"] * s["C"] * 9 * (s["H"] - 2) * (s["W"] - 2),
    ),
    Case(
        "softmax",
        """def softmax(float(N,D) X) -> (Y) {
  m(i) max=! X(i,j)
  e(i,j) = exp(X(i,j) - m(i))
  s(i) +=! e(i,j)
  Y(i,j) = e(i,j) / s(i)
}""",
        {"X": ("N", "D")},
        ({"N": 1024, "D": 1000}, {"N": 100, "D": 37}),
        _softmax,
        _torch(lambda t, X: t.softmax(X, 1)),
    ),
    Case(
        "layer norm",
        """def layer_norm(float(N,D) X, float(D) g, float(D) b) -> (Y) {
  m(i) +=! X(i,j)
  m(i) = m(i) / D
  v(i) +=! (X(i,j) - m(i)) * (X(i,j) - m(i))
  Y(i,j) = (X(i,j) - m(i)) * rsqrt(v(i) / D + 1e-5) * g(j) + b(j)
}""",
        {"X": ("N", "D"), "g": ("D",), "b": ("D",)},
        ({"N": 2048, "D": 768}, {"N": 100, "D": 37}),
        _layer_norm,
        _torch(lambda t, X, g, b: t.nn.functional.layer_norm(X, X.shape[1:], g, b)),
    ),
    Case(
        "attention",
        """def attention(float(S,D) Q, float(U,D) K, float(U,E) V) -> (O) {
  P(s,u) +=! Q(s,d) * K(u,d)
  P(s,u) = P(s,u) * 0.125
  m(s) max=! P(s,u)
  e(s,u) = exp(P(s,u) - m(s))
  z(s) +=! e(s,u)
  A(s,u) = e(s,u) / z(s)
  O(s,x) +=! A(s,u) * V(u,x)
}""",
        {"Q": ("S", "D"), "K": ("U", "D"), "V": ("U", "E")},
        ({"S": 512, "U": 512, "D": 64, "E": 64}, {"S": 77, "U": 131, "D": 64, "E": 64}),
        _attention,
        _torch(
            lambda t, Q, K, V: t.nn.functional.scaled_dot_product_attention(
                Q[None, None], K[None, None], V[None, None], scale=0.125
            )[0, 0]
        ),
        lambda s: 4.0 * s["S"] * s["U"] * s["D"],
    ),
    Case(
        "recurrent network",
        """def rnn(float(T,B,I) X, float(H,I) Wx, float(H,H) Wh) -> (float(T,B,H) h) {
  for t in T {
    z(b,i) +=! X(t,b,k) * Wx(i,k)
    if t > 0 { z(b,i) += h(t-1,b,j) * Wh(i,j) }
    h(t,b,i) = tanh(z(b,i))
  }
}""",
        {"X": ("T", "B", "I"), "Wx": ("H", "I"), "Wh": ("H", "H")},
        ({"T": 32, "B": 32, "I": 128, "H": 256},),
        _recurrent,
        _torch(_torch_recurrent),
        lambda s: 2.0 * s["T"] * s["B"] * s["H"] * (s["H"] + s["I"]),
    ),
    Case(
        "column sum",
        "def colsum(float(M,N) X) -> (Y) { Y(j) +=! X(i,j) }",
        {"X": ("M", "N")},
        ({"M": 4096, "N": 1000}, {"M": 333, "N": 77}),
        lambda X: X.sum(0),
        _torch(lambda t, X: X.sum(0)),
    ),
    Case(
        "gelu",
        """def gelu(float(M,N) X) -> (Y) {
  Y(i,j) = 0.5 * X(i,j) * (1 + tanh(0.7978845608 * (X(i,j) + 0.044715 * X(i,j) * X(i,j) * X(i,j))))
}""",
        {"X": ("M", "N")},
        ({"M": 1024, "N": 1024},),
        lambda X: 0.5 * X * (1 + np.tanh(0.7978845608 * (X + 0.044715 * X**3))),
        _torch(lambda t, X: t.nn.functional.gelu(X, approximate="tanh")),
    ),
    Case(
        "transposition",
        "def tr(float(M,N) X) -> (Y) { Y(j,i) = X(i,j) }",
        {"X": ("M", "N")},
        ({"M": 2048, "N": 2048}, {"M": 300, "N": 1000}),
        lambda X: np.ascontiguousarray(X.T),
        _torch(lambda t, X: X.t().contiguous()),
    ),
)
