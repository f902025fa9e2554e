# SPDX-License-Identifier: Apache-2.0
"""numpy: the reference itself. opt_einsum: contractions, ordered and handed to BLAS."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.case import as_tuple
from benchmarks.contestant import Contestant, Maker, Problem


def contestants(problem: Problem) -> Iterator[tuple[str, Maker]]:
    case, arrays = problem.case, problem.library_arrays
    yield "numpy", lambda: Contestant(lambda: case.reference(*arrays), as_tuple)
    if case.einsum:
        yield "opt_einsum", lambda: _contracted(problem)


def _contracted(problem: Problem) -> Contestant:
    import opt_einsum

    arrays = problem.library_arrays
    planned = opt_einsum.contract_expression(problem.case.einsum, *(a.shape for a in arrays))
    return Contestant(lambda: planned(*arrays), as_tuple)
