# SPDX-License-Identifier: Apache-2.0
"""Programs of the tests of this stage, by name."""

from __future__ import annotations

from tcsym.compiler import analyse
from tcsym.frontend.program import Program
from tcsym.options import Fusion, Options
from tcsym.proved import Scheduled, schedule_program

SOURCES = {
    "matmul_bias_relu": """
def mm(float(M,K) A, float(K,N) B, float(N) b) -> (O) {
  C(m,n) +=! A(m,k) * B(k,n)
  O(m,n) = fmax(C(m,n) + b(n), 0.0)
}""",
    "softmax": """
def softmax(float(N,D) X) -> (O) {
  m(n) max=! X(n,d)
  e(n,d) = exp(X(n,d) - m(n))
  s(n) +=! e(n,d)
  O(n,d) = e(n,d) / s(n)
}""",
    "layer_norm": """
def layer_norm(float(N,D) X, float(D) g, float(D) b) -> (O) {
  s(n) +=! X(n,d)
  mu(n) = s(n) / D
  v(n) +=! (X(n,d) - mu(n)) * (X(n,d) - mu(n))
  r(n) = rsqrt(v(n) / D + 1e-5)
  O(n,d) = (X(n,d) - mu(n)) * r(n) * g(d) + b(d)
}""",
    "conv_bias_relu": """
def conv(float(N,C,H,W) I, float(M,C,KH,KW) F, float(M) B) -> (O) {
  t(n,m,h,w) +=! I(n,c,h+kh,w+kw) * F(m,c,kh,kw)
  O(n,m,h,w) = fmax(t(n,m,h,w) + B(m), 0.0)
}""",
    "attention": """
def attention(float(S,D) q, float(U,D) k, float(U,E) v) -> (o) {
  p(s,u) +=! q(s,d) * k(u,d)
  c(s,u) = p(s,u) * 0.125
  m(s) max=! c(s,u)
  e(s,u) = exp(c(s,u) - m(s))
  z(s) +=! e(s,u)
  a(s,u) = e(s,u) / z(s)
  o(s,x) +=! a(s,u) * v(u,x)
}""",
    "rnn": """
def rnn(float(T,B,I) x, float(B,H) h0, float(I,H) Wx, float(H,H) Wh) -> (float(T,B,H) h) {
  for t in T {
    a(b,o) +=! Wx(i,o) * x(t,b,i)
    if t == 0 { a(b,o) += Wh(k,o) * h0(b,k) } else { a(b,o) += Wh(k,o) * h(t-1,b,k) }
    h(t,b,o) = tanh(a(b,o))
  }
}""",
    "batch_norm": """
def batch_norm(float(N,C,H,W) X) -> (Y) {
  m(c) +=! X(n,c,h,w)
  mu(c) = m(c) / (N * H * W)
  d(n,c,h,w) = X(n,c,h,w) - mu(c)
  v(c) +=! d(n,c,h,w) * d(n,c,h,w)
  Y(n,c,h,w) = d(n,c,h,w) * rsqrt(v(c))
}""",
    "column_sum": "def f(float(M,N) X) -> (O) { O(j) +=! X(i,j) }",
    "half_matmul": """
def mm(half(M,K) A, half(K,N) B) -> (half(M,N) C) { C(m,n) +=! A(m,k) * B(k,n) }""",
    "shift_in_place": "def f(float(N) X) -> (Y) { Y(i) = X(i) Y(i) = Y(N-1-i) + 1 }",
    "mlp": """
def mlp(float(B,M) X, float(H,M) V, float(O,H) W) -> (Y) {
  a(b,h) +=! X(b,m) * V(h,m)
  r(b,h) = fmax(a(b,h), 0.0)
  Y(b,o) +=! r(b,h) * W(o,h)
}""",
    "mlp3": """
def mlp3(float(B,M) X, float(N,M) U, float(O,N) V, float(P,O) W) -> (Z) {
  a(b,n) +=! X(b,m) * U(n,m)
  x(b,n) = fmax(a(b,n), 0.0)
  c(b,o) +=! x(b,n) * V(o,n)
  y(b,o) = fmax(c(b,o), 0.0)
  e(b,p) +=! y(b,o) * W(p,o)
  Z(b,p) = fmax(e(b,p), 0.0)
}""",
    "statistics": """
def f(float(N,K) X) -> (s, q, x) {
  s(n) +=! X(n,k)
  q(n) +=! X(n,k) * X(n,k)
  x(n) max=! X(n,k)
}""",
    "parallel_time": """
def f(float(T,N) X) -> (float(T,N) Y) { for t in T { s(i) = X(t,i) * 2 Y(t,i) = s(i) + 1 } }""",
    "prefix_sum": """
def f(float(N) X) -> (Y) {
  for i in N { if i == 0 { Y(i) = X(i) } else { Y(i) = Y(i-1) + X(i) } }
}""",
    "cholesky": """
def chol(double(N,N) A) -> (double(N,N) L) {
  L(i,j) = 0.0
  for j in N {
    s +=! L(j,k) * L(j,k) where k in 0:j
    L(j,j) = sqrt(A(j,j) - s)
    for i in j+1:N {
      q +=! L(i,k) * L(j,k) where k in 0:j
      L(i,j) = (A(i,j) - q) / L(j,j)
    }
  }
}""",
    "total": "def f(float(N,M) X) -> (s) { p(i,j) = exp(X(i,j)) s +=! p(i,j) }",
    "branches_cover": """
def f(float(T,N) X) -> (float(T,N) Y) {
  for t in T {
    if t == 0 { s(i) = X(t,i) } else { s(i) = X(t-1,i) }
    Y(t,i) = s(i)
  }
}""",
    "carried_state": """
def f(float(T,N) X) -> (float(T,N) Y) {
  s(i) = 0.0 where i in 0:N
  for t in T { s(i) = s(i) + X(t,i) Y(t,i) = s(i) }
}""",
    "padded": """
def f(float(N,K) X, float(3) F) -> (Y) {
  p(n,i) = i >= 1 && i <= K ? X(n,i-1) : 0.0 where i in 0:K+2
  Y(n,i) +=! p(n,i+k) * F(k)
}""",
    "ragged_sum": """
def f(int32(P) off, float(J) X) -> (Y) { Y(b) +=! X(j) where b in 0:P-1, j in off(b):off(b+1) }""",
    "ragged_softmax": """
def f(int32(B) n, float(B,L) X) -> (O) {
    m(b) max=! X(b,l) where l in 0:n(b)
    s(b) +=! exp(X(b,l) - m(b)) where l in 0:n(b)
    O(b,l) = l < n(b) ? exp(X(b,l) - m(b)) / s(b) : 0.0
}""",
    "ragged_pairs": """
def f(int32(B) n, float(L) X) -> (Y) { Y(b) +=! X(j) * X(k) where j in 0:n(b), k in 0:n(b) }""",
    "triangular_sum": "def f(float(N,N) X) -> (Y) { Y(i) +=! X(i,k) where k in 0:i+1 }",
    "bag": """
def f(int32(B,L) id, float(V,D) T) -> (Y) { Y(b,d) +=! id(b,l) >= 0 ? T(id(b,l),d) : 0.0 }""",
    "histogram": """
def f(int32(N) at, float(N,D) X, size V) -> (float(V,D) H) { H(at(n),d) +=! X(n,d) }""",
    "transposed_pair": "def f(float(N,M) X) -> (P, Q) { P(n,m) = X(n,m) Q(m,n) = P(n,m) }",
}


def program(name: str) -> Program:
    return next(reversed(analyse(SOURCES[name]).values()))


def scheduled(name: str, fusion: Fusion = "max") -> Scheduled:
    return schedule_program(program(name), Options(fusion=fusion), {})
