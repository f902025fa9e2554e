# SPDX-License-Identifier: Apache-2.0
"""What users of torch write for layers of docs/gallery.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as fn


def _highway(X: Any, W: Any, b: Any, G: Any, g: Any) -> Any:
    gate = torch.sigmoid(fn.linear(X, G, g))
    return gate * torch.tanh(fn.linear(X, W, b)) + (1 - gate) * X


def _add_rms_norm(X: Any, R: Any, gamma: Any) -> Any:
    S = X + R
    return S, fn.rms_norm(S, gamma.shape, gamma, 1e-6)


def _squeeze_excite(X: Any, A: Any, B: Any) -> Any:
    z = torch.relu(fn.linear(X.mean((2, 3)), A))
    return X * torch.sigmoid(fn.linear(z, B))[:, :, None, None]


def _separable(image: Any, D: Any, P: Any) -> Any:
    return fn.conv2d(fn.conv2d(image, D[:, None], groups=len(D)), P[:, :, None, None])


def _grouped_query(q: Any, k: Any, v: Any) -> Any:
    found = fn.scaled_dot_product_attention(q.flatten(1, 2), k, v, enable_gqa=True)
    return found.unflatten(1, q.shape[1:3])


def _causal(x: Any, w: Any) -> Any:
    return fn.conv1d(fn.pad(x, (2 * w.shape[2] - 2, 0)), w.flip(2), dilation=2)


def _rotary(X: Any, angle: Any) -> Any:
    turned = torch.stack((-X[:, :, :, 1], X[:, :, :, 0]), 3)
    cos, sin = (f(angle)[:, None, None] for f in (torch.cos, torch.sin))
    return X * cos + turned * sin


def _lstm(X: Any, h: Any, c: Any, W: Any, U: Any, b: Any) -> Any:
    n = h.shape[1]
    weights = [W.reshape(4 * n, -1), U.reshape(4 * n, n), b.reshape(-1), X.new_zeros(4 * n)]
    return torch.lstm(X, (h[None], c[None]), weights, True, 1, 0.0, True, False, False)[0]


def _graph_conv(X: Any, A: Any, W: Any) -> Any:
    return A @ (X @ W.t()) / A.sum(1, keepdim=True).clamp(min=1.0)


def _cosine(X: Any, Y: Any) -> Any:
    norms = (X * X).sum(1)[:, None] * (Y * Y).sum(1)
    return X @ Y.t() * torch.rsqrt(norms.clamp(min=1e-12))


LAYERS: dict[str, Callable[..., Any]] = {
    "linear_relu": lambda X, W, b: torch.relu(fn.linear(X, W, b)),
    "swiglu": lambda X, W, V: fn.silu(fn.linear(X, W)) * fn.linear(X, V),
    "highway": _highway,
    "bilinear": fn.bilinear,
    "layer_norm": lambda X, g, b: fn.layer_norm(X, g.shape, g, b),
    "add_rms_norm": _add_rms_norm,
    "instance_norm": fn.instance_norm,
    "squeeze_excite": _squeeze_excite,
    "conv2d_same": lambda x, w, b: torch.relu(fn.conv2d(x, w, b, padding="same")),
    "separable": _separable,
    "conv1d_causal": _causal,
    "patches": lambda x, w: fn.conv2d(x, w, stride=16).permute(0, 2, 3, 1),
    "pool": lambda x: (fn.max_pool2d(x, 3, 2), x.mean((2, 3))),
    "grouped_query_attention": _grouped_query,
    "causal_attention": lambda q, k, v: fn.scaled_dot_product_attention(q, k, v, is_causal=True),
    "rotary": _rotary,
    "lstm": _lstm,
    "embedding_bag": lambda table, at, weight: (fn.embedding(at, table) * weight[:, :, None]).sum(
        1
    ),
    "graph_conv": _graph_conv,
    "cosine": _cosine,
    "deep_set": lambda x, mask, w: (mask[:, :, None] * torch.relu(fn.linear(x, w))).sum(1),
}
