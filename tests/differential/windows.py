# SPDX-License-Identifier: Apache-2.0
"""Programs with sliding windows, at sizes around the tiles: four rows of vectors, or one row."""

from __future__ import annotations

from tests.differential.cases import Case, grid

HEIGHTS = (3, 4, 5, 6, 7, 9, 10, 13)
WIDTHS = (4, 17, 18, 19, 33, 34, 40, 3)

WINDOWS: dict[str, Case] = {
    "depthwise": Case(
        """def f(float(N,C,H,W) I, float(C,KH,KW) F) -> (O) {
  O(n,c,h,w) +=! I(n,c,h+kh,w+kw) * F(c,kh,kw)
}""",
        grid(N=(1, 2), C=(1, 3), H=HEIGHTS, W=WIDTHS, KH=(3, 1, 2, 3, 5, 3), KW=(3, 2, 3, 4, 1, 3)),
    ),
    "depthwise_of_many_sizes": Case(
        """def f(float(C,H,W) I, float(C,KH,KW) F) -> (O) {
  O(c,h,w) +=! I(c,h+kh,w+kw) * F(c,kh,kw)
}""",
        tuple(
            {"C": 2, "H": h + kh, "W": w + kw, "KH": kh, "KW": kw}
            for h, w in ((3, 8), (8, 22), (2, 7), (0, 31), (1, 40), (2, 33))
            for kh, kw in ((3, 3), (0, 3), (3, 0), (1, 3), (3, 2), (2, 2), (4, 3), (7, 7))
        ),
    ),
    "grouped_of_many_sizes": Case(
        """def f(float(G,C,H,W) I, float(G,F,C,K,K) F1, float(G,F) b) -> (O) {
  O(g,o,h,w) +=! I(g,i,h+kh,w+kw) * F1(g,o,i,kh,kw)
  O(g,o,h,w) = O(g,o,h,w) + b(g,o)
}""",
        tuple(
            {"G": 2, "F": f, "C": c, "H": 3 + k, "W": w + k, "K": k}
            for f, c, w in ((4, 3, 16), (6, 1, 20), (3, 2, 31), (13, 2, 9), (5, 0, 17))
            for k in (3, 0, 1, 2, 4, 7)
        ),
    ),
    # one or two output channels: tiles of image rows instead of channels
    "convolution_of_single_channels": Case(
        """def f(float(N,C,H,W) I, float(O,C,KH,KW) F) -> (Y) {
  Y(n,o,h,w) +=! I(n,c,h+kh,w+kw) * F(o,c,kh,kw)
}""",
        tuple(
            {"N": n, "O": o, "C": c, "H": h + kh, "W": w + kw, "KH": kh, "KW": kw}
            for n, o, c in ((1, 1, 3), (2, 2, 1), (2, 3, 2))
            for h, w in ((3, 15), (4, 16), (8, 38), (2, 20))
            for kh, kw in ((3, 3), (2, 1), (0, 2))
        ),
    ),
    # the gradients of weights: few columns, which change places with rows
    "weights_of_three": Case(
        """def f(float(N,C,H,W) I, float(N,O,P,Q) G) -> (K) {
  K(o,c,a,b) +=! I(n,c,p+a,q+b) * G(n,o,p,q) where a in 0:3, b in 0:3
}""",
        tuple(
            {"N": n, "O": o, "C": c, "H": p + 2, "W": q + 2, "P": p, "Q": q}
            for o in (3, 8, 17, 33)
            for n, c, p, q in ((1, 1, 5, 9), (2, 4, 3, 8), (2, 2, 9, 17), (0, 2, 3, 3))
        ),
    ),
    "weights_strided_and_padded": Case(
        """def f(float(N,C,H,W) I, float(N,O,P,Q) G) -> (K) {
  K(o,c,a,b) +=! 2*p+a >= 1 && 2*p+a <= H && 2*q+b >= 1 && 2*q+b <= W
      ? I(n,c,2*p+a-1,2*q+b-1) * G(n,o,p,q) : 0 where a in 0:3, b in 0:3, p in 0:P, q in 0:Q
}""",
        tuple(
            {"N": n, "O": o, "C": c, "H": 2 * p, "W": 2 * q - 1, "P": p, "Q": q}
            for o in (3, 8, 17)
            for n, c, p, q in ((1, 1, 5, 9), (2, 4, 3, 8), (2, 2, 9, 17))
        ),
    ),
    "weights_of_any_size": Case(
        """def f(float(N,C,L) I, float(N,O,P) G, float(M) E) -> (K) {
  K(o,c,a) +=! I(n,c,p+a) * G(n,o,p) where a in 0:M
}""",
        tuple(
            {"N": 2, "O": o, "C": c, "L": p + m - 1, "P": p, "M": m}
            for o in (3, 8, 17)
            for c, p in ((1, 9), (5, 8), (3, 33))
            for m in (1, 3, 7, 8, 9)
        ),
    ),
    "strided_of_many_sizes": Case(
        """def f(float(C,H,W) I, float(K) F) -> (O, P) {
  O(c,h,w) max=! I(c,2*h+p,2*w+q) + F(p) * F(q)
  P(c,h) +=! I(c,h+p,0) * F(p)
}""",
        tuple(
            {"C": 2, "H": 2 * h + k, "W": 2 * w + k, "K": k}
            for h, w in ((3, 8), (9, 23), (1, 4), (1, 40))
            for k in (3, 1, 2, 4, 7)
        ),
    ),
    "narrow_images": Case(
        """def f(float(N,C,H,W) I, float(O,C,K,L) F) -> (Out) {
  Out(n,o,h,w) +=! I(n,c,h+p,w+q) * F(o,c,p,q)
}""",
        tuple(
            {"N": 2, "C": c, "O": o, "H": h + k - 1, "W": w + k - 1, "K": k, "L": k}
            for h, w, o in ((8, 1, 4), (9, 1, 7), (5, 2, 4), (17, 3, 6), (30, 3, 9), (4, 10, 23))
            for c, k in ((3, 3), (1, 4), (17, 1))
        ),
    ),
    "depthwise_nhwc": Case(
        """def f(float(N,H,W,C) I, float(KH,KW,C) F) -> (O) {
  O(n,h,w,c) +=! I(n,h+kh,w+kw,c) * F(kh,kw,c)
}""",
        grid(N=(1, 2), H=(3, 4, 6), W=(3, 6, 7, 9), C=(1, 15, 16, 17, 33), KH=(3, 2), KW=(3, 1, 3)),
    ),
    "depthwise_padded": Case(
        """def f(float(C,H,W) I, float(C,3,3) F) -> (O) {
  O(c,h,w) +=! ((h+kh >= 1 && h+kh <= H && w+kw >= 1 && w+kw <= W) ? I(c,h+kh-1,w+kw-1) : 0)
    * F(c,kh,kw) where h in 0:H, w in 0:W
}""",
        grid(C=(1, 2), H=HEIGHTS, W=WIDTHS),
    ),
    "depthwise_dilated_strided": Case(
        """def f(float(C,H,W) I, float(C,3,3) F, float(C) b) -> (O) {
  O(c,h,w) +=! I(c,3*h+2*kh,2*w+2*kw) * F(c,kh,kw)
  O(c,h,w) = fmax(O(c,h,w) + b(c), 0)
}""",
        grid(C=(1, 2), H=(7, 15, 14, 18, 30), W=(8, 34, 35, 36, 70)),
    ),
    "depthwise_1d": Case(
        """def f(float(B,C,T) X, float(C,K) F) -> (O) { O(b,c,t) +=! X(b,c,t+k) * F(c,k) }""",
        grid(B=(1, 2, 5), C=(1, 3), T=(4, 17, 18, 70), K=(3, 1, 4)),
    ),
    "depthwise_3d": Case(
        """def f(float(C,D,H,W) I, float(C,2,2,2) F) -> (O) {
  O(c,d,h,w) +=! I(c,d+kd,h+kh,w+kw) * F(c,kd,kh,kw)
}""",
        grid(C=(1, 2), D=(2, 3, 6), H=(2, 5, 6), W=(4, 17, 18, 35)),
    ),
    # outside of the image a weight counts for nothing, even if it is infinite
    "guarded_product": Case(
        """def f(float(C,H,W) I, float(O,C,KH,KW) F) -> (float(O,H,W) Y) {
  Y(o,h,w) +=! h+kh >= 1 && h+kh <= H && w+kw >= 1 && w+kw <= W
    ? I(c,h+kh-1,w+kw-1) * F(o,c,kh,kw) : 0.0
}""",
        grid(C=(1, 2), O=(1, 5, 13), H=(1, 4, 5, 9), W=WIDTHS, KH=(3, 1, 2, 3), KW=(3, 2, 1, 3)),
        {"F": "special"},
    ),
    "guarded_product_of_planes": Case(
        """def f(float(C,H,W) I, float(C,3,3) F) -> (float(C,H,W) Y) {
  Y(c,h,w) +=! h+kh >= 1 && h+kh <= H && w+kw >= 1 && w+kw <= W
    ? F(c,kh,kw) * I(c,h+kh-1,w+kw-1) : 0.0
}""",
        grid(C=(1, 2), H=HEIGHTS, W=WIDTHS),
        {"F": "special"},
    ),
    "guarded_product_of_integers": Case(
        """def f(int32(C,T) I, int32(O,C,K) F) -> (int32(O,T) Y) {
  Y(o,t) +=! t+k >= K-1 ? I(c,t+k-K+1) * F(o,c,k) : 0 where t in 0:T
}""",
        grid(C=(1, 2), O=(1, 5, 13), T=(1, 7, 8, 17, 40), K=(1, 2, 5, 3)),
    ),
    # the weight itself is read under the guard only: its guard must stay a branch
    "guarded_product_of_guarded_weights": Case(
        """def f(float(C,T) I, float(C,K) F) -> (float(C,T) Y) {
  Y(c,t) +=! t+k >= 2 && t+k < T+2 && k < K ? I(c,t+k-2) * F(c,k) : 0.0 where t in 0:T, k in 0:5
}""",
        grid(C=(1, 2), T=(1, 7, 8, 17, 40), K=(5, 1, 3, 9)),
    ),
    "pool_of_many_sizes": Case(
        """def f(float(C,H,W) X, float(P,Q) Z) -> (Y, S) {
  Y(c,h,w) max=! X(c,2*h+p,2*w+q) where p in 0:P, q in 0:Q
  S(c,h,w) +=! X(c,h+p,w+q) where p in 0:P, q in 0:Q
}""",
        tuple(
            {"C": 2, "H": h + p, "W": w + q, "P": p, "Q": q}
            for h, w in ((1, 1), (9, 17), (4, 33), (12, 9))
            for p, q in ((3, 3), (1, 1), (2, 5), (0, 3), (3, 0), (9, 1))
        ),
        {"X": "special"},
    ),
    "pool_nhwc": Case(
        """def f(float(B,H,W,C) X) -> (Y) {
  Y(b,h,w,c) max=! X(b,2*h+p,3*w+q,c) where p in 0:3, q in 0:2
  Y(b,h,w,c) = Y(b,h,w,c) * 0.5
}""",
        grid(B=(1, 2), H=(2, 3, 9, 14), W=(1, 3, 8, 21), C=(1, 7, 8, 19)),
        {"X": "special"},
    ),
    "pool_far_apart": Case(
        """def f(float(B,H,W) X) -> (Y) {
  Y(b,h,w) +=! X(b,5*h+p,5*w+q) where p in 0:5, q in 0:5
  Y(b,h,w) = Y(b,h,w) / 25
}""",
        grid(B=(1, 3), H=(5, 9, 26), W=(5, 40, 85, 42)),
    ),
    "pool_3d": Case(
        """def f(float(D,H,W) X) -> (Y) {
  Y(d,h,w) min=! X(d+o,h+p,2*w+q) where o in 0:2, p in 0:3, q in 0:3
}""",
        grid(D=(2, 4), H=(3, 5, 8), W=(3, 19, 36)),
        {"X": "special"},
    ),
    "pool_padded_by_infinity": Case(
        """def f(float(B,H,W) X) -> (Y) {
  Y(b,h,w) max=! h+p >= 1 && h+p <= H && w+q >= 1 && w+q <= W ? X(b,h+p-1,w+q-1) : -INFINITY
    where h in 0:H, w in 0:W, p in 0:3, q in 0:3
}""",
        grid(B=(1, 3), H=HEIGHTS, W=WIDTHS),
    ),
    "erosion_by_a_shape": Case(
        """def f(float(B,H,W) X, float(P,Q) Z) -> (Y) {
  Y(b,h,w) min=! X(b,h+p,w+q) - Z(p,q)
}""",
        grid(B=(1, 2), H=(4, 9), W=(5, 17, 40), P=(3, 1, 2), Q=(3, 2, 1)),
    ),
    "windows_of_one_point": Case(
        """def f(float(B,C,D,H,W) X, float(M,C,O,P,Q) F, float(M) b) -> (Y) {
  Y(n,m,d,h,w) +=! X(n,c,d+o,h+p,w+q) * F(m,c,o,p,q)
  Y(n,m,d,h,w) = Y(n,m,d,h,w) + b(m)
}""",
        tuple(
            {"B": 2, "C": c, "M": m, "D": 1 + o, "H": h + p, "W": w + q, "O": o, "P": p, "Q": q}
            for c, m in ((3, 2), (5, 7), (9, 14))
            for h, w in ((4, 5), (3, 17))
            for o, p, q in ((1, 1, 1), (1, 1, 2), (2, 1, 1), (0, 1, 1))
        ),
    ),
    "windows_of_one_point_by_place": Case(
        """def f(float(C,H,W) X, float(M,C,P,Q) F) -> (Y, Z) {
  Y(m,h,w) +=! X(c,h+p,w+q) * F(m,c,p,q)
  Z(m,w) +=! Y(m,h,w) * h
}""",
        grid(C=(1, 3), M=(2, 7, 13), H=(3, 4), W=(6, 17), P=(1, 2), Q=(1, 1, 3)),
    ),
    "mean_pool": Case(
        """def f(float(B,H,W) X) -> (Y) {
  Y(b,h,w) +=! X(b,2*h+p,2*w+q) where p in 0:2, q in 0:2
  Y(b,h,w) = Y(b,h,w) / 4
}""",
        grid(B=(1, 3), H=(2, 8, 9, 11), W=(2, 32, 33, 35, 70)),
    ),
    "min_pool_double": Case(
        "def f(double(H,W) X) -> (Y) { Y(h,w) min=! X(h+p,2*w+q) where p in 0:3, q in 0:3 }",
        grid(H=(3, 6, 7, 10), W=(3, 18, 19, 20, 40)),
        {"X": "special"},
    ),
    "max_pool_int8": Case(
        "def f(int8(H,W) X) -> (Y) { Y(h,w) max=! X(2*h+p,2*w+q) where p in 0:3, q in 0:3 }",
        grid(H=(3, 9, 12), W=(3, 64, 66, 131)),
    ),
    "local_contrast": Case(
        """def f(float(H,W) X) -> (Y) {
  M(h,w) max=! X(h+p,w+q) where p in 0:3, q in 0:3
  S(h,w) +=! X(h+p,w+q) where p in 0:3, q in 0:3
  Y(h,w) = M(h,w) - S(h,w) / 9
}""",
        grid(H=HEIGHTS, W=WIDTHS),
    ),
    "accumulated_windows": Case(
        """def f(float(H,W) X, float(K,K) F) -> (Y) {
  Y(h,w) = X(h,w) where h in 0:H-K+1, w in 0:W-K+1
  Y(h,w) += X(h+p,w+q) * F(p,q)
}""",
        grid(H=(3, 6, 7), W=(4, 18, 19, 35), K=(3, 2, 1)),
    ),
    "convolution_many_channels": Case(
        """def f(float(N,C,H,W) I, float(M,C,KH,KW) F, float(M) b, float(N,M,P,Q) R) -> (O) {
  O(n,m,h,w) +=! I(n,c,h+kh,w+kw) * F(m,c,kh,kw)
  O(n,m,h,w) = fmax(O(n,m,h,w) + b(m) + R(n,m,h,w), 0)
}""",
        tuple(
            {
                "N": n,
                "C": c,
                "M": m,
                "P": p,
                "Q": q,
                "KH": k,
                "KW": kw,
                "H": p + k - 1,
                "W": q + kw - 1,
            }
            for n, c, m, p, q, k, kw in (
                (1, 2, 12, 1, 1, 3, 3),
                (2, 3, 13, 3, 7, 3, 2),
                (1, 5, 25, 5, 14, 1, 3),
                (1, 1, 12, 2, 16, 2, 2),
                (2, 4, 18, 4, 17, 3, 3),
                (1, 3, 14, 2, 33, 1, 1),
                (1, 2, 0, 2, 9, 2, 2),
                (1, 0, 12, 2, 9, 2, 2),
            )
        ),
    ),
    "convolution_padded_strided": Case(
        """def f(float(C,H,W) I, float(M,C,3,3) F) -> (O) {
  O(m,h,w) +=! ((2*h+kh >= 1 && 2*h+kh <= H && 2*w+kw >= 1 && 2*w+kw <= W)
    ? I(c,2*h+kh-1,2*w+kw-1) : 0) * F(m,c,kh,kw) where h in 0:H/2, w in 0:W/2
}""",
        grid(C=(1, 3), H=(2, 5, 9, 14), W=(2, 15, 18, 32, 70), M=(12, 17, 30)),
    ),
    "convolution_dilated_double": Case(
        """def f(double(N,C,H,W) I, double(M,C,KH,KW) F) -> (O) {
  O(n,m,h,w) +=! I(n,c,h+2*kh,3*w+2*kw) * F(m,c,kh,kw)
}""",
        grid(
            N=(1, 2), C=(1, 4), H=(5, 7, 8), W=(5, 29, 30, 50), M=(12, 19), KH=(3, 2), KW=(3, 1, 2)
        ),
    ),
    "convolution_transposed_weights": Case(
        """def f(float(C,H,W) I, float(C,3,3,M) F) -> (O) {
  O(m,h,w) +=! I(c,h+kh,w+kw) * F(c,kh,kw,m)
}""",
        grid(C=(1, 3), H=(3, 5, 9), W=(3, 16, 17, 30), M=(12, 17, 30)),
    ),
    "pointwise_convolution": Case(
        """def f(float(N,C,H,W) I, float(M,C) F) -> (O) { O(n,m,h,w) +=! I(n,c,h,w) * F(m,c) }""",
        grid(N=(1, 2), C=(1, 5, 9), H=(1, 3, 7), W=(1, 5, 7, 16), M=(12, 13, 26)),
    ),
    "convolution_3d": Case(
        """def f(float(C,D,H,W) I, float(M,C,2,2,2) F) -> (O) {
  O(m,d,h,w) +=! I(c,d+kd,h+kh,w+kw) * F(m,c,kd,kh,kw)
}""",
        grid(C=(1, 3), D=(2, 4), H=(2, 5), W=(4, 8, 21), M=(12, 14)),
    ),
    "half_convolution": Case(
        """def f(half(C,H,W) I, half(M,C,3,3) F) -> (O) {
  O(m,h,w) +=! float(I(c,h+kh,w+kw)) * float(F(m,c,kh,kw))
}""",
        grid(C=(1, 3), H=(4, 7), W=(6, 12, 19), M=(12, 15)),
    ),
    "quantised_convolution": Case(
        """def f(int8(C,H,W) I, int8(M,C,3,3) F) -> (O) {
  O(m,h,w) +=! int32(I(c,h+kh,w+kw)) * int32(F(m,c,kh,kw))
}""",
        grid(C=(1, 3), H=(4, 7), W=(6, 12, 19), M=(12, 15)),
    ),
    "causal_convolution": Case(
        """def f(float(B,R,T) X, float(C,R,2) F, float(C) b) -> (O) {
  A(n,c,t) = b(c) where n in 0:B, t in 0:T
  A(n,c,t) += X(n,r,t) * F(c,r,1) + ((t - 4 >= 0) ? X(n,r,t-4) * F(c,r,0) : 0)
  O(n,c,t) = tanh(A(n,c,t))
}""",
        grid(B=(1, 2), R=(1, 3, 0, 5), C=(4, 12, 13, 30), T=(3, 4, 5, 20, 37)),
    ),
    "centred_convolution": Case(
        """def f(float(R,T) X, float(C,R,3) F) -> (O) {
  O(c,t) +=! ((t >= 2) ? X(r,t-2) * F(c,r,0) : 0) + X(r,t) * F(c,r,1)
    + ((t + 2 < T) ? X(r,t+2) * F(c,r,2) : 0)
}""",
        grid(R=(1, 4), C=(12, 17), T=(1, 2, 3, 5, 19, 40)),
        {"F": "special"},
    ),
    "guarded_range": Case(
        """def f(float(K,N) X, float(M,K) F) -> (O) {
  O(m,n) +=! (n >= 3 && n < N - 5) ? X(k,n) * F(m,k) : 0 where n in 0:N
}""",
        grid(K=(1, 4), M=(12, 17), N=(1, 3, 4, 7, 8, 9, 26, 40)),
        {"X": "special"},
    ),
    "two_products": Case(
        """def f(int32(M,K) A, int32(K,N) B, int32(M,K) C, int32(K,N) D) -> (O) {
  O(m,n) +=! A(m,k) * B(k,n) + C(m,k) * D(k,n)
}""",
        grid(M=(1, 12, 19), K=(1, 0, 5), N=(1, 16, 33)),
    ),
    "product_and_sum": Case(
        """def f(float(M,K) A, float(K,N) B, float(K) C) -> (O) {
  O(m,n) +=! A(m,k) * B(k,n) + C(k)
}""",
        grid(M=(1, 12, 19), K=(1, 5), N=(1, 16, 33)),
    ),
    "convolution_nhwc_strided": Case(
        """def f(float(N,H,W,C) I, float(M,KH,KW,C) F, float(M) b) -> (O) {
  O(n,h,w,m) +=! I(n,2*h+kh,w+2*kw,c) * F(m,kh,kw,c)
  O(n,h,w,m) = fmax(O(n,h,w,m) + b(m), 0)
}""",
        grid(N=(1, 2), H=(5, 9, 14), W=(9, 12, 19), C=(3, 8), M=(5, 17, 33), KH=(3, 1), KW=(2, 3)),
    ),
    "shared_weights": Case(
        """def f(float(B,M,K) A, float(K,N) W, float(B,M,N) R) -> (O) {
  O(b,m,n) +=! A(b,m,k) * W(k,n)
  O(b,m,n) = O(b,m,n) + R(b,m,n)
}""",
        grid(B=(1, 2, 5, 7), M=(13, 5, 3, 4), K=(4, 1, 9), N=(16, 17, 5)),
    ),
    "pool_padded": Case(
        """def f(float(C,H,W) I) -> (O) {
  O(c,h,w) max=! (2*h+p >= 1 && 2*h+p <= H && 2*w+q >= 1 && 2*w+q <= W)
    ? I(c,2*h+p-1,2*w+q-1) : -INFINITY where h in 0:(H+1)/2, w in 0:(W+1)/2, p in 0:3, q in 0:3
}""",
        grid(C=(1, 2), H=(1, 2, 7, 8, 9), W=(1, 2, 15, 16, 33)),
        {"I": "special"},
    ),
    "padding_wider_than_the_image": Case(
        """def f(float(C,H,W) I, float(M,C,7,9) F) -> (O) {
  O(m,h,w) +=! ((h+2*kh >= 6 && h+2*kh < H+6 && w+kw >= 4 && w+kw < W+4)
    ? I(c,h+2*kh-6,w+kw-4) : 0) * F(m,c,kh,kw) where h in 0:H, w in 0:W
}""",
        grid(C=(1, 2), H=(1, 2, 5), W=(1, 3, 17), M=(2, 13)),
    ),
    "padding_on_one_side": Case(
        """def f(float(B,C,T) X, float(C,4) F) -> (O) {
  O(b,c,t) +=! (t + 2*k >= 6 ? X(b,c,t+2*k-6) : 0.5) * F(c,k) where t in 0:T
}""",
        grid(B=(1, 2), C=(1, 3), T=(1, 5, 7, 16, 40)),
        {"X": "special"},
    ),
    "padding_nhwc": Case(
        """def f(float(N,H,W,C) I, float(3,3,C,M) F) -> (O) {
  O(n,h,w,m) +=! ((h+kh >= 1 && h+kh <= H && w+kw >= 1 && w+kw <= W) ? I(n,h+kh-1,w+kw-1,c) : 0)
    * F(kh,kw,c,m) where h in 0:H, w in 0:W
}""",
        grid(N=(1, 2), H=(1, 2, 5), W=(1, 3, 9), C=(1, 3, 9), M=(2, 17)),
    ),
    "guarded_by_more_than_the_edge": Case(
        """def f(float(H,W) I, float(3,3) F) -> (O) {
  O(h,w) +=! ((h+kh >= 3 && h+kh <= H-2 && w+kw >= 1 && w+kw <= W && h >= kh)
    ? I(h+kh-1,w+kw-1) : 0) * F(kh,kw) where h in 0:H, w in 0:W
}""",
        grid(H=(1, 3, 6, 9), W=(1, 3, 9, 20)),
    ),
    "guard_tighter_than_the_edge": Case(
        """def f(float(H,W) I, float(3,3) F) -> (O) {
  O(h,w) +=! ((h+kh >= 3 && h+kh <= H-2 && w+kw >= 1 && w+kw <= W-2)
    ? I(h+kh-1,w+kw-1) : 1.5) * F(kh,kw) where h in 0:H, w in 0:W
}""",
        grid(H=(1, 3, 4, 5, 9), W=(1, 2, 3, 9, 20)),
    ),
}
