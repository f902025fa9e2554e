# SPDX-License-Identifier: Apache-2.0
"""Loops of numba by kernel: how they are registered, and what several of them use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

F = np.float32
FUNCTIONS: dict[str, Callable[..., Any]] = {}


def loops_for(
    *names: str, parallel: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compiles when first called; one compilation serves all sizes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = njit(parallel=parallel, fastmath=True)(function)
        FUNCTIONS.update(dict.fromkeys(names, compiled))
        return compiled

    return register


@njit(fastmath=True)
def softmax_row(x: Any, out: Any, n: int) -> None:
    largest = x[0]
    for j in range(n):
        largest = max(largest, x[j])
    total = F(0)
    for j in range(n):
        e = np.exp(x[j] - largest)
        out[j] = e
        total += e
    factor = F(1) / total
    for j in range(n):
        out[j] *= factor


@njit(fastmath=True)
def linear_row(x: Any, W: Any, b: Any, out: Any) -> None:
    """relu(W x + b)"""
    for n in range(W.shape[0]):
        total = b[n]
        for m in range(W.shape[1]):
            total += x[m] * W[n, m]
        out[n] = max(total, F(0))
