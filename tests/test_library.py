# SPDX-License-Identifier: Apache-2.0
"""Every kernel of the library against numpy, at ragged sizes, and its place in the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.lib.stride_tricks import sliding_window_view

import tcsym
from tcsym import library
from tcsym.cli.main import main

Array = Any
Case = tuple[dict[str, tuple[int, ...]], Callable[..., Any]]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def causal(x: Array) -> Array:
    rows, columns = np.indices(x.shape[-2:])
    return softmax(np.where(columns <= rows, x, -np.inf))


def normalised(x: Array, axes: tuple[int, ...]) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def conv(x: Array, w: Array, stride: int = 1) -> Array:
    """N, C, spatial... * O, C, kernel..., without padding."""
    n = w.ndim - 2
    windows = sliding_window_view(x, w.shape[2:], tuple(range(2, 2 + n)))
    windows = windows[(slice(None), slice(None), *[slice(None, None, stride)] * n)]
    letters = "xyz"[:n]
    return np.einsum(f"nc{letters}{'ijk'[:n]},oc{'ijk'[:n]}->no{letters}", windows, w)


def padded(x: Array, w: Array) -> Array:
    kh, kw = w.shape[2:]
    before = (kh // 2, kw // 2)
    pads = [(b, k - 1 - b) for b, k in zip(before, (kh, kw))]
    return conv(np.pad(x, [(0, 0), (0, 0), *pads]), w)


def pooled(x: Array, size: int, reduce: Callable[..., Array]) -> Array:
    return reduce(sliding_window_view(x, (size, size), (2, 3))[:, :, ::2, ::2], (-2, -1))


def attention(q: Array, k: Array, v: Array, weights: Callable[[Array], Array]) -> Array:
    return weights(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def elman(x: Array, h: Array, w: Array, u: Array, b: Array) -> Array:
    states = [h]
    for row in x:
        states.append(np.tanh(row @ w.T + states[-1] @ u.T + b))
    return np.stack(states)


def lstm(x: Array, h: Array, c: Array, w: Array, u: Array, b: Array) -> Array:
    states, cells = [h], [c]
    for row in x:
        i, f, g, o = (row @ w[q].T + states[-1] @ u[q].T + b[q] for q in range(4))
        cells.append(sigmoid(f) * cells[-1] + sigmoid(i) * np.tanh(g))
        states.append(sigmoid(o) * np.tanh(cells[-1]))
    return np.stack(states), np.stack(cells)


def gru(x: Array, h: Array, w: Array, u: Array, b: Array, c: Array) -> Array:
    states = [h]
    for row in x:
        p = [row @ w[q].T + b[q] for q in range(3)]
        g = [states[-1] @ u[q].T + c[q] for q in range(3)]
        r, z = sigmoid(p[0] + g[0]), sigmoid(p[1] + g[1])
        states.append((1 - z) * np.tanh(p[2] + r * g[2]) + z * states[-1])
    return np.stack(states)


def qrnn(z: Array, f: Array, o: Array) -> Array:
    c, out = np.zeros_like(z[0]), []
    for t in range(len(z)):
        c = f[t] * c + (1 - f[t]) * z[t]
        out.append(o[t] * c)
    return np.stack(out)


def viterbi(emission: Array, transition: Array) -> Array:
    scores = [emission[0]]
    for row in emission[1:]:
        scores.append((scores[-1][:, None] + transition).max(0) + row)
    return np.stack(scores)


def distances(x: Array, y: Array) -> Array:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def cross_entropy(x: Array, label: Array) -> Array:
    return -np.log(softmax(x))[np.arange(len(x)), label]


def einsum(spec: str) -> Callable[..., Array]:
    return lambda *a: np.einsum(spec, *a)


MM = {"A": (13, 37), "B": (37, 21)}
CASES: dict[str, Case] = {
    "matmul": (MM, lambda a, b: a @ b),
    "matmul_nt": ({"A": (13, 37), "B": (21, 37)}, lambda a, b: a @ b.T),
    "matmul_tn": ({"A": (37, 13), "B": (37, 21)}, lambda a, b: a.T @ b),
    "matmul_tt": ({"A": (37, 13), "B": (21, 37)}, lambda a, b: a.T @ b.T),
    "matmul_int8": (MM, lambda a, b: a.astype(np.int32) @ b.astype(np.int32)),
    "batched_matmul": ({"X": (3, 7, 19), "Y": (3, 19, 11)}, lambda x, y: x @ y),
    "matvec": ({"A": (13, 37), "x": (37,)}, lambda a, x: a @ x),
    "outer": ({"X": (3, 7), "Y": (3, 21)}, einsum("bm,bn->bmn")),
    "linear": (
        {"X": (13, 37), "W": (21, 37), "b": (21,)},
        lambda x, w, b: x @ w.T + b,
    ),
    "linear_relu": (
        {"X": (13, 37), "W": (21, 37), "b": (21,)},
        lambda x, w, b: relu(x @ w.T + b),
    ),
    "linear_int8": (
        {"X": (13, 37), "W": (21, 37), "scale": (21,)},
        lambda x, w, s: x @ w.T.astype(np.float32) * s,
    ),
    "swiglu": (
        {"X": (13, 37), "W": (21, 37), "V": (21, 37)},
        lambda x, w, v: silu(x @ w.T) * (x @ v.T),
    ),
    "mlp3": (
        {"X": (9, 20), "W1": (17, 20), "b1": (17,), "W2": (13, 17), "b2": (13,)}
        | {"W3": (5, 13), "b3": (5,)},
        lambda x, a, p, b, q, c, r: relu(relu(relu(x @ a.T + p) @ b.T + q) @ c.T + r),
    ),
    "kronecker3": (
        {"W0": (4, 3), "W1": (6, 5), "W2": (18, 7), "X": (5, 3, 5, 7)},
        einsum("xa,yb,zc,mabc->mxyz"),
    ),
    "conv1d": (
        {"X": (2, 3, 29), "W": (5, 3, 4), "b": (5,)},
        lambda x, w, b: conv(x, w) + b[:, None],
    ),
    "conv1d_causal": (
        {"X": (2, 3, 29), "W": (5, 3, 4)},
        lambda x, w: conv(np.pad(x, [(0, 0), (0, 0), (w.shape[2] - 1, 0)]), w),
    ),
    "conv2d": ({"I": (2, 3, 9, 21), "F": (5, 3, 3, 2)}, conv),
    "conv2d_bias_relu": (
        {"I": (2, 3, 9, 21), "F": (5, 3, 3, 3), "b": (5,)},
        lambda x, w, b: relu(conv(x, w) + b[:, None, None]),
    ),
    "conv2d_same": ({"I": (2, 3, 7, 19), "F": (5, 3, 3, 4)}, padded),
    "conv2d_stride2": ({"I": (2, 3, 11, 25), "F": (5, 3, 3, 3)}, lambda x, w: conv(x, w, 2)),
    "conv2d_nhwc": (
        {"I": (2, 9, 12, 3), "F": (3, 3, 3, 17)},
        lambda x, w: conv(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)).transpose(0, 2, 3, 1),
    ),
    "conv2d_grouped": (
        {"I": (2, 3, 4, 9, 11), "F": (3, 5, 4, 3, 3), "b": (3, 5)},
        lambda x, w, b: np.stack([conv(x[:, g], w[g]) for g in range(3)], 1) + b[:, :, None, None],
    ),
    "conv2d_depthwise": (
        {"I": (2, 5, 9, 21), "F": (5, 3, 3)},
        lambda x, w: np.concatenate(
            [conv(x[:, c : c + 1], w[None, c : c + 1]) for c in range(5)], 1
        ),
    ),
    "conv3d": ({"I": (2, 3, 5, 6, 19), "F": (4, 3, 2, 3, 2)}, conv),
    "max_pool_2x2": ({"I": (2, 3, 9, 34)}, lambda x: pooled(x, 2, np.max)),
    "max_pool_3x3s2": ({"I": (2, 3, 9, 35)}, lambda x: pooled(x, 3, np.max)),
    "avg_pool_2x2": ({"I": (2, 3, 9, 34)}, lambda x: pooled(x, 2, np.mean)),
    "global_avg_pool": ({"I": (2, 3, 5, 7)}, lambda x: x.mean((2, 3))),
    "softmax": ({"X": (5, 37)}, softmax),
    "log_softmax": ({"X": (5, 37)}, lambda x: np.log(softmax(x))),
    "causal_softmax": ({"X": (11, 19)}, causal),
    "cross_entropy": ({"X": (5, 37), "label": (5,)}, cross_entropy),
    "layer_norm": (
        {"X": (5, 37), "gamma": (37,), "beta": (37,)},
        lambda x, g, b: normalised(x, (1,)) * g + b,
    ),
    "rms_norm": (
        {"X": (5, 37), "gamma": (37,)},
        lambda x, g: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * g,
    ),
    "batch_norm": (
        {"X": (2, 3, 5, 7), "mean": (3,), "var": (3,), "gamma": (3,), "beta": (3,)},
        lambda x, m, v, g, b: ((x.swapaxes(1, 3) - m) / np.sqrt(v + 1e-5) * g + b).swapaxes(1, 3),
    ),
    "moments": ({"X": (4, 3, 5, 7)}, lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3)))),
    "group_norm": (
        {"X": (2, 3, 4, 5, 7), "gamma": (3, 4), "beta": (3, 4)},
        lambda x, g, b: normalised(x, (2, 3, 4)) * g[..., None, None] + b[..., None, None],
    ),
    "gelu": (
        {"X": (5, 37)},
        lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    ),
    "attention": (
        {"Q": (2, 3, 11, 8), "K": (2, 3, 13, 8), "V": (2, 3, 13, 17)},
        lambda q, k, v: attention(q, k, v, softmax),
    ),
    "causal_attention": (
        {"Q": (2, 3, 13, 8), "K": (2, 3, 13, 8), "V": (2, 3, 13, 17)},
        lambda q, k, v: attention(q, k, v, causal),
    ),
    "elman_rnn": (
        {"X": (5, 3, 7), "h0": (3, 19), "W": (19, 7), "U": (19, 19), "b": (19,)},
        elman,
    ),
    "lstm": (
        {"X": (5, 3, 7), "h0": (3, 19), "c0": (3, 19), "W": (4, 19, 7), "U": (4, 19, 19)}
        | {"b": (4, 19)},
        lstm,
    ),
    "gru": (
        {"X": (5, 3, 7), "h0": (3, 19), "W": (3, 19, 7), "U": (3, 19, 19), "b": (3, 19)}
        | {"c": (3, 19)},
        gru,
    ),
    "qrnn": ({"Z": (6, 3, 19), "F": (6, 3, 19), "O": (6, 3, 19)}, qrnn),
    "cumulative_sum": ({"X": (6, 19)}, lambda x: np.cumsum(x, 0)),
    "viterbi": ({"emission": (6, 19), "transition": (19, 19)}, viterbi),
    "embedding": ({"table": (23, 19), "index": (3, 5)}, lambda t, i: t[i]),
    "embedding_bag": ({"table": (23, 19), "index": (3, 5)}, lambda t, i: t[i].sum(1)),
    "embedding_bag_weighted": (
        {"table": (23, 19), "index": (3, 5), "weight": (3, 5)},
        lambda t, i, w: (t[i] * w[..., None]).sum(1),
    ),
    "squared_distances": ({"X": (13, 5), "Y": (21, 5)}, distances),
    "nearest_distance": ({"X": (13, 5), "Y": (21, 5)}, lambda x, y: distances(x, y).min(1)),
    "cosine_similarity": ({"X": (13, 5), "Y": (21, 5)}, lambda x, y: unit(x) @ unit(y).T),
    "transpose": ({"X": (13, 37)}, lambda x: x.T),
    "row_sum": ({"X": (13, 37)}, lambda x: x.sum(1)),
    "column_sum": ({"X": (13, 37)}, lambda x: x.sum(0)),
}


def inputs(name: str, shapes: dict[str, tuple[int, ...]]) -> list[Array]:
    """Random arrays of the declared types; integers are valid positions of the first input."""
    rng = np.random.default_rng(7)
    types = library.load(name).signature.inputs
    positions = next(iter(shapes.values()))[-1 if name == "cross_entropy" else 0]
    made: list[Array] = []
    for parameter, shape in shapes.items():
        dtype = types[parameter].dtype.value
        if dtype == "int32":
            made.append(rng.integers(0, positions, shape).astype(np.int32))
        elif dtype == "int8":
            made.append(rng.integers(-128, 128, shape).astype(np.int8))
        elif parameter in ("var", "F", "scale"):
            made.append(rng.random(shape, np.float32))
        else:
            made.append(rng.standard_normal(shape, np.float32))
    return made


def test_every_kernel_has_a_case() -> None:
    assert set(library.names()) == set(CASES)
    assert len(CASES) >= 40


@pytest.mark.parametrize("name", CASES)
def test_kernel_computes_what_numpy_does(name: str) -> None:
    shapes, expected = CASES[name]
    arrays = inputs(name, shapes)
    kernel = getattr(library, name)
    got, want = kernel(*arrays), expected(*arrays)
    for a, b in zip(*((x,) if not isinstance(x, tuple) else x for x in (got, want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
    for a, b in zip(
        *((x,) if not isinstance(x, tuple) else x for x in (got, kernel.reference(*arrays))),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", CASES)
def test_file_says_what_it_computes_and_fits_the_page(name: str) -> None:
    lines = library.source(name).splitlines()
    assert lines[0].startswith("# ") and library.description(name).endswith(".")
    assert max(map(len, lines)) <= 100
    assert "Sizes:" not in library.description(name)
    assert library.sizes(name).keys() == library.load(name).sizes.keys()
    assert list(tcsym.define(library.source(name))) == [name]


def test_settings_reach_the_kernel() -> None:
    kernel = library.load("matmul", sizes={"K": 4})
    with pytest.raises(tcsym.SizeError):
        kernel(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))


def test_unknown_names() -> None:
    with pytest.raises(tcsym.OptionError, match=r"no kernel `sotfmax`(?s:.*)softmax"):
        library.source("sotfmax")
    with pytest.raises(AttributeError, match="no kernel `sotfmax`"):
        _ = library.sotfmax
    assert {"load", "softmax"} <= set(dir(library))


def test_command_line() -> None:
    listed = CliRunner().invoke(main, ["list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in library.names())
    shown = CliRunner().invoke(main, ["show", "library:row_sum", "syntax"])
    assert shown.exit_code == 0 and "def row_sum" in shown.output
    wrong = CliRunner().invoke(main, ["run", "library:row_sun"])
    assert wrong.exit_code == 2 and "did you mean row_sum" in wrong.output
