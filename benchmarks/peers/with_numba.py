"""numba: plain loops, parallel over the outermost, with fast-math."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from numba import njit, prange

from benchmarks.case import as_tuple
from benchmarks.contestant import Contestant, Maker, Problem

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


def contestants(problem: Problem) -> Iterator[tuple[str, Maker]]:
    from benchmarks.peers import numba_layers, numba_products  # noqa: F401  (they register)

    if problem.case.name in FUNCTIONS:
        yield "numba", lambda: _contestant(problem)


def _contestant(problem: Problem) -> Contestant:
    numba.set_num_threads(problem.threads)
    function, arrays = FUNCTIONS[problem.case.name], problem.library_arrays
    return Contestant(lambda: function(*arrays), as_tuple)


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


__all__ = ["F", "contestants", "linear_row", "loops_for", "prange", "softmax_row"]
