# SPDX-License-Identifier: Apache-2.0
"""Random inputs for a program, and how far a result may be from the interpreter's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tcsym.index.expr import Index
from tcsym.index.values import evaluate
from tcsym.types import DType

Array = NDArray[Any]
_EPSILON = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}
_SLACK = 16  # roundings of an element apart from its sum
_DISTURBED = 4  # roundings of an input


class Deviation(Struct, frozen=True):
    """Of one output from the interpreter's: largest absolute error, and the largest allowed."""

    output: str
    error: float
    allowed: float

    @property
    def is_good(self) -> bool:
        return self.error <= self.allowed


def random_inputs(
    tensors: Iterable[tuple[DType, tuple[Index, ...]]], sizes: Mapping[str, int], seed: int
) -> list[Array]:
    """Normal floats; integers from 0 below the least extent, so that they can be subscripts."""
    random = np.random.default_rng(seed)
    least = max(1, min(sizes.values(), default=1))
    return [
        _random_array(random, dtype, tuple(evaluate(e, sizes) for e in shape), least)
        for dtype, shape in tensors
    ]


def _random_array(
    random: np.random.Generator, dtype: DType, shape: tuple[int, ...], least: int
) -> Array:
    if dtype.is_float:
        return np.asarray(random.standard_normal(shape)).astype(dtype.numpy)
    high = 2 if dtype is DType.BOOL else min(least, dtype.highest)
    return np.asarray(random.integers(0, max(1, high), shape)).astype(dtype.numpy)


def disturbed(inputs: Iterable[Array], seed: int) -> list[Array]:
    """Inputs with every float off by up to some roundings: how results move tells how much an
    exact computation may lose, through the steps of a recurrence say."""
    random = np.random.default_rng(seed)
    return [
        x
        if x.dtype.kind in "biu"
        else (
            x * (1 + _DISTURBED * _EPSILON[str(x.dtype)] * random.uniform(-1, 1, x.shape))
        ).astype(x.dtype)
        for x in inputs
    ]


def deviation(
    name: str, found: Array, expected: Array, sizes: Mapping[str, int], moved: float = 0.0
) -> Deviation:
    """Integers must be equal. Floats may be off by a rounding for each term of the longest sum,
    and by a few times of what `disturbed` inputs move the result."""
    if found.dtype.kind in "biu":
        wrong = int(np.count_nonzero(found != expected))
        return Deviation(name, float(wrong), 0.0)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        errors = np.where(same, 0.0, np.abs(a - b))
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max(initial=0.0)))
    work = math.prod(max(1, v) for v in sizes.values())
    terms = _SLACK + work / max(1, found.size)
    error = float(np.nan_to_num(errors, nan=np.inf).max(initial=0.0))
    allowed = _EPSILON[str(found.dtype)] * terms * scale + _SLACK * moved
    return Deviation(name, error, allowed)


def largest_difference(a: Array, b: Array) -> float:
    """Where both are finite; 0 for integers."""
    if a.dtype.kind in "biu":
        return 0.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    return float(np.abs(x[both] - y[both]).max(initial=0.0))
