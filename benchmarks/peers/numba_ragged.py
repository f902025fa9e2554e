# SPDX-License-Identifier: Apache-2.0
"""numba's loops over ranges and positions that are data."""

from __future__ import annotations

import numpy as np
from numba import prange

from benchmarks.peers.numba_loops import F, loops_for, softmax_row


@loops_for("ragged_bag")
def ragged_bag(E, at, off):
    Y = np.zeros((off.shape[0] - 1, E.shape[1]), F)
    for b in prange(Y.shape[0]):
        for j in range(off[b], off[b + 1]):
            row = at[j]
            for d in range(E.shape[1]):
                Y[b, d] += E[row, d]
    return Y


@loops_for("segment_sum")
def segment_sum(X, off):
    Y = np.zeros((off.shape[0] - 1, X.shape[1]), F)
    for b in prange(Y.shape[0]):
        for j in range(off[b], off[b + 1]):
            for d in range(X.shape[1]):
                Y[b, d] += X[j, d]
    return Y


@loops_for("csr_dense")
def csr_dense(value, column, off, X):
    Y = np.zeros((off.shape[0] - 1, X.shape[1]), F)
    for b in prange(Y.shape[0]):
        for j in range(off[b], off[b + 1]):
            row = column[j]
            v = value[j]
            for d in range(X.shape[1]):
                Y[b, d] += v * X[row, d]
    return Y


@loops_for("csr_vector")
def csr_vector(value, column, off, X):
    Y = np.zeros(off.shape[0] - 1, F)
    for b in prange(Y.shape[0]):
        total = F(0)
        for j in range(off[b], off[b + 1]):
            total += value[j] * X[column[j]]
        Y[b] = total
    return Y


@loops_for("histogram", parallel=False)
def histogram(at):
    H = np.zeros(256, np.int32)
    for i in range(at.shape[0]):
        H[at[i]] += 1
    return H


@loops_for("scatter_rows", parallel=False)
def scatter_rows(base, X, at):
    Y = base.copy()
    for j in range(X.shape[0]):
        row = at[j]
        for d in range(X.shape[1]):
            Y[row, d] += X[j, d]
    return Y


@loops_for("window_attention")
def window_attention(q, k, v):
    B, H, L, D = q.shape
    out = np.zeros(q.shape, F)
    factor = F(1.0 / np.sqrt(D))
    for r in prange(B * H):
        b = r // H
        h = r % H
        scores = np.empty(64, F)
        weights = np.empty(64, F)
        for i in range(L):
            first = max(0, i - 63)
            n = i + 1 - first
            for s in range(n):
                total = F(0)
                for d in range(D):
                    total += q[b, h, i, d] * k[b, h, first + s, d]
                scores[s] = total * factor
            softmax_row(scores, weights, n)
            for s in range(n):
                for d in range(D):
                    out[b, h, i, d] += weights[s] * v[b, h, first + s, d]
    return out
