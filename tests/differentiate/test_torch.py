# SPDX-License-Identifier: Apache-2.0
"""Gradients of layers of the library beside torch.autograd, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcsym import library
from tests.hosts import host

from .differences import doubled, gradient_of, only, run

torch = host("torch")
F = torch.nn.functional

LAYERS: dict[str, tuple[dict[str, tuple[int, ...]], Callable[..., Any]]] = {
    "softmax": ({"X": (3, 5)}, lambda x: x.softmax(-1)),
    "conv2d_stride2": (
        {"I": (2, 3, 7, 8), "F": (4, 3, 3, 2)},
        lambda i, f: F.conv2d(i, f, stride=2),
    ),
    "max_pool_3x3s2": ({"I": (2, 3, 7, 9)}, lambda i: F.max_pool2d(i, 3, 2)),
    "layer_norm": (
        {"X": (3, 5), "gamma": (5,), "beta": (5,)},
        lambda x, gamma, beta: F.layer_norm(x, (5,), gamma, beta),
    ),
    "attention": (
        {"Q": (2, 2, 3, 4), "K": (2, 2, 5, 4), "V": (2, 2, 5, 3)},
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_torch(name: str) -> None:
    shapes, layer = LAYERS[name]
    program = only(doubled(library.source(name)))
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(shape) for n, shape in shapes.items()}
    leaves = [torch.tensor(x, requires_grad=True) for x in arrays.values()]
    result = layer(*leaves)
    (output,) = program.outputs
    weight = rng.standard_normal(tuple(result.shape))
    result.backward(torch.tensor(weight))
    arrays |= run(program, arrays, {}) | {f"d{output.name}": weight}
    found = run(gradient_of(program), arrays, {})
    for n, leaf in zip(shapes, leaves):
        np.testing.assert_allclose(found[f"d{n}"], leaf.grad.numpy(), atol=1e-8)
