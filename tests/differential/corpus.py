# SPDX-License-Identifier: Apache-2.0
"""Programs of every kind with the size sets they are tried at; all inputs are made by `gen`."""

from __future__ import annotations

from tests.differential.cases import Case, grid
from tests.differential.short import SHORT
from tests.differential.windows import WINDOWS

EDGES = (1, 0, 2, 7, 15, 16, 17, 33)

CORPUS: dict[str, Case] = {
    "matmul": Case(
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        grid(
            M=(1, 0, 5, 6, 7, 13, 37, 65), K=(1, 3, 0, 8, 17, 64, 31), N=(1, 4, 16, 17, 15, 33, 70)
        ),
    ),
    "matmul_tn": Case(
        "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }",
        grid(M=(5, 6, 19), K=(3, 17, 40), N=(16, 17, 33)),
    ),
    "matmul_tt_bias_relu": Case(
        """def f(float(K,M) A, float(N,K) B, float(N) b) -> (C) {
  C(m,n) +=! A(k,m) * B(n,k)
  C(m,n) = fmax(C(m,n) + b(n), 0)
}""",
        grid(M=(5, 6, 19, 0), K=(3, 17, 40), N=(16, 17, 33)),
    ),
    "batched": Case(
        "def f(float(B,M,K) A, float(B,N,K) C) -> (O) { O(b,m,n) +=! A(b,m,k) * C(b,n,k) }",
        grid(B=(1, 3, 2), M=(5, 26, 7), K=(3, 17, 8), N=(16, 26, 9)),
    ),
    "matvec": Case(
        "def f(float(M,K) A, float(K) x) -> (y) { y(m) +=! A(m,k) * x(k) }",
        grid(M=EDGES, K=(1, 5, 0, 16, 37, 64, 100, 9)),
    ),
    "vecmat_double": Case(
        "def f(double(K,N) A, double(K) x) -> (y) { y(n) +=! A(k,n) * x(k) }",
        grid(N=EDGES, K=(1, 5, 0, 16, 37)),
    ),
    "outer": Case(
        "def f(float(B,I) X, float(B,J) Y) -> (O) { O(b,i,j) = X(b,i) * Y(b,j) }",
        grid(B=(1, 3), I=(5, 17), J=(7, 33)),
    ),
    "kronecker": Case(
        """def f(float(D0,N0) W0, float(D1,N1) W1, float(M,N0,N1) X) -> (Y) {
  T(m,n0,d1) +=! X(m,n0,q) * W1(d1,q)
  Y(m,d0,d1) +=! T(m,q,d1) * W0(d0,q)
}""",
        grid(M=(1, 5), N0=(3, 8), N1=(4, 9), D0=(2, 7), D1=(5, 17)),
    ),
    "int8_matmul": Case(
        "def f(int8(M,K) A, int8(K,N) B) -> (C) { C(m,n) +=! int32(A(m,k)) * int32(B(k,n)) }",
        grid(M=(3, 7), K=(5, 33), N=(9, 18)),
    ),
    "half_matmul": Case(
        "def f(half(M,K) A, half(K,N) B) -> (half(M,N) C) { C(m,n) +=! A(m,k) * B(k,n) }",
        grid(M=(3, 7), K=(5, 33), N=(9, 18)),
    ),
    "bfloat16_sum": Case(
        "def f(bfloat16(M,K) A) -> (bfloat16(M) C) { C(m) +=! A(m,k) }", grid(M=(3, 7), K=(0, 33))
    ),
    "convolution": Case(
        """def f(float(N,C,H,W) I, float(M,C,KH,KW) F, float(M) b) -> (O) {
  O(n,m,h,w) +=! I(n,c,h+kh,w+kw) * F(m,c,kh,kw)
  O(n,m,h,w) = fmax(O(n,m,h,w) + b(m), 0)
}""",
        grid(
            N=(1, 2), C=(1, 3, 5), H=(3, 9, 14), W=(3, 20, 37), M=(1, 7, 9), KH=(3, 2), KW=(3, 1, 5)
        ),
    ),
    "convolution_stride": Case(
        """def f(float(C,H,W) I, float(M,C,KH,KW) F) -> (O) {
  O(m,h,w) +=! I(c,2*h+kh,3*w+2*kw) * F(m,c,kh,kw)
}""",
        grid(C=(2, 3), H=(7, 19), W=(11, 50), M=(2, 9), KH=(3, 2), KW=(3,)),
    ),
    "convolution_nhwc": Case(
        """def f(float(N,H,W,C) I, float(KH,KW,C,M) F) -> (O) {
  O(n,h,w,m) +=! I(n,h+kh,w+kw,c) * F(kh,kw,c,m)
}""",
        grid(N=(1, 2), H=(4, 9), W=(5, 11), C=(3, 8), M=(5, 17), KH=(3,), KW=(2,)),
    ),
    "grouped": Case(
        """def f(float(G,C,H,W) I, float(G,M,C,KH,KW) F) -> (O) {
  O(g,m,h,w) +=! I(g,c,h+kh,w+kw) * F(g,m,c,kh,kw)
}""",
        grid(G=(2, 3), C=(1, 4), H=(5, 8), W=(6, 19), M=(1, 4), KH=(3,), KW=(3,)),
    ),
    "padded": Case(
        """def f(float(N) I, float(K) F) -> (O) {
  O(x) +=! (x + k - 2 >= 0 && x + k - 2 < N) ? I(x + k - 2) * F(k) : 0.0 where x in 0:N
}""",
        grid(N=EDGES, K=(5, 2, 3)),
    ),
    "max_pool": Case(
        """def f(float(B,H,W) X) -> (Y) {
  Y(b,h,w) max=! X(b,2*h+p,2*w+q) where p in 0:3, q in 0:3
}""",
        grid(B=(1, 3), H=(3, 8, 13), W=(3, 9, 40)) + grid(B=(9, 8, 17), H=(8, 5, 13), W=(3, 5, 7)),
        {"X": "special"},
    ),
    "softmax": Case(
        """def f(float(N,D) X) -> (Y) {
  m(i) max=! X(i,j)
  e(i,j) = exp(X(i,j) - m(i))
  s(i) +=! e(i,j)
  Y(i,j) = e(i,j) / s(i)
}""",
        grid(N=(1, 3, 5, 0), D=(1, 16, 17, 37, 100, 7)),
    ),
    "layer_norm": Case(
        """def f(float(N,D) X, float(D) g, float(D) b) -> (Y) {
  m(i) +=! X(i,j)
  m(i) = m(i) / D
  v(i) +=! (X(i,j) - m(i)) * (X(i,j) - m(i))
  Y(i,j) = (X(i,j) - m(i)) * rsqrt(v(i) / D + 1e-5) * g(j) + b(j)
}""",
        grid(N=(1, 3, 5, 0), D=(1, 16, 17, 37, 100, 7)),
    ),
    "batch_moments": Case(
        """def f(float(N,C,H) X) -> (m, v) {
  m(c) +=! X(n,c,h)
  m(c) = m(c) / (N * H)
  v(c) +=! (X(n,c,h) - m(c)) * (X(n,c,h) - m(c))
}""",
        grid(N=(1, 4), C=(3, 9), H=(5, 33)),
    ),
    "attention": Case(
        """def f(float(S,D) Q, float(U,D) K, float(U,E) V) -> (O) {
  P(s,u) +=! Q(s,d) * K(u,d)
  P(s,u) = P(s,u) * 0.125
  m(s) max=! P(s,u)
  e(s,u) = exp(P(s,u) - m(s))
  z(s) +=! e(s,u)
  A(s,u) = e(s,u) / z(s)
  O(s,x) +=! A(s,u) * V(u,x)
}""",
        grid(S=(1, 7, 33), U=(1, 17, 40), D=(4, 16, 9), E=(3, 16, 20)),
    ),
    "causal": Case(
        """def f(float(S,S) P) -> (O) {
  m(s) max=! u <= s ? P(s,u) : -INFINITY where u in 0:S
  e(s,u) = u <= s ? exp(P(s,u) - m(s)) : 0.0
  z(s) +=! e(s,u)
  O(s,u) = e(s,u) / z(s)
}""",
        grid(S=EDGES),
    ),
    "column_sum": Case(
        "def f(float(M,N) X) -> (Y, Z) { Y(j) +=! X(i,j) Z(j) max=! X(i,j) }",
        grid(M=EDGES, N=(1, 3, 16, 17, 33, 64, 130)),
    ),
    "total": Case(
        """def f(float(M,N) X) -> (s, p, lo, hi) {
  s +=! X(i,j) p *=! X(i,j) lo min=! X(i,j) hi max=! X(i,j)
}""",
        grid(M=(1, 3, 0, 5), N=(1, 17, 33, 9)),
    ),
    "transposition": Case(
        "def f(float(M,N) X) -> (Y) { Y(j,i) = X(i,j) }",
        grid(M=EDGES, N=(1, 7, 16, 17, 9, 8, 0, 40)),
    ),
    "permutation_int16": Case(
        "def f(int16(A,B,C) X) -> (Y) { Y(c,a,b) = X(a,b,c) }",
        grid(A=(2, 9), B=(3, 8), C=(5, 17)),
        {"X": "int"},
    ),
    "gather": Case(
        "def f(float(E,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l),d) }",
        grid(E=(5, 100), D=(3, 16, 17), B=(2, 5, 0), L=(4, 0, 9)),
        {"I": "index E"},
    ),
    "one_hot_argmin": Case(
        """def f(float(M,D) X, float(N,D) Y) -> (at) {
  d(m,n) +=! (X(m,q) - Y(n,q)) * (X(m,q) - Y(n,q))
  v(m) min=! d(m,n)
  at(m) min=! d(m,n) == v(m) ? n : N
}""",
        grid(M=(1, 7), N=(1, 19), D=(3, 16)),
        {"X": "small", "Y": "small"},
    ),
    "elman": Case(
        """def f(float(T,B,I) X, float(H,I) Wx, float(H,H) Wh) -> (float(T,B,H) h) {
  for t in T {
    z(b,i) +=! X(t,b,k) * Wx(i,k)
    if t > 0 { z(b,i) += h(t-1,b,j) * Wh(i,j) }
    h(t,b,i) = tanh(z(b,i))
  }
}""",
        grid(T=(1, 0, 5), B=(1, 3), I=(2, 9), H=(3, 17)),
        {"Wh": "small"},
    ),
    "scan": Case(
        """def f(float(B,N) X) -> (Y) {
  for i in N { if i == 0 { Y(b,i) = X(b,i) } else { Y(b,i) = Y(b,i-1) + X(b,i) } }
}""",
        grid(B=(1, 17), N=(1, 0, 7)),
    ),
    "scan_of_two": Case(
        """def f(float(B,C,N) X, float(B,C) D) -> (Y, Z) {
  for i in N {
    G(b,c) = D(b,c) * 0.25
    if i < 2 { Y(b,c,i) = X(b,c,i)  Z(b,c,i) = G(b,c) } else {
      Y(b,c,i) = G(b,c) * Y(b,c,i-1) + Z(b,c,i-1) * X(b,c,i)
      Z(b,c,i) = Y(b,c,i) - Z(b,c,i-2)
    }
  }
}""",
        grid(B=(1, 2), C=(1, 9), N=(1, 2, 0, 7)),
    ),
    "scan_in_blocks": Case(
        """def f(float(T,B,H) Z, float(T,H) G) -> (C, M) {
  for t in T {
    D(b,h) = 2.0 * Z(t,b,h)
    if t == 0 { C(t,b,h) = G(t,h) * D(b,h) } else {
      C(t,b,h) = G(t,h) * C(t-1,b,h) + D(b,h)
    }
    M(t,b,h) = fmax(C(t,b,h), D(b,h))
  }
}""",
        grid(T=(1, 0, 4), B=(1, 3), H=(1, 17, 1400)),
    ),
    "cholesky": Case(
        """def f(double(N,N) A) -> (double(N,N) L) {
  S(i,j) +=! A(i,k) * A(j,k)
  S(i,j) = S(i,j) + (i == j ? 1.0 : 0.0)
  L(i,j) = 0.0
  for j in N {
    s +=! L(j,k) * L(j,k) where k in 0:j
    L(j,j) = sqrt(S(j,j) - s)
    for i in j+1:N {
      q +=! L(i,k) * L(j,k) where k in 0:j
      L(i,j) = (S(i,j) - q) / L(j,j)
    }
  }
}""",
        grid(N=(1, 0, 3, 9)),
    ),
    "life": Case(
        """def f(int32(H,W) g0, float(S) steps) -> (g) {
  g(i,j) = g0(i,j)
  for s in S {
    n(i,j) +=! (a == 1 && b == 1) ? 0 : g((i + a + H - 1) % H,(j + b + W - 1) % W)
      where i in 0:H, j in 0:W, a in 0:3, b in 0:3
    g(i,j) = (n(i,j) == 3 || n(i,j) == 2 && g(i,j) == 1) ? 1 : 0
  }
}""",
        grid(H=(4, 9), W=(5, 17), S=(1, 3)),
        {"g0": "bit"},
    ),
    "reverse_in_place": Case(
        "def f(float(N) X) -> (Y) { Y(i) = X(i) Y(i) = Y(N - 1 - i) Y(i) = Y(i) + Y((i + 1) % N) }",
        grid(N=EDGES),
    ),
    "size_times_index": Case(
        "def f(float(M,N) X) -> (Y) { F(i) = i where i in 0:M*N Y(i,j) = F(N*i + j) + X(i,j) }",
        grid(M=(1, 5), N=(3, 17)),
    ),
    "casts": Case(
        """def f(float(N) A, int32(N) B) -> (P, Q, R, S, T) {
  P(i) = int8(A(i) * 100)
  Q(i) = uint8(B(i))
  R(i) = half(A(i))
  S(i) = bool(B(i))
  T(i) = double(A(i)) / B(i) + float(bfloat16(A(i)))
}""",
        grid(N=EDGES),
        {"A": "special"},
    ),
    "integers": Case(
        """def f(int32(N) A, int32(N) B, uint8(N) C, int64(N) D) -> (P, Q, R, S, T, U) {
  P(i) = A(i) / B(i)
  Q(i) = A(i) % B(i)
  R(i) = A(i) * B(i) + C(i)
  S(i) = C(i) - 7 / 2
  T(i) = D(i) / 3 + D(i) % C(i)
  U(i) = C(i) > A(i) && !(D(i) == 0) ? min(A(i), B(i)) : max(A(i), B(i))
}""",
        grid(N=EDGES),
    ),
    "functions": Case(
        """def f(float(N) A, double(N) B) -> (P, Q, R, S) {
  P(i) = exp(A(i)) + log(fabs(A(i)) + 1) + tanh(A(i)) + erf(A(i))
  Q(i) = sin(A(i)) * cos(A(i)) + pow(fabs(A(i)), 0.3) + rsqrt(fabs(A(i)) + 0.1)
  R(i) = exp(B(i)) + log1p(fabs(B(i))) + normcdf(B(i)) + cbrt(B(i))
  S(i) = round(A(i)) + floor(A(i)) + fmod(A(i), 0.7) + atan2(A(i), 0.3)
}""",
        grid(N=EDGES),
    ),
    "calls": Case(
        """def fc(float(B,M) X, float(N,M) W) -> (Y) {
  Y(i,n) +=! X(i,m) * W(n,m)
  Y(i,n) = tanh(Y(i,n))
}
def f(float(B,M) X, float(H,M) W1, float(O,H) W2) -> (Y) { T = fc(X, W1) Y = fc(T, W2) }""",
        grid(B=(1, 5, 0), M=(3, 17), H=(4, 33), O=(2, 9)),
        extra={"entry": "f"},
    ),
    "stencil_steps": Case(
        """def f(float(N) X, float(S) steps) -> (Y) {
  Y(i) = X(i)
  for s in S { Y(i) = i > 0 && i < N - 1 ? (Y(i-1) + Y(i) + Y(i+1)) / 3 : Y(i) }
}""",
        grid(N=(1, 2, 7, 33), S=(0, 1, 4)),
    ),
    "free_size": Case(
        "def f(float(N) X) -> (float(P) Y) { Y(i) = i < N ? X(i) : 0.0 }",
        grid(N=(3, 7), P=(5, 2)),
    ),
    **WINDOWS,
    **SHORT,
}
