# SPDX-License-Identifier: Apache-2.0
"""Programs with rows shorter than a vector, and with lanes along every other loop around them."""

from __future__ import annotations

from tests.differential.cases import Case, grid

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 2, 1)  # short, and just not
MANY = (8, 7, 9, 16, 17, 24, 15, 8, 9, 1, 33, 70)  # whole vectors, and one that overlaps

SHORT: dict[str, Case] = {
    "bias_last": Case(
        "def f(float(N,H,C) X, float(C) b) -> (O) { O(n,h,c) = X(n,h,c) + b(c) }",
        grid(N=(1, 2), H=MANY, C=ROWS),
    ),
    "colours_last": Case(
        """def f(uint8(N,H,W,C) X, float(C) m) -> (O) {
  O(n,c,h,w) = float(X(n,h,w,c)) * 0.5 - m(c)
}""",
        grid(N=(1, 2), H=(3, 5), W=MANY, C=ROWS),
    ),
    "channels_last": Case(
        "def f(float(N,C,H) X) -> (O) { O(n,h,c) = X(n,c,h) }",
        grid(N=(2, 1), C=ROWS, H=MANY),
    ),
    "channels_first": Case(
        "def f(double(N,H,C) X) -> (O) { O(n,c,h) = X(n,h,c) }",
        grid(N=(2, 1), C=ROWS, H=MANY),
    ),
    "interleave": Case(
        "def f(int16(N,2,H,W) X) -> (O) { O(n,h,w,b) = X(n,b,h,w) }",
        grid(N=(2, 1), H=(3, 1), W=MANY),
    ),
    "middle": Case(
        "def f(float(A,B,C,D) X) -> (O) { O(a,c,b,d) = X(a,b,c,d) }",
        grid(A=(2, 9), B=(9, 17, 2), C=(3, 8, 17), D=ROWS),
    ),
    "products": Case(
        "def f(float(N,M) A, float(N,L) B) -> (O) { O(n,i,j) = A(n,i) * B(n,j) }",
        grid(N=(3, 17), M=MANY, L=ROWS),
    ),
    "joined": Case(
        """def f(float(N,M) A, float(N,L) B) -> (float(N,M+L) O) {
  O(n,j) = j < M ? A(n,j) : B(n,j-M)
}""",
        grid(N=MANY, M=ROWS, L=(2, 1, 4, 3)),
    ),
    "classes": Case(
        """def f(float(N,D) X) -> (O) {
  m(n) max=! X(n,d)
  O(n,d) = exp(X(n,d) - m(n))
  s(n) +=! O(n,d)
  O(n,d) = O(n,d) / s(n)
}""",
        grid(N=MANY, D=ROWS),
    ),
    "losses": Case(
        """def f(float(N,D) X, int32(N) label) -> (L) {
  m(n) max=! X(n,d)
  s(n) +=! exp(X(n,d) - m(n))
  L(n) = log(s(n)) + m(n) - X(n,label(n))
}""",
        grid(N=MANY, D=ROWS),
        {"label": "index D"},
    ),
    "moments_of_few": Case(
        """def f(half(N,D) X) -> (float(N) m, float(N) v) {
  m(n) +=! X(n,d)
  m(n) = m(n) / D
  v(n) +=! (X(n,d) - m(n)) * (X(n,d) - m(n))
}""",
        grid(N=MANY, D=ROWS),
    ),
    "small_images": Case(
        """def f(float(N,C,H,W) I) -> (O) {
  O(n,c,h,w) max=! I(n,c,2*h+kh,2*w+kw) where kh in 0:2, kw in 0:2
}""",
        grid(N=(1, 2), C=MANY, H=(3, 4, 7), W=(2, 3, 4, 6, 7, 9, 16, 18)),
    ),
    "few_of_a_bag": Case(
        "def f(float(E,D) T, int32(B,L) i) -> (O) { O(b,d) +=! T(i(b,l),d) }",
        grid(E=(5,), D=ROWS, B=MANY, L=(3, 0, 1)),
        {"i": "index E"},
    ),
    "rows_with_ends": Case(
        "def f(float(N,L,L) X) -> (O) { O(n,i,j) = j <= i ? X(n,i,j) : -INFINITY }",
        grid(N=MANY, L=ROWS),
    ),
    "norm_over_channels": Case(
        """def f(float(N,C,H,W) I) -> (O) {
  m(n,h,w) +=! I(n,c,h,w)
  m(n,h,w) = m(n,h,w) / C
  v(n,h,w) +=! (I(n,c,h,w) - m(n,h,w)) * (I(n,c,h,w) - m(n,h,w))
  O(n,c,h,w) = (I(n,c,h,w) - m(n,h,w)) * rsqrt(v(n,h,w) / C + 1e-5)
}""",
        grid(N=(1, 2), C=(3, 1, 9), H=(2, 9, 17), W=(1, 7, 8, 9, 17, 33)),
    ),
    "softmax_over_channels": Case(
        """def f(float(C,H,W) I) -> (O) {
  m(h,w) max=! I(c,h,w)
  E(c,h,w) = exp(I(c,h,w) - m(h,w))
  s(h,w) +=! E(c,h,w)
  O(c,h,w) = E(c,h,w) / s(h,w)
}""",
        grid(C=(3, 1, 9), H=(2, 9, 17), W=(1, 7, 8, 9, 17, 33)),
    ),
    "few_queries": Case(
        """def f(float(B,L,D) Q, float(B,S,D) K, float(B,S,E) V) -> (O) {
  P(b,l,s) +=! Q(b,l,d) * K(b,s,d)
  m(b,l) max=! P(b,l,s)
  P(b,l,s) = exp(P(b,l,s) - m(b,l))
  z(b,l) +=! P(b,l,s)
  O(b,l,e) +=! P(b,l,s) * V(b,s,e)
  O(b,l,e) = O(b,l,e) / z(b,l)
}""",
        grid(B=(1, 2), L=(1, 2, 3, 4, 5), S=(1, 9, 40, 0, 17), D=(3, 8, 1, 17), E=(1, 5, 16, 20)),
    ),
}
