# SPDX-License-Identifier: Apache-2.0
"""scipy: products with sparse matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.case import as_tuple
from benchmarks.contestant import Contestant, Maker, Problem

Function = Callable[..., Any]


def _ones(at: Any, off: Any, rows: int) -> Any:
    return sparse.csr_array((np.ones(len(at), np.float32), at, off), (len(off) - 1, rows))


def _csr(value: Any, column: Any, off: Any, X: Any) -> Any:
    return sparse.csr_array((value, column, off), (len(off) - 1, len(X))) @ X


FUNCTIONS: dict[str, Function] = {
    "ragged_bag": lambda E, at, off: _ones(at, off, len(E)) @ E,
    "segment_sum": lambda X, off: _ones(np.arange(len(X)), off, len(X)) @ X,
    "csr_dense": _csr,
    "csr_vector": _csr,
}


def contestants(problem: Problem) -> Iterator[tuple[str, Maker]]:
    function = FUNCTIONS.get(problem.case.name)
    if function is not None:
        arrays = problem.library_arrays
        yield "scipy", lambda: Contestant(lambda: function(*arrays), as_tuple)
