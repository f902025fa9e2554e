# SPDX-License-Identifier: Apache-2.0
"""Inputs for a kernel: values by kind, memory layouts by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tcsym.index.values import evaluate
from tcsym.types import DType

LAYOUTS = ("dense", "transposed", "sliced", "reversed", "broadcast")


def values(rng: np.random.Generator, dtype: DType, shape: list[int], how: str, sizes: Any) -> Any:
    if how.startswith("index "):
        return rng.integers(0, max(1, sizes[how.split()[1]]), shape).astype(dtype.numpy)
    if how == "bit":
        return rng.integers(0, 2, shape).astype(dtype.numpy)
    if how == "small":
        return rng.integers(-2, 3, shape).astype(dtype.numpy) / (4 if dtype.is_float else 1)
    if how == "special":
        x = rng.standard_normal(shape).reshape(-1)
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, 300.0, -129.5]
        at = rng.integers(0, max(1, x.size), x.size // 3)
        x[at] = np.resize(special, at.size)
        return x.reshape(shape).astype(dtype.numpy)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    low, high = max(-1000, dtype.lowest), min(1000, dtype.highest)
    return rng.integers(low, high + 1, shape).astype(dtype.numpy)


def laid_out(x: Any, layout: str) -> Any:
    """The same values (broadcast: the first repeated) in other strides."""
    if x.ndim == 0 or layout == "dense":
        return x
    if layout == "transposed":
        return np.ascontiguousarray(x.T).T
    if layout == "sliced":
        big = np.zeros([2 * n + 1 for n in x.shape], x.dtype)
        view = big[tuple(slice(1, None, 2) for _ in x.shape)]
        view[...] = x
        return view
    if layout == "reversed":
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    return np.broadcast_to(x[:1], x.shape)


def arguments(
    kernel: Any,
    sizes: Mapping[str, int],
    gen: Mapping[str, str],
    layout: str = "dense",
    seed: int = 0,
) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    made = {}
    for name, declared in kernel.signature.inputs.items():
        shape = [evaluate(d, sizes) for d in declared.shape]
        x = values(rng, declared.dtype, shape, gen.get(name, "normal"), sizes)
        made[name] = laid_out(np.asarray(x, declared.dtype.numpy), layout)
    return made
