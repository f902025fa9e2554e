# SPDX-License-Identifier: Apache-2.0
"""numba's loops for norms, recurrences and memory-bound kernels."""

from __future__ import annotations

import numpy as np
from numba import prange

from benchmarks.peers.numba_loops import F, loops_for, softmax_row


@loops_for("softmax")
def softmax(x):
    out = np.empty(x.shape, F)
    for n in prange(x.shape[0]):
        softmax_row(x[n], out[n], x.shape[1])
    return out


@loops_for("causal_softmax")
def causal_softmax(x):
    out = np.zeros(x.shape, F)
    L = x.shape[1]
    for r in prange(x.shape[0] * L):
        softmax_row(x[r // L, r % L], out[r // L, r % L], r % L + 1)
    return out


@loops_for("log_softmax")
def log_softmax(x):
    out = np.empty(x.shape, F)
    for n in prange(x.shape[0]):
        largest = x[n, 0]
        for d in range(x.shape[1]):
            largest = max(largest, x[n, d])
        total = F(0)
        for d in range(x.shape[1]):
            total += np.exp(x[n, d] - largest)
        shift = largest + np.log(total)
        for d in range(x.shape[1]):
            out[n, d] = x[n, d] - shift
    return out


@loops_for("layernorm")
def layer_norm(x, g, b):
    out = np.empty(x.shape, F)
    D = x.shape[1]
    share = F(1.0 / D)
    for n in prange(x.shape[0]):
        total = F(0)
        for d in range(D):
            total += x[n, d]
        mean = total * share
        var = F(0)
        for d in range(D):
            var += (x[n, d] - mean) * (x[n, d] - mean)
        factor = F(1) / np.sqrt(var * share + F(1e-5))
        for d in range(D):
            out[n, d] = (x[n, d] - mean) * factor * g[d] + b[d]
    return out


@loops_for("groupnorm")
def group_norm(x, g, b):
    N, G, D, H, W = x.shape
    out = np.empty(x.shape, F)
    share = F(1.0 / (D * H * W))
    for ng in prange(N * G):
        n = ng // G
        q = ng % G
        total = F(0)
        squares = F(0)
        for d in range(D):
            for h in range(H):
                for w in range(W):
                    total += x[n, q, d, h, w]
                    squares += x[n, q, d, h, w] * x[n, q, d, h, w]
        mean = total * share
        factor = F(1) / np.sqrt(squares * share - mean * mean + F(1e-5))
        for d in range(D):
            scale = g[q, d] * factor
            shift = b[q, d] - mean * scale
            for h in range(H):
                for w in range(W):
                    out[n, q, d, h, w] = x[n, q, d, h, w] * scale + shift
    return out


@loops_for("moments")
def moments(x):
    N, C, H, W = x.shape
    means = np.empty(C, F)
    variances = np.empty(C, F)
    share = F(1.0 / (N * H * W))
    for c in prange(C):
        total = F(0)
        for n in range(N):
            for h in range(H):
                for w in range(W):
                    total += x[n, c, h, w]
        mean = total * share
        var = F(0)
        for n in range(N):
            for h in range(H):
                for w in range(W):
                    var += (x[n, c, h, w] - mean) * (x[n, c, h, w] - mean)
        means[c] = mean
        variances[c] = var * share
    return means, variances


@loops_for("batchnorm")
def batch_norm(x, g, b):
    N, C, H, W = x.shape
    means, variances = moments(x)
    out = np.empty(x.shape, F)
    for nc in prange(N * C):
        n = nc // C
        c = nc % C
        factor = g[c] / np.sqrt(variances[c] + F(1e-5))
        for h in range(H):
            for w in range(W):
                out[n, c, h, w] = (x[n, c, h, w] - means[c]) * factor + b[c]
    return out


@loops_for("rnn")
def rnn(X, h0, W, U, b):
    T, B, I = X.shape
    H = U.shape[0]
    S = np.empty((T, B, H), F)
    for q in prange(B):
        for t in range(T):
            for j in range(H):
                s = b[j]
                for i in range(I):
                    s += X[t, q, i] * W[j, i]
                if t == 0:
                    for k in range(H):
                        s += h0[q, k] * U[j, k]
                else:
                    for k in range(H):
                        s += S[t - 1, q, k] * U[j, k]
                S[t, q, j] = np.tanh(s)
    return S


@loops_for("qrnn", "qrnn_steps")
def qrnn(Z, G, out):
    T, B, H = Z.shape
    result = np.empty(Z.shape, F)
    for b in prange(B):
        c = np.zeros(H, F)
        for t in range(T):
            for h in range(H):
                c[h] = G[t, b, h] * c[h] + (F(1) - G[t, b, h]) * Z[t, b, h]
                result[t, b, h] = out[t, b, h] * c[h]
    return result


@loops_for("wavenet")
def wavenet(X, FW, FB, GW, GB, RW, RB, SW, SB):
    N, R, T = X.shape
    C = FB.shape[0]
    S = SB.shape[0]
    delay = 32
    block = 64
    blocks = (T + block - 1) // block
    residual = np.empty(X.shape, F)
    skip = np.empty((N, S, T), F)
    for part in prange(N * blocks):
        b = part // blocks
        first = part % blocks * block
        n = min(block, T - first)
        gated = np.empty((C, block), F)
        for c in range(C):
            f = np.empty(block, F)
            g = np.empty(block, F)
            for t in range(n):
                f[t] = FB[c]
                g[t] = GB[c]
            for r in range(R):
                for t in range(n):
                    f[t] += X[b, r, first + t] * FW[c, r, 1]
                    g[t] += X[b, r, first + t] * GW[c, r, 1]
                for t in range(max(0, delay - first), n):
                    f[t] += X[b, r, first + t - delay] * FW[c, r, 0]
                    g[t] += X[b, r, first + t - delay] * GW[c, r, 0]
            for t in range(n):
                gated[c, t] = np.tanh(f[t]) / (F(1) + np.exp(-g[t]))
        for r in range(R):
            for t in range(n):
                residual[b, r, first + t] = X[b, r, first + t] + RB[r]
            for c in range(C):
                for t in range(n):
                    residual[b, r, first + t] += gated[c, t] * RW[r, c]
        for s in range(S):
            for t in range(n):
                skip[b, s, first + t] = SB[s]
            for c in range(C):
                for t in range(n):
                    skip[b, s, first + t] += gated[c, t] * SW[s, c]
    return residual, skip


@loops_for("viterbi")
def viterbi(E, A):
    T, S = E.shape
    V = np.empty((T, S), F)
    V[0] = E[0]
    for t in range(1, T):
        best = np.full(S, F(-3e38))
        for i in range(S):
            for j in range(S):
                best[j] = max(best[j], V[t - 1, i] + A[i, j])
        V[t] = best + E[t]
    return V


@loops_for("viterbi_batch")
def viterbi_batch(E, A):
    T, B, S = E.shape
    V = np.empty(E.shape, F)
    for b in prange(B):
        V[0, b] = E[0, b]
        for t in range(1, T):
            best = np.full(S, F(-3e38))
            for i in range(S):
                for j in range(S):
                    best[j] = max(best[j], V[t - 1, b, i] + A[i, j])
            V[t, b] = best + E[t, b]
    return V


@loops_for("state_space")
def state_space(X, Dt, A, Bm, C):
    T, B, D = X.shape
    S = A.shape[1]
    Y = np.empty(X.shape, F)
    for b in prange(B):
        h = np.zeros((D, S), F)
        for t in range(T):
            for d in range(D):
                total = F(0)
                for s in range(S):
                    keep = np.exp(-Dt[t, b, d] * A[d, s])
                    h[d, s] = keep * h[d, s] + Dt[t, b, d] * X[t, b, d] * Bm[t, b, s]
                    total += h[d, s] * C[t, b, s]
                Y[t, b, d] = total
    return Y


@loops_for("linear_attention")
def linear_attention(Q, K, V):
    T, B, N = Q.shape
    M = V.shape[2]
    Y = np.empty(V.shape, F)
    for b in prange(B):
        state = np.zeros((N, M), F)
        for t in range(T):
            row = np.zeros(M, F)
            for k in range(N):
                for v in range(M):
                    state[k, v] += K[t, b, k] * V[t, b, v]
                    row[v] += Q[t, b, k] * state[k, v]
            Y[t, b] = row
    return Y


@loops_for("prefix_sum")
def prefix_sum(X):
    Y = np.empty(X.shape, F)
    for b in prange(X.shape[0]):
        s = F(0)
        for i in range(X.shape[1]):
            s += X[b, i]
            Y[b, i] = s
    return Y


@loops_for("lut1")
def lookup(table, at):
    B, L = at.shape
    D = table.shape[1]
    out = np.zeros((B, D), F)
    for b in prange(B):
        for i in range(L):
            row = at[b, i]
            for d in range(D):
                out[b, d] += table[row, d]
    return out


@loops_for("maxpool")
def max_pool(x):
    N, C, H, W = x.shape
    out = np.empty((N, C, (H - 3) // 2 + 1, (W - 3) // 2 + 1), F)
    for nc in prange(N * C):
        n = nc // C
        c = nc % C
        for h in range(out.shape[2]):
            for w in range(out.shape[3]):
                s = F(-3e38)
                for i in range(3):
                    for j in range(3):
                        s = max(s, x[n, c, 2 * h + i, 2 * w + j])
                out[n, c, h, w] = s
    return out


@loops_for("mindist")
def min_distance(X, Y):
    out = np.empty(X.shape[0], F)
    for m in prange(X.shape[0]):
        best = F(3e38)
        for n in range(Y.shape[0]):
            s = F(0)
            for d in range(X.shape[1]):
                s += (X[m, d] - Y[n, d]) * (X[m, d] - Y[n, d])
            best = min(best, s)
        out[m] = best
    return out


@loops_for("gelu_chain")
def gelu(x, y):
    out = np.empty(x.shape, F)
    for m in prange(x.shape[0]):
        for n in range(x.shape[1]):
            v = x[m, n]
            inner = F(0.7978845608) * (v + F(0.044715) * v * v * v)
            out[m, n] = F(0.5) * v * (F(1) + np.tanh(inner)) * y[m, n] + np.tanh(y[m, n])
    return out


@loops_for("add_relu")
def add_relu(x, b):
    out = np.empty(x.shape, F)
    for m in prange(x.shape[0]):
        for n in range(x.shape[1]):
            out[m, n] = max(x[m, n] + b[n], F(0))
    return out


@loops_for("rowsum")
def row_sum(x):
    out = np.empty(x.shape[0], F)
    for m in prange(x.shape[0]):
        s = F(0)
        for n in range(x.shape[1]):
            s += x[m, n]
        out[m] = s
    return out


@loops_for("transpose")
def transpose(x):
    M, N = x.shape
    out = np.empty((N, M), F)
    tile = 32
    for i0 in prange((N + tile - 1) // tile):
        for j0 in range((M + tile - 1) // tile):
            for i in range(i0 * tile, min(i0 * tile + tile, N)):
                for j in range(j0 * tile, min(j0 * tile + tile, M)):
                    out[i, j] = x[j, i]
    return out


@loops_for("permute")
def permute(x):
    A, B, C, D = x.shape
    out = np.empty((A, C, B, D), F)
    for ac in prange(A * C):
        for b in range(B):
            for d in range(D):
                out[ac // C, ac % C, b, d] = x[ac // C, b, ac % C, d]
    return out


@loops_for("call", parallel=False)
def call(x, y):
    out = np.empty(x.shape[0], F)
    for i in range(x.shape[0]):
        out[i] = x[i] + y[i]
    return out
