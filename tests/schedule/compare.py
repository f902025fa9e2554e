# SPDX-License-Identifier: Apache-2.0
"""Naive kernel against mapped kernel, on random integer-valued data."""

from __future__ import annotations

import numpy as np

from tcsym.index.values import evaluate
from tcsym.ir.loops import Kernel
from tests.schedule.execute import execute


def arguments(kernel: Kernel, sizes: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Integer-valued arrays; index arrays stay inside the table `V`."""
    rng = np.random.default_rng(seed)
    out = {}
    for b in kernel.buffers:
        if b.space == "argument":
            shape = tuple(max(0, evaluate(e, sizes)) for e in b.shape)
            low, high = (0, max(1, sizes.get("V", 3))) if b.name == "I" else (0, 4)
            out[b.name] = rng.integers(low, high, shape).astype(
                np.float64 if b.dtype.is_float else np.int64
            )
    return out


def assert_same(naive: Kernel, mapped: Kernel, sizes: dict[str, int], by_all: bool = True) -> None:
    """By each version of nests that have several, or by the first one alone."""
    expected = arguments(naive, sizes)
    execute(naive, sizes, expected)
    versions = max((c.versions for c in mapped.choices), default=1)
    for k in range(versions if by_all else 1):
        got = arguments(naive, sizes)
        execute(mapped, sizes, got, chosen={c.variable: k % c.versions for c in mapped.choices})
        for name, array in expected.items():
            told = f"{naive.name}.{name} {sizes}, versions {k}"
            np.testing.assert_array_equal(got[name], array, err_msg=told)
