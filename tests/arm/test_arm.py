# SPDX-License-Identifier: Apache-2.0
"""What `./dev arm` runs on an emulated AArch64, besides tests that run everywhere.

Kernels of the library and their gradients come from a code cache that was filled elsewhere, so
that what is tested is the code, the loader and the call, at the emulator's speed. Artifacts were
exported there, too.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym import library
from tcsym.target.names import resolve_target
from tests.arm.kernels import EXPORTED, gradient_of, kernel_of
from tests.test_library import CASES, inputs

pytestmark = pytest.mark.skipif(platform.machine() != "aarch64", reason="no AArch64 (./dev arm)")
MADE = Path(os.environ.get("TCSYM_ARM_MADE", ""))


def compared(kernel: Any, arrays: list[np.ndarray]) -> None:
    got, want = kernel(*arrays), kernel.reference(*arrays)
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", library.names())
def test_kernel(name: str) -> None:
    shapes, _ = CASES[name]
    compared(kernel_of(name), inputs(name, shapes))


@pytest.mark.parametrize("name", library.names())
def test_gradient(name: str) -> None:
    gradient = gradient_of(name)
    if gradient is None:
        assert "int8" in library.source(name)
        return
    shapes, _ = CASES[name]
    arrays = dict(zip(shapes, inputs(name, shapes)))
    results = kernel_of(name)(*arrays.values())
    outputs = kernel_of(name).program.outputs
    known = dict(
        zip((t.name for t in outputs), results if isinstance(results, tuple) else [results])
    )
    numbers = np.random.default_rng(1)
    given = []
    for t in gradient.program.inputs:
        if t.name in arrays or t.name in known:
            given.append(arrays.get(t.name, known.get(t.name)))
        else:  # of a result
            shape = known[t.name.removeprefix("d")].shape
            given.append(numbers.standard_normal(shape).astype(np.float32))
    compared(gradient, given)


@pytest.mark.parametrize("name", EXPORTED)
def test_artifact(name: str) -> None:
    shapes, _ = CASES[name]
    arrays = inputs(name, shapes)
    got, want = tcsym.load(MADE / name)(*arrays), kernel_of(name).reference(*arrays)
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_compiled_here() -> None:
    """The first example of the README, by LLVM on the emulated processor."""
    mlp = tcsym.define(
        """def mlp(float(B,K) X, float(K,N) W, float(N) b) -> (Y) {
            Y(i,j) +=! X(i,k) * W(k,j)
            Y(i,j) = fmax(Y(i,j) + b(j), 0)
        }"""
    )
    assert resolve_target("cpu").machine.name == "neon"
    numbers = np.random.default_rng(0)
    for b, k, n in ((3, 4, 5), (17, 33, 19), (1, 1, 1), (0, 3, 2)):
        shapes = (b, k), (k, n), (n,)
        compared(mlp, [numbers.random(shape, np.float32) for shape in shapes])


def test_the_pool_under_eight_threads() -> None:
    kernel, before = kernel_of("softmax"), tcsym.get_num_threads()
    x = np.random.default_rng(0).standard_normal((3000, 70)).astype(np.float32)
    want = kernel.reference(x)
    try:
        for threads in (8, 3, 8):
            tcsym.set_num_threads(threads)
            for _ in range(20):
                np.testing.assert_allclose(kernel(x), want, rtol=2e-5, atol=2e-6)
    finally:
        tcsym.set_num_threads(before)
