# SPDX-License-Identifier: Apache-2.0
"""The machines the mapping is tested for, and the sizes tried."""

from __future__ import annotations

import itertools

from tcsym.ir.loops import Kernel
from tests.targets import target_of

AVX2, AVX512, SCALAR = (target_of(name).machine for name in ("avx2", "avx512", "novector"))
DOTS = target_of("avx512bf16").machine
TARGETS = {"avx2": AVX2, "avx512": AVX512, "scalar": SCALAR}


def some_sizes(kernel: Kernel) -> list[dict[str, int]]:
    """A few combinations: all zero, all one, small, ragged, around the tile."""
    n = len(kernel.sizes)
    if n > 4:
        rows = [(1,) * n, (2, 3, 2, 5, 9, 3, 2), (1, 7, 3, 4, 17, 2, 3), (1, 9, 1, 3, 8, 1, 1)]
        return [dict(zip(kernel.sizes, r)) for r in rows]
    values = {
        1: (0, 1, 2, 7, 8, 9, 16, 33, 70),
        2: (0, 1, 3, 8, 17, 33),
        3: (0, 1, 7, 17),
        4: (1, 3, 9),
    }[n]
    rows = list(itertools.product(values, repeat=n))
    return [dict(zip(kernel.sizes, r)) for r in rows[:: max(1, len(rows) // 24)]]
