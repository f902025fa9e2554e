# SPDX-License-Identifier: Apache-2.0
"""Stores that bypass the cache, on a processor said to have a tiny one: results stay the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tcsym
from tcsym.target.host import runs_here
from tcsym.target.names import resolve_target

KERNELS = {
    "row": "def f(float(N) X) -> (O) { O(i) = X(i) * 2.0 }",
    "rows": "def f(float(M,N) X, float(N) B) -> (O) { O(m,n) = fmax(X(m,n) + B(n), 0) }",
    "outer": "def f(float(M) X, float(N) Y) -> (O) { O(m,n) = X(m) * Y(n) }",
    "two outputs": "def f(float(M,N) X) -> (O, P) { O(m,n) = X(m,n) + 1.0  P(m,n) = X(m,n) * 3.0 }",
    "double": "def f(double(M,N) X) -> (O) { O(m,n) = -X(m,n) }",
    "half": "def f(half(M,N) X) -> (O) { O(m,n) = X(m,n) + X(m,n) }",
    "bytes": "def f(uint8(M,N) X) -> (O) { O(m,n) = X(m,n) / 2 }",
    "select": "def f(float(M,N) X) -> (O) { O(m,n) = m < n ? X(m,n) : 0.0 }",
    "concat": "def f(float(M,N) X, float(M,K) Y) -> (float(M,N+K) O) {"
    "  O(m,n) = n < N ? X(m,n) : Y(m,n-N) }",
}
SIZES = [(0, 5), (3, 0), (1, 4096), (7, 1024), (33, 516), (40, 1030), (200, 64)]
pytestmark = pytest.mark.skipif(
    not runs_here(resolve_target("cpu:avx2")), reason="this processor has no AVX2"
)


@pytest.fixture(autouse=True)
def _tiny_cache() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tcsym.target.names.cache_bytes", lambda: (32 * 1024, 512 * 1024, 4096))
        yield


def arguments(kernel: tcsym.Kernel, m: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(m + n)
    sizes = {"M": m, "N": n, "K": 4}
    return [
        rng.integers(0, 100, [sizes[str(s)] for s in p.shape]).astype(p.dtype.numpy)
        for p in kernel.program.inputs
    ]


@pytest.mark.parametrize("name", KERNELS)
def test_results_are_the_same(name: str) -> None:
    kernel = tcsym.define(KERNELS[name], strategy="symbolic").f
    for m, n in SIZES:
        arrays = arguments(kernel, m, n)
        expected = kernel.reference(*arrays)
        for threads in (1, 2):
            np.testing.assert_array_equal(kernel(*arrays, threads=threads), expected)
    if name != "half":  # vectors of which are half as wide as others
        assert "vmovnt" in kernel.explain("asm") and "sfence" in kernel.explain("asm")


@pytest.mark.parametrize("offset", [0, 1, 3, 4, 8])
def test_outputs_at_any_address_and_of_any_row_length(offset: int) -> None:
    kernel = tcsym.define(KERNELS["rows"], strategy="symbolic").f
    for n, stride in ((512, 512), (512, 520), (512, 515), (1023, 1024), (1024, 1025), (64, 64)):
        x, b = arguments(kernel, 30, n)
        memory = np.full(30 * stride + 64, -1.0, np.float32)
        start = -memory.ctypes.data % 64 // 4 + offset
        whole = memory[start : start + 30 * stride].reshape(30, stride)
        before = memory.copy()
        assert kernel(x, b, out=whole[:, :n], threads=2) is not None
        before[start : start + 30 * stride].reshape(30, stride)[:, :n] = np.maximum(x + b, 0)
        np.testing.assert_array_equal(memory, before)
