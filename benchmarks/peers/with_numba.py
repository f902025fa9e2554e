# SPDX-License-Identifier: Apache-2.0
"""numba: plain loops, parallel over the outermost, with fast-math."""

from __future__ import annotations

from collections.abc import Iterator

import numba

from benchmarks.case import as_tuple
from benchmarks.contestant import Contestant, Maker, Problem
from benchmarks.peers import (  # they register
    numba_layers,  # noqa: F401
    numba_products,  # noqa: F401
    numba_ragged,  # noqa: F401
)
from benchmarks.peers.numba_loops import FUNCTIONS


def contestants(problem: Problem) -> Iterator[tuple[str, Maker]]:
    if problem.case.name in FUNCTIONS:
        yield "numba", lambda: _contestant(problem)


def _contestant(problem: Problem) -> Contestant:
    numba.set_num_threads(problem.threads)
    function, arrays = FUNCTIONS[problem.case.name], problem.library_arrays
    return Contestant(lambda: function(*arrays), as_tuple)
