# SPDX-License-Identifier: Apache-2.0
"""One kernel of the suite: its text, inputs, reference, work, and the sizes to run it at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import ml_dtypes
import numpy as np
from msgspec import Struct, field

Sizes = Mapping[str, int]
Kind = Literal["normal", "uniform", "indices", "offsets"]


def value_of(formula: str, sizes: Sizes) -> float:
    """A formula in size names, such as `2*M*N*K`."""
    return float(eval(formula, {"__builtins__": {}}, dict(sizes)))


class Input(Struct, frozen=True):
    """One array. `dims`: formulas without spaces, separated by spaces.

    normal: times `scale`. uniform: in [0, 1). indices: below the size `below`. offsets: ascending,
    from 0 to the size `below`. Never all zero.
    """

    dims: str
    scale: float = 1.0
    kind: Kind = "normal"
    dtype: str = "float32"
    below: str = ""

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(int(value_of(d, sizes)) for d in self.dims.split())

    def draw(self, rng: np.random.Generator, sizes: Sizes) -> np.ndarray:
        shape = self.shape(sizes)
        if self.kind == "indices":
            return rng.integers(0, sizes[self.below], shape).astype(self.dtype)
        if self.kind == "offsets":
            inner = np.sort(rng.integers(0, sizes[self.below] + 1, shape[0] - 2))
            return np.array([0, *inner, sizes[self.below]], self.dtype)
        if self.dtype == "int8":
            return rng.integers(-127, 128, shape, dtype=np.int8)
        if self.kind == "uniform":
            return rng.random(shape, dtype=np.float32).astype(self.dtype)
        x = rng.standard_normal(shape, dtype=np.float32)
        dtype = ml_dtypes.bfloat16 if self.dtype == "bfloat16" else self.dtype
        return (x * np.float32(self.scale)).astype(dtype)


def normal(dims: str, scale: float = 1.0, dtype: str = "float32") -> Input:
    return Input(dims, scale, dtype=dtype)


def uniform(dims: str) -> Input:
    return Input(dims, kind="uniform")


def indices(dims: str, below: str) -> Input:
    return Input(dims, kind="indices", dtype="int32", below=below)


def offsets(dims: str, below: str) -> Input:
    return Input(dims, kind="offsets", dtype="int32", below=below)


Draw = tuple[int, int] | int | str  # log-uniform between; a value; a formula of earlier ones


class Case(Struct, frozen=True):
    """A kernel.

    goal: the class whose goal it counts for. part: `suite`, or `other`: nobody tunes for these, or
        `recurrent`: a grid of steps and batches; `ragged`: ranges and positions that are data;
        `training`: the backward pass of another; `layers`: forward and backward of one.
    reference: numpy, on the arrays as libraries see them (`library_dims`: shapes of inputs, by
        position, that differ from those of the text; the memory is the same).
    flops: useful operations. traffic: compulsory bytes; empty: all inputs and outputs once.
    sizes: what the suite measures, by row name. ranges: what random sizes are drawn from.
    tolerance: of the error over the largest magnitude of the reference.
    einsum: the same as one contraction, where it is one.
    """

    name: str
    goal: Literal["contractions", "others", "layers"]
    text: str
    inputs: tuple[Input, ...]
    reference: Callable[..., Any]
    flops: str
    sizes: Mapping[str, Sizes]
    ranges: Mapping[str, Draw]
    part: Literal["suite", "other", "recurrent", "ragged", "training", "layers"] = "suite"
    traffic: str = ""
    library_dims: Mapping[int, str] = field(default_factory=dict)
    tolerance: float = 5e-4
    einsum: str = ""

    def arrays(self, sizes: Sizes, seed: int = 0) -> tuple[np.ndarray, ...]:
        """Inputs in the order of the text, the same for one seed."""
        rng = np.random.default_rng(seed)
        return tuple(i.draw(rng, sizes) for i in self.inputs)

    def library_arrays(self, arrays: tuple[np.ndarray, ...], sizes: Sizes) -> tuple[Any, ...]:
        """The same memory under the shapes that libraries expect."""
        return tuple(
            a.reshape([int(value_of(d, sizes)) for d in self.library_dims[k].split()])
            if k in self.library_dims
            else a
            for k, a in enumerate(arrays)
        )

    def n_flops(self, sizes: Sizes) -> float:
        return value_of(self.flops, sizes)

    def n_bytes(
        self, sizes: Sizes, arrays: tuple[np.ndarray, ...], results: tuple[Any, ...]
    ) -> float:
        if self.traffic:
            return value_of(self.traffic, sizes)
        return float(sum(a.nbytes for a in (*arrays, *results)))


def as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def error_of(found: tuple[Any, ...], expected: tuple[Any, ...]) -> float:
    """Largest error of any output over its largest magnitude (at least 1); inf if not finite."""
    if len(found) != len(expected):
        return float("inf")
    return max(_error_of_one(np.asarray(a), np.asarray(b)) for a, b in zip(found, expected))


def _error_of_one(a: np.ndarray, b: np.ndarray) -> float:
    if a.size != b.size:
        return float("inf")
    if not b.size:
        return 0.0
    off = float(np.abs(a.reshape(b.shape) - b).max())
    scale = max(1.0, float(np.abs(b).max()))
    return off / scale if math.isfinite(off / scale) else float("inf")
