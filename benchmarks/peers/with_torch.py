# SPDX-License-Identifier: Apache-2.0
"""PyTorch: eager (also channels-last and `out=`), and torch.compile with fixed and free sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as fn

from benchmarks.case import as_tuple
from benchmarks.contestant import Contestant, Maker, Problem
from benchmarks.suite import BY_NAME

Function = Callable[..., Any]


def _kron(W0: Any, W1: Any, W2: Any, X: Any) -> Any:
    t = X @ W2.t()
    t = torch.einsum("mabz,yb->mayz", t, W1)
    return torch.einsum("mayz,xa->mxyz", t, W0)


def _mlp3(x: Any, *layers: Any) -> Any:
    for weight, bias in zip(layers[::2], layers[1::2]):
        x = torch.relu(fn.linear(x, weight, bias))
    return x


def _group_norm(x: Any, g: Any, b: Any) -> Any:
    n, groups, d, h, w = x.shape
    flat = fn.group_norm(x.reshape(n, groups * d, h, w), groups, g.reshape(-1), b.reshape(-1))
    return flat.reshape(x.shape)


def _moments(x: Any) -> Any:
    var, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
    return mean, var


def _causal_softmax(x: Any) -> Any:
    keep = torch.ones(x.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(x.masked_fill(~keep, float("-inf")), -1)


def _rnn(X: Any, h: Any, W: Any, U: Any, b: Any) -> Any:
    states = []
    for p in fn.linear(X, W, b):
        h = torch.tanh(torch.addmm(p, h, U.t()))
        states.append(h)
    return torch.stack(states)


def _qrnn(Z: Any, F: Any, out: Any) -> Any:
    c = torch.zeros_like(Z[0])
    states = []
    inputs = (1 - F) * Z
    for t in range(Z.shape[0]):
        c = torch.addcmul(inputs[t], F[t], c)
        states.append(c)
    return out * torch.stack(states)


def _wavenet(X: Any, FW: Any, FB: Any, GW: Any, GB: Any, RW: Any, RB: Any, SW: Any, SB: Any) -> Any:
    padded = fn.pad(X, (32, 0))
    f = fn.conv1d(padded, FW, FB, dilation=32)
    g = fn.conv1d(padded, GW, GB, dilation=32)
    gated = torch.tanh(f) * torch.sigmoid(g)
    return X + fn.conv1d(gated, RW[:, :, None], RB), fn.conv1d(gated, SW[:, :, None], SB)


def _viterbi(E: Any, A: Any) -> Any:
    scores = [E[0]]
    for e in E[1:]:
        scores.append((scores[-1][:, None] + A).amax(0) + e)
    return torch.stack(scores)


def _lstm(X: Any, h: Any, c: Any, W: Any, U: Any, b: Any) -> Any:
    weights = [W, U, b, torch.zeros_like(b)]
    return torch.lstm(X, (h[None], c[None]), weights, True, 1, 0.0, False, False, False)[0]


def _gru(X: Any, h: Any, W: Any, U: Any, b: Any, c: Any) -> Any:
    return torch.gru(X, h[None], [W, U, b, c], True, 1, 0.0, False, False, False)[0]


def _state_space(X: Any, D: Any, A: Any, Bm: Any, C: Any) -> Any:
    h = torch.zeros(X.shape[1], *A.shape)
    out = []
    for x, d, b, c in zip(X, D, Bm, C):
        h = torch.exp(-d[:, :, None] * A) * h + (d * x)[:, :, None] * b[:, None, :]
        out.append(torch.bmm(h, c[:, :, None])[:, :, 0])
    return torch.stack(out)


def _linear_attention(Q: Any, K: Any, V: Any) -> Any:
    """All steps at once: scores under a mask, which for these lengths is quicker than a loop."""
    scores = torch.einsum("tbk,sbk->bts", Q, K).tril()
    return torch.einsum("bts,sbv->tbv", scores, V)


def _viterbi_batch(E: Any, A: Any) -> Any:
    scores = [E[0]]
    for e in E[1:]:
        scores.append((scores[-1][:, :, None] + A).amax(1) + e)
    return torch.stack(scores)


def _csr(value: Any, column: Any, off: Any, X: Any) -> Any:
    shape = (len(off) - 1, len(X))
    return torch.sparse_csr_tensor(off, column, value, shape, check_invariants=False) @ X


@lru_cache(1)
def _window_mask(length: int) -> Any:
    at = torch.arange(length)
    apart = at[:, None] - at
    return (apart >= 0) & (apart < 64)


def _window(q: Any, k: Any, v: Any) -> Any:
    return fn.scaled_dot_product_attention(q, k, v, attn_mask=_window_mask(q.shape[2]))


def _mixture(X: Any, W: Any, chosen: Any, gate: Any) -> Any:
    """By experts: each one product with the tokens that chose it."""
    Y = torch.zeros(len(X), W.shape[1])
    for e in range(len(W)):
        n, j = torch.where(chosen == e)
        Y.index_add_(0, n, gate[n, j, None] * (X[n] @ W[e].t()))
    return Y


def _mixture_grouped(X: Any, W: Any, chosen: Any, gate: Any) -> Any:
    """The same with the tokens sorted by expert, for torch's product of groups."""
    flat = chosen.reshape(-1)
    order = torch.argsort(flat, stable=True)
    ends = torch.bincount(flat, minlength=len(W)).cumsum(0).int()
    rows = X[order // chosen.shape[1]] * gate.reshape(-1)[order, None]
    sums = fn.grouped_mm(rows, W.transpose(1, 2), offs=ends)
    Y = torch.empty_like(sums)
    Y[order] = sums
    return Y.reshape(*chosen.shape, -1).sum(1)


def _nhwc(x: Any, w: Any) -> Any:
    """Channels-last tensors are this memory, so torch converts nothing but the filter."""
    return fn.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1)).permute(0, 2, 3, 1)


EAGER: dict[str, Function] = {
    "tmm": lambda A, B: A @ B.t(),
    "tbmm": lambda X, Y: torch.bmm(X, Y.transpose(1, 2)),
    "mm": lambda A, B: A @ B,
    "mm_tn": lambda A, B: A.t() @ B,
    "mm_tt": lambda A, B: A.t() @ B.t(),
    "matvec": lambda A, x: A @ x,
    "kron3": _kron,
    "mlp1": lambda X, W, b: torch.relu(fn.linear(X, W, b)),
    "mlp3": _mlp3,
    "attention": lambda q, k, v: fn.scaled_dot_product_attention(q, k, v),
    "causal_attention": lambda q, k, v: fn.scaled_dot_product_attention(q, k, v, is_causal=True),
    "int8_matmul": lambda X, W, S: (X @ W.float().t()) * S,
    "bfloat_linear": lambda X, W, b: fn.linear(X, W, b),
    "byte_matmul": lambda A, B: torch._int_mm(A, B.t()),
    "half_matmul": lambda A, B: (A @ B.t()).float(),
    "conv": lambda x, w: fn.conv2d(x, w),
    "conv_s2": lambda x, w: fn.conv2d(x, w, stride=2),
    "gconv": lambda x, w, b: fn.conv2d(x, w, b, groups=x.shape[1] // w.shape[1]),
    "dwconv": lambda x, w: fn.conv2d(x, w, groups=x.shape[1]),
    "conv_nhwc": _nhwc,
    "conv1d_d2": lambda x, w: fn.conv1d(x, w, dilation=2),
    "groupnorm": _group_norm,
    "moments": _moments,
    "softmax": lambda x: torch.softmax(x, -1),
    "layernorm": lambda x, g, b: fn.layer_norm(x, (x.shape[-1],), g, b),
    "causal_softmax": _causal_softmax,
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "batchnorm": lambda x, g, b: fn.batch_norm(x, None, None, g, b, training=True),
    "rnn": _rnn,
    "qrnn": _qrnn,
    "wavenet": _wavenet,
    "lstm_cell": lambda X, h, c, W, U, b: torch.lstm_cell(X, (h, c), W, U, b),
    "viterbi": _viterbi,
    "ragged_bag": lambda E, at, off: fn.embedding_bag(
        at, E, off, mode="sum", include_last_offset=True
    ),
    "segment_sum": lambda X, off: torch.segment_reduce(X, "sum", offsets=off.long()),
    "csr_dense": _csr,
    "csr_vector": _csr,
    "histogram": lambda at: torch.bincount(at, minlength=256).int(),
    "scatter_rows": lambda base, X, at: base.index_add(0, at, X),
    "ranged_causal_attention": lambda q, k, v: fn.scaled_dot_product_attention(
        q, k, v, is_causal=True
    ),
    "window_attention": _window,
    "mixture": _mixture,
    "lstm": _lstm,
    "gru": _gru,
    "qrnn_steps": _qrnn,
    "state_space": _state_space,
    "linear_attention": _linear_attention,
    "viterbi_batch": _viterbi_batch,
    "prefix_sum": lambda X: torch.cumsum(X, 1),
    "outer": lambda X, Y: X[:, :, None] * Y[:, None, :],
    "lut1": lambda T, at: fn.embedding_bag(at, T, mode="sum"),
    "maxpool": lambda x: fn.max_pool2d(x, 3, 2),
    "mindist": lambda X, Y: ((X[:, None, :] - Y[None]) ** 2).sum(-1).amin(1),
    "gelu_chain": lambda x, y: fn.gelu(x, approximate="tanh") * y + torch.tanh(y),
    "add_relu": lambda X, b: torch.relu(X + b),
    "rowsum": lambda X: X.sum(1),
    "colsum": lambda X: X.sum(0),
    # not `contiguous`: across a dimension of extent 1 it would return its argument, uncopied
    "transpose": lambda X: X.t().clone(memory_format=torch.contiguous_format),
    "permute": lambda X: X.permute(0, 2, 1, 3).clone(memory_format=torch.contiguous_format),
    "call": lambda x, y: x + y,
}

INTO_GIVEN: dict[str, Function] = {
    "tmm": lambda out, A, B: torch.mm(A, B.t(), out=out),
    "mm": lambda out, A, B: torch.mm(A, B, out=out),
    "mm_tn": lambda out, A, B: torch.mm(A.t(), B, out=out),
    "mm_tt": lambda out, A, B: torch.mm(A.t(), B.t(), out=out),
    "matvec": lambda out, A, x: torch.mv(A, x, out=out),
    "tbmm": lambda out, X, Y: torch.bmm(X, Y.transpose(1, 2), out=out),
    "mlp1": lambda out, X, W, b: torch.addmm(b, X, W.t(), out=out).relu_(),
    "softmax": lambda out, x: torch.softmax(x, -1, out=out),
    "log_softmax": lambda out, x: torch.log_softmax(x, -1, out=out),
    "prefix_sum": lambda out, X: torch.cumsum(X, 1, out=out),
    "outer": lambda out, X, Y: torch.mul(X[:, :, None], Y[:, None, :], out=out),
    "add_relu": lambda out, X, b: torch.add(X, b, out=out).relu_(),
    "rowsum": lambda out, X: torch.sum(X, 1, out=out),
    "colsum": lambda out, X: torch.sum(X, 0, out=out),
    "transpose": lambda out, X: out.copy_(X.t()),
    "permute": lambda out, X: out.copy_(X.permute(0, 2, 1, 3)),
    "call": lambda out, x, y: torch.add(x, y, out=out),
}

OTHERWISE: dict[str, tuple[str, Function]] = {"mixture": ("grouped_mm", _mixture_grouped)}

CHANNELS_LAST = ("conv", "conv_s2", "gconv", "dwconv", "maxpool")  # converted before timing


@lru_cache(None)
def _without_gradients() -> Any:
    """Inference mode from now on, for the whole process."""
    mode = torch.inference_mode()
    mode.__enter__()
    return mode


def tensors_of(problem: Problem) -> list[Any]:
    _without_gradients()
    torch.set_num_threads(problem.threads)
    return [_tensor(a) for a in problem.library_arrays]


def _tensor(a: np.ndarray) -> Any:
    if a.dtype.name == "bfloat16":
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)


def _arrays(result: Any) -> tuple[Any, ...]:
    found = as_tuple(result)
    return tuple((t.float() if t.dtype is torch.bfloat16 else t).numpy() for t in found)


def _contestant(function: Function, tensors: list[Any]) -> Contestant:
    return Contestant(lambda: function(*tensors), _arrays)


def plain_function(name: str) -> Function:
    if name in EAGER:
        return EAGER[name]
    spec = BY_NAME[name].einsum
    return lambda *tensors: torch.einsum(spec, *tensors)


def _eager(problem: Problem) -> Contestant:
    return _contestant(plain_function(problem.case.name), tensors_of(problem))


def _channels_last(problem: Problem) -> Contestant:
    converted = [
        t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t
        for t in tensors_of(problem)
    ]
    return _contestant(EAGER[problem.case.name], converted)


def _into_given(problem: Problem) -> Contestant:
    tensors = tensors_of(problem)
    out = EAGER[problem.case.name](*tensors).clone(memory_format=torch.contiguous_format)
    return _contestant(lambda *given: INTO_GIVEN[problem.case.name](out, *given), tensors)


def contestants(problem: Problem) -> Iterator[tuple[str, Maker]]:
    if not (problem.case.einsum or problem.case.name in EAGER):
        return
    yield "torch", lambda: _eager(problem)
    if problem.case.name in OTHERWISE and problem.sizes["K"] % 4 == 0:  # else it refuses
        name, function = OTHERWISE[problem.case.name]
        yield f"torch {name}", lambda: _contestant(function, tensors_of(problem))
    if problem.case.name in CHANNELS_LAST:
        yield "torch channels-last", lambda: _channels_last(problem)
    if problem.case.name in INTO_GIVEN:
        yield "torch out=", lambda: _into_given(problem)


@lru_cache(None)
def _compiled(name: str, dynamic: bool) -> Function:
    """With free sizes one compilation serves all; with fixed ones each size is compiled again."""
    import torch._dynamo

    torch._dynamo.config.recompile_limit = 1000  # never fall back to eager
    return torch.compile(plain_function(name), dynamic=dynamic)


def static(problem: Problem) -> Iterator[tuple[str, Maker]]:
    return _by_compiler(problem, "compile", False)


def dynamic(problem: Problem) -> Iterator[tuple[str, Maker]]:
    return _by_compiler(problem, "compile dynamic", True)


def _by_compiler(problem: Problem, peer: str, dynamic: bool) -> Iterator[tuple[str, Maker]]:
    name = problem.case.name
    if problem.case.einsum or name in EAGER:
        yield peer, lambda: _contestant(_compiled(name, dynamic), tensors_of(problem))
