# SPDX-License-Identifier: Apache-2.0
"""Backward passes of the suite's kernels: gradients of all floating inputs, for one of each output.

Right is what torch's own functions give in float64. A pass counts for twice the forward's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.case import Case, as_tuple

SUFFIX = " backward"
SUFFIX_OF_STEPS = " step"  # forward and backward, of a layer of the gallery
_LOW = ("half_matmul", "bfloat_linear")  # torch sums these in their own type
_NO_PEER = ("ragged_bag", "segment_sum", "csr_dense", "mixture")  # torch has no gradient there
_VIEWS = ("rowsum", "colsum", "transpose", "permute")  # torch answers with strides, for nothing


def backward_cases(cases: Iterable[Case]) -> tuple[Case, ...]:
    return tuple(_backward(c) for c in cases if _has_gradient(c))


def in_torch(name: str) -> Callable[..., Any]:
    """What is differentiated."""
    from benchmarks.peers.torch_layers import LAYERS
    from benchmarks.peers.with_torch import plain_function

    if name.endswith(SUFFIX_OF_STEPS):
        return LAYERS[name.removesuffix(SUFFIX_OF_STEPS)]
    return plain_function(base_name(name))


def base_name(name: str) -> str:
    return name.removesuffix(SUFFIX)


def _has_gradient(case: Case) -> bool:
    if case.name in (*_LOW, *_NO_PEER, *_VIEWS):
        return False
    types = [i.dtype for i in case.inputs if i.kind not in ("indices", "offsets")]
    return "int8" not in types and bool(types)


def _backward(case: Case) -> Case:
    return replace(
        case,
        name=case.name + SUFFIX,
        part="training",
        reference=lambda *arrays: in_double(case.name, arrays),
        flops=f"2*({case.flops})",
        sizes={name + SUFFIX: sizes for name, sizes in case.sizes.items()},
        traffic=f"2*({case.traffic})" if case.traffic else "",
        tolerance=4 * case.tolerance,
    )


def in_double(name: str, arrays: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    """Gradients by torch."""
    import torch

    leaves = [torch.from_numpy(a.astype(np.float64) if is_float(a) else a) for a in arrays]
    wanted = [x.requires_grad_() for x in leaves if x.is_floating_point()]
    results = as_tuple(in_torch(name)(*leaves))
    results = tuple(y for y in results if y.is_floating_point())
    given = [torch.from_numpy(g.astype(np.float64)) for g in gradients_of(results)]
    found = torch.autograd.grad(results, wanted, given, allow_unused=True)
    return tuple(
        np.zeros(x.shape, np.float32) if g is None else g.float().numpy()
        for g, x in zip(found, wanted)
    )


def is_float(array: np.ndarray) -> bool:
    return bool(np.issubdtype(array.dtype, np.floating))


def gradients_of(results: Iterable[Any]) -> list[np.ndarray]:
    """Of the results: the same for everyone."""
    rng = np.random.default_rng(1)
    return [rng.standard_normal(tuple(y.shape), dtype=np.float32) for y in results]
