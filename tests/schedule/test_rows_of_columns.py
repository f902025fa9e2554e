# SPDX-License-Identifier: Apache-2.0
"""Sums over rows of many columns, of few rows and of many, gathered ones too, and of all."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.ir.loops import Block, Kernel, Loop
from tcsym.ir.traverse import walk
from tcsym.mapping import rows
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tests.schedule import naive
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import AVX2, AVX512

A, M, N = v("a m n")
PART = 64  # rows of a part
ROWS = [(16, 16), (17, 9), (25, 133), (PART, 8), (PART + 3, 17), (2 * PART + 1, 8)]


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "THREAD_TERMS", PART)


def moments() -> Kernel:
    """Two sums of one pass, from values that they had before, and a value of both."""
    x, s, q = rd("X", M, N), rd("S", N), rd("Q", N)
    sums = red("m", "M", up("S", (N,), "add", x), up("Q", (N,), "max", op("mul", x, rd("W", M))))
    body = par("n", "N", st("Q", (N,), con(1.0)), sums, st("R", (N,), op("add", s, q)))
    shapes = [("X", "M N"), ("W", "M"), ("S", "N"), ("Q", "N"), ("R", "N")]
    return kernel("moments", "M N", [buf(*x) for x in shapes], body)


def gathered_rows() -> Kernel:
    """Rows of a table, for each of several sums."""
    row = rd("T", rd("I", A, M), N)
    sums = red("m", "M", up("S", (A, N), "add", row))
    body = par("a", "A", par("n", "N", st("S", (A, N), con(0.0)), sums))
    return kernel("gathered", "A M N V", [buf("T", "V N"), buf("I", "A M"), buf("S", "A N")], body)


def total_and_most() -> Kernel:
    """Two sums of all elements, of one pass."""
    x = rd("X", M, N)
    sums = red("m", "M", red("n", "N", up("S", (), "add", x), up("B", (), "max", x)))
    body = Block((st("S", (), con(0.0)), st("B", (), con(-9.0)), sums))
    return kernel("total", "M N", [buf("X", "M N"), buf("S", ()), buf("B", ())], body)


def mapped(k: Kernel, target: object = AVX2, **options: object) -> Kernel:
    return map_cpu(k, target, Options(**options)).kernel  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize("parallelize", [True, False])
@pytest.mark.parametrize("make", [naive.column_sum, moments])
def test_results_are_kept(make, parallelize: bool, target: object) -> None:  # type: ignore[no-untyped-def]
    k = make()
    out = mapped(k, target, parallelize=parallelize)
    for m, n in ROWS:
        assert_same(k, out, {"M": m, "N": n})


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize("length", [16, 23])
def test_gathered_rows(length: int, target: object) -> None:
    k = gathered_rows()
    assert_same(k, mapped(k, target), {"A": 2, "M": length, "N": 21, "V": 5})


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize("m", [0, 1, 7, PART + 1])
def test_sums_of_all_elements_are_work_for_threads(m: int, target: object) -> None:
    k = total_and_most()
    out = mapped(k, target)
    loops = [x for x, _ in walk(out.body) if isinstance(x, Loop) and x.kind == "parallel"]
    assert loops
    for n in (0, 1, 19, PART + 3):
        assert_same(k, out, {"M": m, "N": n})


BATCHED = "def f(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,i,j) +=! X(b,i,k) * Y(b,k,j) }"
POINTS = """def f(float(N,C,H,W) X, float(O,C) K, float(O) b) -> (Y) {
  Y(n,o,h,w) +=! X(n,c,h,w) * K(o,c)
  Y(n,o,h,w) = fmax(Y(n,o,h,w) + b(o), 0)
}"""


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:novector"])
def test_single_rows_of_batches_and_images(target: str) -> None:
    """Each streams its own matrix once, and whole rows of it."""
    rng = np.random.default_rng(5)
    for m in (1, 2, 3):
        for k, n in ((16, 130), (20, 600), (70, 5000), (3, 700)):
            x, y = (rng.standard_normal(s, "f4") for s in ((2, m, k), (2, k, n)))
            found = tcsym.define(BATCHED, target=target).f(x, y)
            np.testing.assert_allclose(found, x @ y, rtol=1e-4, atol=1e-4)
        x, w = rng.standard_normal((2, 20, 24, 30), "f4"), rng.standard_normal((m, 20), "f4")
        kernel = tcsym.define(POINTS, target=target).f
        want = kernel.reference(x, w, w[:, 0].copy())
        np.testing.assert_allclose(kernel(x, w, w[:, 0].copy()), want, rtol=1e-4, atol=1e-4)
