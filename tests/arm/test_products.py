# SPDX-License-Identifier: Apache-2.0
"""Sums of products of short numbers by instructions of newer processors, which QEMU has, too."""

from __future__ import annotations

import platform
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tcsym.runtime.cpu import Cpu
from tests.arm.kernels import PRODUCTS, product_of
from tests.test_packed_code import ROWS, SIZES, integers

pytestmark = pytest.mark.skipif(platform.machine() != "aarch64", reason="no AArch64 (./dev arm)")


def operands(a: str, shape: tuple[int, int], seed: int) -> Any:
    if a != "bfloat16":
        return integers(a, shape, seed)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(("a", "b", "wide", "layout"), PRODUCTS)
def test_product(
    a: str, b: str, wide: str, layout: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system says of its processor is of the one around the emulator."""
    monkeypatch.setattr(Cpu, "require", lambda *_: None)
    f = product_of(a, b, wide, layout)
    for m, n, k in SIZES:
        x = operands(a, (m, k), 0)
        y = operands(b, (k, n) if layout is ROWS else (n, k), 1)
        want = f.reference(x, y)
        if wide == "float":
            np.testing.assert_allclose(f(x, y), want, atol=1e-4)
        else:
            np.testing.assert_array_equal(f(x, y), want)
