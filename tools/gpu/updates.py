# SPDX-License-Identifier: Apache-2.0
"""Terms at positions that data say, atomic and sorted; and positions outside, which are errors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

import tcsym
from tcsym.errors import BoundsError
from tools.gpu.case import Case, Wrong
from tools.gpu.library import Library

TYPES = {"int32": "int32", "int64": "int64", "float": "float32"}
UPDATES = {"+=!": np.add, "max=!": np.maximum, "min=!": np.minimum}
FEW = (1, 10), (300, 10), (3000, 1000)  # terms, bins
MORE = (1_000_000, 10), (1_000_000, 10_000), (200_000, 3_000_000)
PICK = "def pick(float(N) A, int32(M) I) -> (O) { O(i) = A(I(i)) }"


@lru_cache(None)
def kernel(declared: str, update: str) -> Any:
    given = f"int32(N) I, {declared}(N) X"
    text = f"def f({given}) -> ({declared}(V) H) {{ H(I(n)) {update} X(n) }}"
    return tcsym.define(text, target="cuda").f


def cases(library: Library) -> Iterator[Case]:
    sizes = FEW if library.is_small else (*FEW, *MORE)
    for declared in TYPES:
        for update in UPDATES:
            for n, bins in sizes:
                yield Case(
                    f"{declared} {update} {n} to {bins}",
                    lambda t=declared, u=update, n=n, b=bins: _scattered(library, t, u, n, b),
                )
    yield Case("a position outside", lambda: _fault(library))


def _scattered(library: Library, declared: str, update: str, n: int, bins: int) -> dict[str, Any]:
    """Whole numbers, so that no order of terms shows; twice, as memory is used again."""
    rng, dtype = np.random.default_rng(n), np.dtype(TYPES[declared])
    index = rng.integers(0, bins, n).astype(np.int32)
    x = rng.integers(1, 9, n).astype(dtype)
    given = library.of(index), library.of(x)
    got = [library.host(kernel(declared, update)(*given, sizes={"V": bins})) for _ in range(2)]
    made, reached = np.zeros(bins, dtype), np.zeros(bins, bool)
    reached[index] = True
    made[reached] = {"+=!": 0, "max=!": 0, "min=!": 100}[update]
    UPDATES[update].at(made, index, x)
    wrong = sum(int((g != made)[reached].sum()) for g in got)
    if wrong:
        raise Wrong(f"{wrong} of {2 * bins}", {"wrong": wrong})
    return {"wrong": wrong}


def _fault(library: Library) -> dict[str, Any]:
    """It is raised once, and later calls are right."""
    pick, a = tcsym.define(PICK, target="cuda").pick, library.random(5)
    pick(a, library.of(np.array([0, 5], np.int32)))
    try:
        tcsym.synchronize()
    except BoundsError as error:
        told = error.message
    else:
        raise Wrong("no error was raised", {})
    got = library.host(pick(a, library.of(np.array([4, 0], np.int32))))
    tcsym.synchronize()
    if not (got == library.host(a)[[4, 0]]).all():
        raise Wrong(f"the call behind it gives {got}", {})
    return {"told": told}
