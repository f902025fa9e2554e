# SPDX-License-Identifier: Apache-2.0
"""numba's loops for products, contractions and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import prange

from benchmarks.peers.numba_loops import F, linear_row, loops_for, softmax_row


@loops_for("tmm")
def tmm(A, B):
    M, K = A.shape
    N = B.shape[0]
    C = np.empty((M, N), F)
    for n in prange(N):
        for m in range(M):
            s = F(0)
            for k in range(K):
                s += A[m, k] * B[n, k]
            C[m, n] = s
    return C


@loops_for("mm")
def mm(A, B):
    M, K = A.shape
    C = np.zeros((M, B.shape[1]), F)
    for m in prange(M):
        for k in range(K):
            a = A[m, k]
            for n in range(B.shape[1]):
                C[m, n] += a * B[k, n]
    return C


@loops_for("mm_tn")
def mm_tn(A, B):
    K, M = A.shape
    C = np.zeros((M, B.shape[1]), F)
    for m in prange(M):
        for k in range(K):
            a = A[k, m]
            for n in range(B.shape[1]):
                C[m, n] += a * B[k, n]
    return C


@loops_for("matvec")
def matvec(A, x):
    y = np.empty(A.shape[0], F)
    for m in prange(A.shape[0]):
        s = F(0)
        for k in range(A.shape[1]):
            s += A[m, k] * x[k]
        y[m] = s
    return y


@loops_for("tbmm")
def tbmm(X, Y):
    B, N, M = X.shape
    K = Y.shape[1]
    Z = np.empty((B, N, K), F)
    for b in prange(B):
        for n in range(N):
            for k in range(K):
                s = F(0)
                for m in range(M):
                    s += X[b, n, m] * Y[b, k, m]
                Z[b, n, k] = s
    return Z


@loops_for("int8_matmul")
def int8_matmul(X, W, S):
    M, K = X.shape
    N = W.shape[0]
    Y = np.empty((M, N), F)
    for n in prange(N):
        row = W[n].astype(F)
        for m in range(M):
            s = F(0)
            for k in range(K):
                s += X[m, k] * row[k]
            Y[m, n] = s * S[n]
    return Y


@loops_for("outer")
def outer(X, Y):
    B, I = X.shape
    J = Y.shape[1]
    out = np.empty((B, I, J), F)
    for b in prange(B):
        for i in range(I):
            for j in range(J):
                out[b, i, j] = X[b, i] * Y[b, j]
    return out


@loops_for("tccg_abcdef-dega-gfbc")
def contraction6(X, Y):
    D, E, G, A = X.shape
    _, H, B, C = Y.shape
    Z = np.zeros((A, B, C, D, E, H), F)
    for ab in prange(A * B):
        a = ab // B
        b = ab % B
        for c in range(C):
            for d in range(D):
                for e in range(E):
                    for g in range(G):
                        x = X[d, e, g, a]
                        for f in range(H):
                            Z[a, b, c, d, e, f] += x * Y[g, f, b, c]
    return Z


@loops_for("tccg_abcd-aebf-dfce")
def contraction4(X, Y):
    A, E, B, H = X.shape
    D, _, C, _ = Y.shape
    Z = np.empty((A, B, C, D), F)
    for a in prange(A):
        for b in range(B):
            for c in range(C):
                for d in range(D):
                    s = F(0)
                    for f in range(H):
                        for e in range(E):
                            s += X[a, e, b, f] * Y[d, f, c, e]
                    Z[a, b, c, d] = s
    return Z


@loops_for("tccg_abc-bda-dc")
def contraction3(X, Y):
    B, D, A = X.shape
    C = Y.shape[1]
    Z = np.zeros((A, B, C), F)
    for a in prange(A):
        for b in range(B):
            for d in range(D):
                x = X[b, d, a]
                for c in range(C):
                    Z[a, b, c] += x * Y[d, c]
    return Z


@loops_for("kron3")
def kron(W0, W1, W2, X):
    D0, N0 = W0.shape
    D1, N1 = W1.shape
    D2, N2 = W2.shape
    Y = np.empty((X.shape[0], D0, D1, D2), F)
    for m in prange(X.shape[0]):
        t2 = np.empty((N0, N1, D2), F)
        t1 = np.zeros((N0, D1, D2), F)
        t0 = np.zeros((D0, D1, D2), F)
        for a in range(N0):
            for b in range(N1):
                for z in range(D2):
                    s = F(0)
                    for c in range(N2):
                        s += X[m, a, b, c] * W2[z, c]
                    t2[a, b, z] = s
            for y in range(D1):
                for b in range(N1):
                    w = W1[y, b]
                    for z in range(D2):
                        t1[a, y, z] += t2[a, b, z] * w
        for x in range(D0):
            for a in range(N0):
                w = W0[x, a]
                for y in range(D1):
                    for z in range(D2):
                        t0[x, y, z] += t1[a, y, z] * w
        Y[m] = t0
    return Y


@loops_for("mlp1")
def mlp1(X, W, b):
    out = np.empty((X.shape[0], W.shape[0]), F)
    for i in prange(X.shape[0]):
        linear_row(X[i], W, b, out[i])
    return out


@loops_for("mlp3")
def mlp3(X, W2, b2, W3, b3, W4, b4):
    out = np.empty((X.shape[0], W4.shape[0]), F)
    for i in prange(X.shape[0]):
        t = np.empty(W2.shape[0], F)
        u = np.empty(W3.shape[0], F)
        linear_row(X[i], W2, b2, t)
        linear_row(t, W3, b3, u)
        linear_row(u, W4, b4, out[i])
    return out


@loops_for("attention")
def attention(Q, K, V):
    B, H, L, D = Q.shape
    S = K.shape[2]
    out = np.zeros(Q.shape, F)
    scale = F(1.0 / np.sqrt(D))
    for bh in prange(B * H):
        b = bh // H
        h = bh % H
        scores = np.empty(S, F)
        for i in range(L):
            for t in range(S):
                s = F(0)
                for d in range(D):
                    s += Q[b, h, i, d] * K[b, h, t, d]
                scores[t] = s * scale
            softmax_row(scores, scores, S)
            for t in range(S):
                p = scores[t]
                for d in range(D):
                    out[b, h, i, d] += p * V[b, h, t, d]
    return out


@loops_for("causal_attention")
def causal_attention(Q, K, V):
    B, H, L, D = Q.shape
    out = np.zeros(Q.shape, F)
    scale = F(1.0 / np.sqrt(D))
    for bh in prange(B * H):
        b = bh // H
        h = bh % H
        scores = np.empty(L, F)
        for i in range(L):
            for t in range(i + 1):
                s = F(0)
                for d in range(D):
                    s += Q[b, h, i, d] * K[b, h, t, d]
                scores[t] = s * scale
            softmax_row(scores, scores, i + 1)
            for t in range(i + 1):
                p = scores[t]
                for d in range(D):
                    out[b, h, i, d] += p * V[b, h, t, d]
    return out


def convolution(stride: int) -> Callable[..., Any]:
    def run(x, w):
        N, C, H, W = x.shape
        O, Cg, KH, KW = w.shape
        height = (H - KH) // stride + 1
        width = (W - KW) // stride + 1
        out = np.zeros((N, O, height, width), F)
        per_group = O // (C // Cg)
        for no in prange(N * O):
            n = no // O
            o = no % O
            first = o // per_group * Cg
            for c in range(Cg):
                for i in range(KH):
                    for j in range(KW):
                        f = w[o, c, i, j]
                        for h in range(height):
                            for q in range(width):
                                out[n, o, h, q] += (
                                    x[n, first + c, h * stride + i, q * stride + j] * f
                                )
        return out

    return run


convolve = loops_for("conv", "dwconv")(convolution(1))
loops_for("conv_s2")(convolution(2))


@loops_for("gconv")
def grouped(x, w, b):
    out = convolve(x, w)
    for no in prange(out.shape[0] * out.shape[1]):
        out[no // out.shape[1], no % out.shape[1]] += b[no % out.shape[1]]
    return out


@loops_for("conv1d_d2")
def dilated(x, w):
    N, C, T = x.shape
    O, _, K = w.shape
    length = T - 2 * (K - 1)
    out = np.zeros((N, O, length), F)
    for no in prange(N * O):
        n = no // O
        o = no % O
        for c in range(C):
            for k in range(K):
                f = w[o, c, k]
                for t in range(length):
                    out[n, o, t] += x[n, c, t + 2 * k] * f
    return out


@loops_for("conv_nhwc")
def channels_last(x, w):
    N, H, W, C = x.shape
    KH, KW, _, O = w.shape
    out = np.zeros((N, H - KH + 1, W - KW + 1, O), F)
    for nh in prange(N * (H - KH + 1)):
        n = nh // (H - KH + 1)
        h = nh % (H - KH + 1)
        for q in range(W - KW + 1):
            for i in range(KH):
                for j in range(KW):
                    for c in range(C):
                        f = x[n, h + i, q + j, c]
                        for o in range(O):
                            out[n, h, q, o] += f * w[i, j, c, o]
    return out
