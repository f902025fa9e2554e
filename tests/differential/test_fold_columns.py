# SPDX-License-Identifier: Apache-2.0
"""Sums over many rows of a few columns, compiled: values, element types, targets, other layouts."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.options import Options

SUM = "def f({0}(M,N) X) -> (O) {{ O(n) {1}=! X(m,n) }}"
KINDS = {"float": "f4", "double": "f8", "half": "f2", "int8": "i1", "int64": "i8", "bool": "?"}
ROWS, COLUMNS = (0, 1, 63, 511, 512, 640, 1279, 9001), (0, 1, 2, 7, 8, 9, 15, 16)
PAIRS = [(m, n) for k, m in enumerate(ROWS) for n in COLUMNS if k % 2 == n % 2 or n == 1]


def numbers(shape: tuple[int, ...], kind: str) -> np.ndarray:
    return np.random.default_rng(1).integers(-3, 4, shape).astype(KINDS[kind])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("reduction", ["+", "max"])
@pytest.mark.parametrize("kind", KINDS)
def test_few_columns(kind: str, reduction: str) -> None:
    kernel = tcsym.define(SUM.format(kind, reduction)).f
    for m, n in PAIRS:
        x = numbers((m, n), kind)
        for threads in (1, 2):
            got = kernel(x, threads=threads)
            np.testing.assert_array_equal(got, kernel.reference(x), err_msg=f"{m} {n} {threads}")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:novector"])
@pytest.mark.parametrize("bind", ["never", "after", "before"])
def test_targets_and_substituted_sizes(bind: str, target: str) -> None:
    for m, n in ((700, 3), (1279, 1), (9001, 2), (513, 16)):
        sizes = {"N": n} if m == 700 else {"M": m, "N": n}
        options = Options(bind=bind)  # type: ignore[arg-type]
        text = SUM.format("float", "+")
        kernel = tcsym.define(text, sizes=sizes, target=target, options=options).f
        x = numbers((m, n), "float")
        np.testing.assert_array_equal(kernel(x), kernel.reference(x), err_msg=f"{m} {n}")


def test_layouts() -> None:
    """Rows that lie apart, backwards or under each other are no run of memory."""
    kernel = tcsym.define(SUM.format("float", "+")).f
    wide = numbers((1300, 9), "float")
    for x in (wide[:, :3], wide[::-1], wide[:, ::-1], wide[::2], np.asfortranarray(wide)):
        np.testing.assert_array_equal(kernel(x), kernel.reference(x))


MOMENTS = """def f(float(B,M,N) X, float(B) s) -> (V, W) {
  t(b,n) +=! X(b,m,n) + s(b)
  q(b,n) max=! X(b,m,n) * X(b,m,n)
  V(b,n) = q(b,n) - t(b,n)
  W(b,n) +=! X(b,m,n) where m in 1:M
}"""


@pytest.mark.parametrize("shape", [(2, 700, 1), (9, 600, 3), (1, 1000, 12), (3, 1, 2)])
def test_several_sums_in_batches(shape: tuple[int, int, int]) -> None:
    kernel = tcsym.define(MOMENTS).f
    x, s = numbers(shape, "float"), numbers(shape[:1], "float")
    for got, want in zip(kernel(x, s), kernel.reference(x, s), strict=True):
        np.testing.assert_array_equal(got, want)


def test_sums_do_not_depend_on_threads() -> None:
    kernel = tcsym.define(SUM.format("float", "+")).f
    x = np.random.default_rng(2).standard_normal((50001, 3), dtype=np.float32)
    np.testing.assert_array_equal(kernel(x, threads=1), kernel(x, threads=2))
