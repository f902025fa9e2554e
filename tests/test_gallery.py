# SPDX-License-Identifier: Apache-2.0
"""Every layer of docs/gallery.md against numpy, at ragged sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym
from tests.pages import blocks_of
from tests.test_library import causal, conv, normalised, padded, sigmoid, silu, softmax

Array = Any
PAGE = Path(__file__).resolve().parent.parent / "docs" / "gallery.md"


def _texts() -> Iterator[tuple[str, str]]:
    for block in blocks_of(PAGE.read_text()):
        if block.language == "tc":
            for name in tcsym.define(block.text):
                yield name, block.text


TEXTS = dict(_texts())


def draw(*shape: int, seed: int = 0) -> Array:
    """Normal numbers, others for each shape."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def whole(below: int, *shape: int) -> Array:
    return np.random.default_rng((below, *shape)).integers(0, below, shape).astype(np.int32)


def positive(*shape: int) -> Array:
    return np.abs(draw(*shape)) + np.float32(0.1)


def highway(X: Array, W: Array, b: Array, G: Array, g: Array) -> Array:
    t = sigmoid(X @ G.T + g)
    return t * np.tanh(X @ W.T + b) + (1 - t) * X


def linear_int4(X: Array, W: Array, scale: Array) -> Array:
    numbers = np.stack([W & 15, W >> 4], -1).reshape(len(W), -1).astype(np.float32) - 8
    return X @ (numbers * np.repeat(scale, 32, 1)[:, : numbers.shape[1]]).T


def add_rms_norm(X: Array, R: Array, gamma: Array) -> tuple[Array, Array]:
    S = X + R
    return S, S / np.sqrt((S * S).mean(1, keepdims=True) + 1e-6) * gamma


def batch_norm_train(X: Array, gamma: Array, beta: Array) -> tuple[Array, Array, Array]:
    axes = (0, 2, 3)
    Y = normalised(X, axes) * gamma[:, None, None] + beta[:, None, None]
    return Y, X.mean(axes), X.var(axes)


def squeeze_excite(X: Array, A: Array, B: Array) -> Array:
    z = np.maximum(X.mean((2, 3)) @ A.T, 0)
    return X * sigmoid(z @ B.T)[:, :, None, None]


def cross_entropy_smooth(X: Array, label: Array, eps: float) -> Array:
    logp = np.log(softmax(X))
    return -(1 - eps) * logp[np.arange(len(X)), label] - eps * logp.mean(1)


def focal_loss(X: Array, label: Array, gamma: float) -> Array:
    p = np.where(label > 0, sigmoid(X), 1 - sigmoid(X))
    return (1 - p) ** gamma * -np.log(p)


def conv2d_same(image: Array, F: Array, b: Array) -> Array:
    return np.maximum(padded(image, F) + b[:, None, None], 0)


def separable(image: Array, D: Array, P: Array) -> Array:
    parts = [conv(image[:, c : c + 1], D[c][None, None]) for c in range(len(D))]
    return np.einsum("nchw,oc->nohw", np.concatenate(parts, 1), P)


def conv1d_causal(X: Array, W: Array) -> Array:
    late = [np.pad(X, ((0, 0), (0, 0), (2 * k, 0)))[:, :, : X.shape[2]] for k in range(W.shape[2])]
    return sum(np.einsum("nct,oc->not", x, W[:, :, k]) for k, x in enumerate(late))


def conv2d_grouped(image: Array, F: Array) -> Array:
    return np.stack([conv(image[:, g], F[g], 2) for g in range(len(F))], 1)


def patches(image: Array, F: Array) -> Array:
    n, c, h, w = image.shape
    blocks = image.reshape(n, c, h // 16, 16, w // 16, 16)
    return np.einsum("ncaibj,ecij->nabe", blocks, F)


def conv_transpose(X: Array, F: Array) -> Array:
    n, _, h, w = X.shape
    _, o, kh, kw = F.shape
    Y = np.zeros((n, o, 2 * h + kh - 2, 2 * w + kw - 2), np.float32)
    for i, j in np.ndindex(h, w):
        window = np.einsum("nc,coij->noij", X[:, :, i, j], F)
        Y[:, :, 2 * i : 2 * i + kh, 2 * j : 2 * j + kw] += window
    return Y


def conv2d_any(image: Array, F: Array, step: int, dilation: int, pad: int) -> Array:
    padded_image = np.pad(image, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    o, c, kh, kw = F.shape
    wide = np.zeros((o, c, dilation * (kh - 1) + 1, dilation * (kw - 1) + 1), F.dtype)
    wide[:, :, ::dilation, ::dilation] = F
    return conv(padded_image, wide)[:, :, ::step, ::step]


def block_means(X: Array, k: int) -> Array:
    return np.stack([X[:, t : t + k].mean(1) for t in range(0, X.shape[1], k)], 1)


def pool(X: Array) -> tuple[Array, Array]:
    windows = np.lib.stride_tricks.sliding_window_view(X, (3, 3), (2, 3))[:, :, ::2, ::2]
    return windows.max((-1, -2)), X.mean((2, 3))


def upsample_rows(X: Array) -> Array:
    up, down = X[:, :, [0, *range(X.shape[2] - 1)]], X[:, :, [*range(1, X.shape[2]), -1]]
    both = np.stack([0.75 * X + 0.25 * up, 0.75 * X + 0.25 * down], 3)
    return both.reshape(*X.shape[:2], -1, X.shape[3])


def grid_sample(X: Array, at: Array) -> Array:
    out = np.zeros((X.shape[0], X.shape[1], at.shape[1]), np.float32)
    for n, p in np.ndindex(at.shape[:2]):
        y, x = at[n, p]
        for i in (int(np.floor(y)), int(np.floor(y)) + 1):
            for j in (int(np.floor(x)), int(np.floor(x)) + 1):
                if 0 <= i < X.shape[2] and 0 <= j < X.shape[3]:
                    out[n, :, p] += X[n, :, i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
    return out


def deformable_conv(image: Array, F: Array, move: Array) -> Array:
    n, _, h, w = image.shape
    o, _, kh, kw = F.shape
    out = np.zeros((n, o, h, w), np.float32)
    start = np.array([kh // 2, kw // 2])
    for b, y, x, i, j in np.ndindex(n, h, w, kh, kw):
        at = np.array([y + i, x + j]) - start + move[b, y, x, i, j]
        sample = grid_sample(image[b : b + 1], at[None, None].astype(np.float32))[0, :, 0]
        out[b, :, y, x] += F[:, :, i, j] @ sample
    return out


def alibi(Q: Array, K: Array, V: Array, slope: Array) -> Array:
    at = np.arange(Q.shape[2])
    apart = at[None, :] - at[:, None]
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1]) + slope[:, None, None] * apart
    return softmax(np.where(apart <= 0, scores, -np.inf)) @ V


def causal_attention(Q: Array, K: Array, V: Array) -> Array:
    return causal(Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])) @ V


def window_attention(Q: Array, K: Array, V: Array) -> Array:
    at = np.arange(Q.shape[1])
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    return softmax(np.where(abs(at[:, None] - at) <= 16, scores, -np.inf)) @ V


def rotary(X: Array, angle: Array) -> Array:
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    first, second = X[..., 0, :], X[..., 1, :]
    return np.stack([first * c - second * s, second * c + first * s], -2)


def sinusoids(base: float, L: int = 5, D: int = 4) -> Array:
    w = np.arange(L)[:, None] * base ** (-np.arange(D) / D)
    return np.stack([np.sin(w), np.cos(w)], -1)


def decode(q: Array, k: Array, v: Array, length: Array) -> Array:
    scores = np.einsum("bhd,bhsd->bhs", q, k) / np.sqrt(q.shape[-1])
    seen = np.arange(k.shape[2]) < length[:, None, None]
    return np.einsum("bhs,bhse->bhe", softmax(np.where(seen, scores, -np.inf)), v)


def lstm(X: Array, h: Array, c: Array, W: Array, U: Array, b: Array) -> Array:
    states = []
    for x in X:
        i, f, g, o = (x @ W[q].T + h @ U[q].T + b[q] for q in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.stack(states)


def gru(X: Array, h: Array, W: Array, U: Array, b: Array) -> Array:
    states = []
    for x in X:
        r = sigmoid(x @ W[0].T + b[0] + h @ U[0].T)
        z = sigmoid(x @ W[1].T + b[1] + h @ U[1].T)
        h = (1 - z) * np.tanh(x @ W[2].T + r * (h @ U[2].T + b[2])) + z * h
        states.append(h)
    return np.stack(states)


def state_space(X: Array, dt: Array, A: Array, Bm: Array, C: Array) -> Array:
    h, out = np.zeros((X.shape[1], *A.shape)), []
    for x, d, b, c in zip(X, dt, Bm, C):
        h = np.exp(-d[:, :, None] * A) * h + (d * x)[:, :, None] * b[:, None]
        out.append((h * c[:, None]).sum(2))
    return np.stack(out)


def retention(q: Array, k: Array, v: Array, decay: float) -> Array:
    t = np.arange(len(q))
    kept = np.where(t[:, None] >= t, decay ** np.maximum(t[:, None] - t, 0), 0)
    return np.einsum("ts,tbi,sbi,sbj->tbj", kept, q, k, v)


def moving_average(X: Array, a: float) -> Array:
    out = [X[0]]
    for x in X[1:]:
        out.append(a * x + (1 - a) * out[-1])
    return np.stack(out)


def top2(X: Array) -> tuple[Array, ...]:
    at = np.argsort(-X, 1, kind="stable")[:, :2]
    first, second = np.take_along_axis(X, at, 1).T
    return first, second, at[:, 0], at[:, 1]


def ragged_bag(table: Array, index: Array, offset: Array) -> Array:
    return np.stack([table[index[a:b]].sum(0) for a, b in pairwise(offset)])


def csr_dense(value: Array, column: Array, offset: Array, X: Array) -> Array:
    rows = value[:, None] * X[column]
    return np.stack([rows[a:b].sum(0) for a, b in pairwise(offset)])


def cloud_pool(X: Array, offset: Array) -> tuple[Array, Array]:
    clouds = [X[a:b] for a, b in pairwise(offset)]
    means = [c.sum(0) / max(len(c), 1) for c in clouds]
    return np.stack(means), np.stack([c.max(0, initial=-np.inf) for c in clouds])


def messages(X: Array, W: Array, source: Array, to: Array, weight: Array) -> Array:
    Y = np.zeros((len(X), len(W)), np.float32)
    np.add.at(Y, to, weight[:, None] * (X @ W.T)[source])
    return Y


def token_means(token: Array, X: Array, P: int = 9) -> tuple[Array, Array]:
    total = np.zeros((P, X.shape[1]), np.float32)
    np.add.at(total, token, X)
    count = np.bincount(token, minlength=P)
    return count, total / np.maximum(count, 1)[:, None]


def append(keys: Array, values: Array, key: Array, value: Array, at: int) -> tuple[Array, Array]:
    keys[:, :, at], values[:, :, at] = key, value
    return keys, values


def sgd(W: Array, V: Array, G: Array, rate: float, momentum: float) -> tuple[Array, Array]:
    V = momentum * V + G
    return W - rate * V, V


def adam(W: Array, M: Array, V: Array, step: Array, G: Array, rate: float) -> tuple[Array, ...]:
    step, M, V = step + 1, 0.9 * M + 0.1 * G, 0.999 * V + 0.001 * G * G
    a, b = 1 - 0.9**step, 1 - 0.999**step
    return W - rate * (M / a) / (np.sqrt(V / b) + 1e-8), M, V, step


def running_stats(mean: Array, var: Array, X: Array, keep: float) -> tuple[Array, Array]:
    axes = (0, 2, 3)
    return keep * mean + (1 - keep) * X.mean(axes), keep * var + (1 - keep) * X.var(axes)


def distances(X: Array, Y: Array) -> tuple[Array, Array]:
    Z = ((X[:, None] - Y[None]) ** 2).sum(2)
    return Z, Z.min(1)


def cosine(X: Array, Y: Array) -> Array:
    return (X / np.linalg.norm(X, axis=1)[:, None]) @ (Y / np.linalg.norm(Y, axis=1)[:, None]).T


def viterbi(E: Array, A: Array) -> Array:
    score = E[0]
    for e in E[1:]:
        score = (score[:, :, None] + A).max(1) + e
    return score.max(1)


def crf_normaliser(E: Array, A: Array) -> Array:
    score = E[0]
    for e in E[1:]:
        score = np.logaddexp.reduce(score[:, :, None] + A, 1) + e
    return np.logaddexp.reduce(score, 1)


def ctc(logp: Array, label: Array) -> Array:
    """By all paths: what collapses to the labels counts."""
    T, B, C = logp.shape
    out = []
    for b in range(B):
        wanted = [x for x in label[b] if x]
        total = -np.inf
        for path in np.ndindex(*[C] * T):
            merged = [x for k, x in enumerate(path) if x and (k == 0 or path[k - 1] != x)]
            if merged == wanted:
                total = np.logaddexp(total, sum(logp[t, b, x] for t, x in enumerate(path)))
        out.append(total)
    return np.array(out)


def brackets(score: Array) -> tuple[Array, Array]:
    n = score.shape[1]
    chart = score.copy()
    for w in range(1, n):
        for i in range(n - w):
            parts = [chart[:, i, k] + chart[:, k + 1, i + w] for k in range(i, i + w)]
            chart[:, i, i + w] = np.max(parts, 0) + score[:, i, i + w]
    return chart, chart[:, 0, -1]


def warping(X: Array, Y: Array) -> Array:
    D = np.full((len(X) + 1, len(Y) + 1), np.inf)
    D[0, 0] = 0
    for i, j in np.ndindex(len(X), len(Y)):
        D[i + 1, j + 1] = abs(X[i] - Y[j]) + min(D[i, j + 1], D[i + 1, j], D[i, j])
    return D[-1, -1]


Case = tuple[Callable[[], tuple[Array, ...]], Callable[..., Any]]
LABELS = np.array([[0, 1, 0, 1, 0], [0, 2, 0, 1, 0]], np.int32)  # CTC's: with blanks between
OFFSETS = np.array([0, 3, 3, 10, 12], np.int32)
CASES: dict[str, Case] = {
    "conv2d_any": (lambda: (draw(2, 3, 9, 12), draw(4, 3, 3, 2), 2, 3, 1), conv2d_any),
    "block_means": (lambda: (draw(3, 20), 6), block_means),
    "linear_relu": (
        lambda: (draw(3, 17), draw(9, 17), draw(9)),
        lambda X, W, b: np.maximum(X @ W.T + b, 0),
    ),
    "swiglu": (
        lambda: (draw(3, 17), draw(9, 17), draw(9, 17, seed=1)),
        lambda X, W, V: silu(X @ W.T) * (X @ V.T),
    ),
    "highway": (
        lambda: (draw(3, 7), draw(7, 7), draw(7), draw(7, 7, seed=1), draw(7, seed=1)),
        highway,
    ),
    "bilinear": (
        lambda: (draw(3, 4), draw(3, 5), draw(6, 4, 5)),
        lambda X, Z, W: np.einsum("ni,oij,nj->no", X, W, Z),
    ),
    "lora": (
        lambda: (draw(3, 9), draw(7, 9), draw(2, 9), draw(7, 2), 0.5),
        lambda X, W, A, U, scale: X @ W.T + scale * (X @ A.T @ U.T),
    ),
    "linear_int8": (
        lambda: (draw(3, 17), (whole(256, 9, 17) - 128).astype(np.int8), draw(9)),
        lambda X, W, scale: (X @ W.T.astype(np.float32)) * scale,
    ),
    "linear_int4": (
        lambda: (draw(3, 64), whole(256, 5, 32).astype(np.uint8), draw(5, 2)),
        linear_int4,
    ),
    "layer_norm": (
        lambda: (draw(3, 17), draw(17), draw(17, seed=1)),
        lambda X, gamma, beta: normalised(X, (1,)) * gamma + beta,
    ),
    "add_rms_norm": (lambda: (draw(3, 17), draw(3, 17, seed=1), draw(17)), add_rms_norm),
    "instance_norm": (lambda: (draw(2, 3, 5, 4),), lambda X: normalised(X, (2, 3))),
    "batch_norm_train": (lambda: (draw(2, 3, 5, 4), draw(3), draw(3, seed=1)), batch_norm_train),
    "squeeze_excite": (lambda: (draw(2, 6, 3, 4), draw(2, 6), draw(6, 2)), squeeze_excite),
    "cross_entropy_smooth": (lambda: (draw(4, 7), whole(7, 4), 0.1), cross_entropy_smooth),
    "focal_loss": (lambda: (draw(9), whole(2, 9).astype(np.float32), 2.0), focal_loss),
    "conv2d_same": (lambda: (draw(2, 3, 6, 5), draw(4, 3, 3, 3), draw(4)), conv2d_same),
    "separable": (lambda: (draw(2, 3, 6, 5), draw(3, 3, 2), draw(4, 3)), separable),
    "conv1d_causal": (lambda: (draw(2, 3, 11), draw(4, 3, 3)), conv1d_causal),
    "conv2d_grouped": (lambda: (draw(1, 2, 3, 7, 6), draw(2, 4, 3, 3, 3)), conv2d_grouped),
    "patches": (lambda: (draw(1, 3, 32, 16), draw(5, 3, 16, 16)), patches),
    "conv_transpose": (lambda: (draw(2, 3, 4, 5), draw(3, 2, 3, 4)), conv_transpose),
    "pool": (lambda: (draw(2, 3, 7, 9),), pool),
    "upsample_nearest": (lambda: (draw(1, 2, 3, 4),), lambda X: X.repeat(2, 2).repeat(2, 3)),
    "upsample_rows": (lambda: (draw(1, 2, 5, 3),), upsample_rows),
    "pixel_shuffle": (
        lambda: (draw(1, 3, 2, 2, 4, 5),),
        lambda X: X.transpose(0, 1, 4, 2, 5, 3).reshape(1, 3, 8, 10),
    ),
    "grid_sample": (lambda: (draw(2, 3, 4, 5), 2 * draw(2, 7, 2) + 1), grid_sample),
    "deformable_conv": (
        lambda: (draw(2, 3, 5, 4), draw(2, 3, 3, 2), draw(2, 5, 4, 3, 2, 2)),
        deformable_conv,
    ),
    "grouped_query_attention": (
        lambda: (draw(1, 2, 3, 5, 4), draw(1, 2, 6, 4), draw(1, 2, 6, 7)),
        lambda q, k, v: softmax(q @ k[:, :, None].swapaxes(-1, -2) / 2) @ v[:, :, None],
    ),
    "alibi_attention": (
        lambda: (draw(1, 2, 6, 4), draw(1, 2, 6, 4, seed=1), draw(1, 2, 6, 5), draw(2)),
        alibi,
    ),
    "causal_attention": (
        lambda: (draw(1, 2, 9, 4), draw(1, 2, 9, 4, seed=1), draw(1, 2, 9, 5)),
        causal_attention,
    ),
    "window_attention": (
        lambda: (draw(2, 40, 4), draw(2, 40, 4, seed=1), draw(2, 40, 5)),
        window_attention,
    ),
    "rotary": (lambda: (draw(2, 3, 2, 2, 4), draw(3, 4)), rotary),
    "sinusoids": (lambda: (100.0,), sinusoids),
    "decode": (
        lambda: (draw(3, 2, 4), draw(3, 2, 7, 4), draw(3, 2, 7, 5), whole(6, 3) + 1),
        decode,
    ),
    "lstm": (
        lambda: (
            *(draw(4, 2, 3), draw(2, 5), draw(2, 5, seed=1)),
            *(draw(4, 5, 3), draw(4, 5, 5), draw(4, 5)),
        ),
        lstm,
    ),
    "gru": (lambda: (draw(4, 2, 3), draw(2, 5), draw(3, 5, 3), draw(3, 5, 5), draw(3, 5)), gru),
    "state_space": (
        lambda: (
            *(draw(5, 2, 3), positive(5, 2, 3), positive(3, 4)),
            *(draw(5, 2, 4), draw(5, 2, 4, seed=1)),
        ),
        state_space,
    ),
    "retention": (lambda: (draw(5, 2, 3), draw(5, 2, 3, seed=1), draw(5, 2, 4), 0.5), retention),
    "moving_average": (lambda: (draw(7, 3), 0.25), moving_average),
    "embedding_bag": (
        lambda: (draw(11, 6), whole(11, 3, 4), draw(3, 4)),
        lambda table, index, weight: np.einsum("bld,bl->bd", table[index], weight),
    ),
    "mixture": (
        lambda: (draw(4, 5), draw(3, 6, 5), whole(3, 4, 2), draw(4, 2)),
        lambda X, W, chosen, gate: np.einsum("nj,nk,njmk->nm", gate, X, W[chosen]),
    ),
    "top2": (lambda: (np.round(draw(6, 9)),), top2),
    "deep_set": (
        lambda: (draw(2, 5, 3), whole(2, 2, 5).astype(np.float32), draw(4, 3)),
        lambda X, mask, W: (mask[:, :, None] * np.maximum(X @ W.T, 0)).sum(1),
    ),
    "graph_conv": (
        lambda: (draw(5, 3), whole(2, 5, 5).astype(np.float32), draw(4, 3)),
        lambda X, A, W: A @ (X @ W.T) / np.maximum(A.sum(1), 1)[:, None],
    ),
    "ragged_bag": (lambda: (draw(7, 5), whole(7, 12), OFFSETS), ragged_bag),
    "csr_dense": (lambda: (draw(12), whole(7, 12), OFFSETS, draw(7, 5)), csr_dense),
    "cloud_pool": (lambda: (draw(12, 3), OFFSETS), cloud_pool),
    "messages": (
        lambda: (draw(5, 3), draw(4, 3), whole(5, 11), whole(4, 11), draw(11)),
        messages,
    ),
    "token_means": (lambda: (whole(7, 20), draw(20, 3)), token_means),
    "append": (
        lambda: (draw(2, 3, 5, 4), draw(2, 3, 5, 6), draw(2, 3, 4), draw(2, 3, 6), 2),
        append,
    ),
    "sgd": (lambda: (draw(9), draw(9, seed=1), draw(9, seed=2), 0.1, 0.9), sgd),
    "adam": (
        lambda: (draw(9), draw(9, seed=1), positive(9), np.array(3, np.int32), draw(9), 0.1),
        adam,
    ),
    "running_stats": (lambda: (draw(3), positive(3), draw(2, 3, 5, 4), 0.9), running_stats),
    "distances": (lambda: (draw(4, 3), draw(5, 3)), distances),
    "cosine": (lambda: (draw(4, 3), draw(5, 3)), cosine),
    "viterbi": (lambda: (draw(6, 2, 4), draw(4, 4)), viterbi),
    "crf_normaliser": (lambda: (draw(6, 2, 4), draw(4, 4)), crf_normaliser),
    "ctc": (lambda: (np.log(softmax(draw(5, 2, 3))), LABELS), ctc),
    "brackets": (lambda: (draw(3, 6, 6),), brackets),
    "warping": (lambda: (draw(6), draw(8)), warping),
}
SIZES = {"sinusoids": {"L": 5, "D": 4}, "token_means": {"P": 9}}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", TEXTS)
def test_layer_is_what_numpy_says(name: str) -> None:
    arguments, reference = CASES[name]
    given = arguments()
    kernel = tcsym.define(TEXTS[name])[name]
    expected = reference(*map(np.copy, given)) if kernel.signature.inouts else reference(*given)
    results = kernel(*given, sizes=SIZES.get(name))
    results = results if isinstance(results, tuple) else (results,)
    if kernel.signature.inouts:
        results = [
            x for n, x in zip(kernel.signature.inputs, given) if n in kernel.signature.inouts
        ]
    expected = expected if isinstance(expected, tuple) else (expected,)
    for found, wanted in zip(results, expected, strict=True):
        assert found.shape == np.shape(wanted)
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


def test_page_and_references_name_the_same_layers() -> None:
    assert set(TEXTS) == set(CASES)
    assert len(TEXTS) >= 40
