# SPDX-License-Identifier: Apache-2.0
"""JAX: each function under `jit`, which compiles for every new shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.case import as_tuple
from benchmarks.contestant import Contestant, Maker, Problem
from benchmarks.suite import BY_NAME

Function = Callable[..., Any]


def _relu(x: Any) -> Any:
    return jnp.maximum(x, 0)


def _mlp3(x: Any, *layers: Any) -> Any:
    for weight, bias in zip(layers[::2], layers[1::2]):
        x = _relu(x @ weight.T + bias)
    return x


def _conv(stride: int = 1) -> Function:
    def run(x: Any, w: Any) -> Any:
        groups = x.shape[1] // w.shape[1]
        strides = (stride, stride)
        return lax.conv_general_dilated(x, w, strides, "VALID", feature_group_count=groups)

    return run


def _nhwc(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _dilated(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1,), "VALID", rhs_dilation=(2,))


def _max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "VALID")


def _normalised(x: Any, axes: Any) -> Any:
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5)


def _group_norm(x: Any, g: Any, b: Any) -> Any:
    return _normalised(x, (2, 3, 4)) * g[None, :, :, None, None] + b[None, :, :, None, None]


def _batch_norm(x: Any, g: Any, b: Any) -> Any:
    return _normalised(x, (0, 2, 3)) * g[:, None, None] + b[:, None, None]


def _causal(x: Any) -> Any:
    return jnp.where(jnp.tril(jnp.ones(x.shape[-2:], bool)), x, -jnp.inf)


def _attention(mask: Function) -> Function:
    def run(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bhld,bhtd->bhlt", q, k) * q.shape[-1] ** -0.5
        return jnp.einsum("bhlt,bhtd->bhld", jax.nn.softmax(mask(scores), -1), v)

    return run


def _rnn(X: Any, h: Any, W: Any, U: Any, b: Any) -> Any:
    def step(h: Any, p: Any) -> Any:
        h = jnp.tanh(p + h @ U.T)
        return h, h

    return lax.scan(step, h, X @ W.T + b)[1]


def _qrnn(Z: Any, F: Any, out: Any) -> Any:
    def step(c: Any, now: Any) -> Any:
        z, f, o = now
        c = f * c + (1 - f) * z
        return c, o * c

    return lax.scan(step, jnp.zeros_like(Z[0]), (Z, F, out))[1]


def _wavenet(X: Any, FW: Any, FB: Any, GW: Any, GB: Any, RW: Any, RB: Any, SW: Any, SB: Any) -> Any:
    late = jnp.pad(X, ((0, 0), (0, 0), (32, 0)))[:, :, : X.shape[2]]

    def convolved(W: Any, b: Any) -> Any:
        return W[:, :, 1] @ X + W[:, :, 0] @ late + b[:, None]

    gated = jnp.tanh(convolved(FW, FB)) * jax.nn.sigmoid(convolved(GW, GB))
    return X + RB[:, None] + RW @ gated, SW @ gated + SB[:, None]


def _lstm_cell(X: Any, h: Any, c: Any, W: Any, U: Any, b: Any) -> Any:
    i, f, g, o = jnp.split(X @ W.T + h @ U.T + b, 4, 1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _viterbi(E: Any, A: Any) -> Any:
    def step(v: Any, e: Any) -> Any:
        v = (v[:, None] + A).max(0) + e
        return v, v

    return jnp.concatenate([E[:1], lax.scan(step, E[0], E[1:])[1]])


def _lstm(X: Any, h: Any, c: Any, W: Any, U: Any, b: Any) -> Any:
    def step(state: Any, p: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(p + h @ U.T, 4, 1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, c), X @ W.T + b)[1]


def _gru(X: Any, h: Any, W: Any, U: Any, b: Any, c: Any) -> Any:
    def step(h: Any, p: Any) -> Any:
        r, z, m = jnp.split(p, 3, 1)
        hr, hz, hm = jnp.split(h @ U.T + c, 3, 1)
        z = jax.nn.sigmoid(z + hz)
        h = (1 - z) * jnp.tanh(m + jax.nn.sigmoid(r + hr) * hm) + z * h
        return h, h

    return lax.scan(step, h, X @ W.T + b)[1]


def _state_space(X: Any, D: Any, A: Any, Bm: Any, C: Any) -> Any:
    def step(h: Any, now: Any) -> Any:
        x, d, b, c = now
        h = jnp.exp(-d[:, :, None] * A) * h + (d * x)[:, :, None] * b[:, None, :]
        return h, (h * c[:, None, :]).sum(2)

    return lax.scan(step, jnp.zeros((X.shape[1], *A.shape)), (X, D, Bm, C))[1]


def _linear_attention(Q: Any, K: Any, V: Any) -> Any:
    def step(state: Any, now: Any) -> Any:
        q, k, v = now
        state = state + k[:, :, None] * v[:, None, :]
        return state, (q[:, :, None] * state).sum(1)

    return lax.scan(step, jnp.zeros((Q.shape[1], Q.shape[2], V.shape[2])), (Q, K, V))[1]


def _viterbi_batch(E: Any, A: Any) -> Any:
    def step(v: Any, e: Any) -> Any:
        v = (v[:, :, None] + A).max(1) + e
        return v, v

    return jnp.concatenate([E[:1], lax.scan(step, E[0], E[1:])[1]])


FUNCTIONS: dict[str, Function] = {
    "mlp1": lambda X, W, b: _relu(X @ W.T + b),
    "mlp3": _mlp3,
    "attention": _attention(lambda x: x),
    "causal_attention": _attention(_causal),
    "int8_matmul": lambda X, W, S: (X @ W.astype(np.float32).T) * S,
    "bfloat_linear": lambda X, W, b: X @ W.T + b,
    "byte_matmul": lambda A, B: jnp.matmul(A, B.T, preferred_element_type=np.int32),
    "half_matmul": lambda A, B: jnp.matmul(A, B.T, preferred_element_type=np.float32),
    "conv": _conv(),
    "conv_s2": _conv(2),
    "gconv": lambda x, w, b: _conv()(x, w) + b[:, None, None],
    "dwconv": _conv(),
    "conv_nhwc": _nhwc,
    "conv1d_d2": _dilated,
    "groupnorm": _group_norm,
    "moments": lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))),
    "softmax": lambda x: jax.nn.softmax(x, -1),
    "layernorm": lambda x, g, b: _normalised(x, -1) * g + b,
    "causal_softmax": lambda x: jax.nn.softmax(_causal(x), -1),
    "log_softmax": lambda x: jax.nn.log_softmax(x, -1),
    "batchnorm": _batch_norm,
    "rnn": _rnn,
    "qrnn": _qrnn,
    "wavenet": _wavenet,
    "lstm_cell": _lstm_cell,
    "viterbi": _viterbi,
    "lstm": _lstm,
    "gru": _gru,
    "qrnn_steps": _qrnn,
    "state_space": _state_space,
    "linear_attention": _linear_attention,
    "viterbi_batch": _viterbi_batch,
    "prefix_sum": lambda X: jnp.cumsum(X, 1),
    "lut1": lambda T, at: T[at].sum(1),
    "maxpool": _max_pool,
    "mindist": lambda X, Y: ((X[:, None, :] - Y[None]) ** 2).sum(-1).min(1),
    "gelu_chain": lambda x, y: jax.nn.gelu(x, approximate=True) * y + jnp.tanh(y),
    "add_relu": lambda X, b: _relu(X + b),
    "rowsum": lambda X: X.sum(1),
    "colsum": lambda X: X.sum(0),
    "transpose": lambda X: X.T.copy(),
    "permute": lambda X: X.transpose(0, 2, 1, 3).copy(),
    "call": lambda x, y: x + y,
}


@lru_cache(None)
def jitted(name: str) -> Function:
    spec = BY_NAME[name].einsum
    if spec:
        return jax.jit(lambda *arrays: jnp.einsum(spec, *arrays, optimize="optimal"))
    return jax.jit(FUNCTIONS[name])


def contestant_of(problem: Problem) -> Contestant:
    arrays = [jnp.asarray(a) for a in problem.library_arrays]
    function = jitted(problem.case.name)

    def run() -> Any:
        return jax.block_until_ready(function(*arrays))

    return Contestant(run, lambda result: tuple(np.asarray(a) for a in as_tuple(result)))


def contestants(problem: Problem) -> Iterator[tuple[str, Maker]]:
    if problem.case.einsum or problem.case.name in FUNCTIONS:
        yield "jax", lambda: contestant_of(problem)
