# SPDX-License-Identifier: Apache-2.0
"""Sizes that a kernel's code leaves to another: who makes that, when, and what is entered then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tcsym
from tcsym.runtime.background import settle
from tcsym.runtime.cache import _cache_at
from tests.entered import python_frames

PRODUCT = """def f(float(N,K) X, float(E,M,K) W, int32(N) c) -> (Y) {
  Y(n,m) +=! X(n,k) * W(c(n),m,k)
}"""
MANY, FEW = (16, 32, 24, 3), (600, 32, 24, 3)  # n, k, m, e: many rows are grouped by their matrix
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TCSYM_CACHE", raising=False)
    monkeypatch.setenv("TCSYM_VERIFY", "0")
    _cache_at.cache_clear()
    yield
    settle()


def arrays(n: int, k: int, m: int, e: int) -> Arrays:
    rng = np.random.default_rng(n + k + m + e)
    x, w = (rng.integers(-2, 3, s).astype("f4") for s in ((n, k), (e, m, k)))
    return x, w, rng.integers(0, e, n, "i4")


def product(x: np.ndarray, w: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.einsum("nk,nmk->nm", x, w[c])


def check(kernel: tcsym.Kernel, *sizes: tuple[int, ...]) -> None:
    for each in sizes:
        given = arrays(*each)
        np.testing.assert_array_equal(kernel(*given), product(*given))


def defined(strategy: str = "symbolic") -> tcsym.Kernel:
    return tcsym.define(PRODUCT, strategy=strategy).f


def made(kernel: tcsym.Kernel) -> int:
    return kernel.stats.compilations + kernel.stats.cache_hits


def has_all(kernel: tcsym.Kernel) -> list[bool]:
    variants = kernel.stats.variants
    return [any("sorted" in note for note in v.notes) for v in variants]


def is_entered(kernel: tcsym.Kernel, sizes: tuple[int, ...]) -> bool:
    given = arrays(*sizes)
    return not python_frames(lambda: kernel(*given))


def test_given_memory_and_declared_sizes() -> None:
    given = arrays(*FEW)
    out = np.full((600, 24), np.nan, "f4")
    kernel = defined()
    check(kernel, MANY)
    assert kernel(*given, out=out) is out
    np.testing.assert_array_equal(out, product(*given))
    many = tcsym.define(PRODUCT, strategy="symbolic", sizes={"N": tcsym.Dim(1, 32)}).f
    check(many.precompile(), MANY)
    assert has_all(many) == [False]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("strategy", ["symbolic", "auto", "specialize", "bucket", "pad"])
def test_every_strategy(strategy: str) -> None:
    ranges = {name: tcsym.Dim(1, 1024) for name in "NKME"}
    declared = ranges if strategy in ("bucket", "pad") else {}
    kernel = tcsym.define(PRODUCT, strategy=strategy, sizes=declared).f
    for _ in range(3):
        check(kernel, MANY, FEW, (9, 3, 5, 7))
        settle()


ONE_TERM = {
    "across": ("X(b,d,a) * Y(d,c)", "float(B,D,A) X, float(D,C) Y"),
    "a batch": ("X(a,b,d) * Y(a,d,c)", "float(A,B,D) X, float(A,D,C) Y"),
    "two sums": ("X(a,b,d,e) * Y(d,e,c)", "float(A,B,D,E) X, float(D,E,C) Y"),
}
AFTER = {
    "nothing": "",
    "a bias": "Z(a,b,c) = fmax(Z(a,b,c) + v(c), 0)",
    "read twice": "Z(a,b,c) = Z(a,b,c) * tanh(Z(a,b,c)) + v(c)",
    "read often": "Z(a,b,c) = " + " + ".join(["Z(a,b,c) * Z(a,b,c)"] * 20),
    "two steps": "Z(a,b,c) = Z(a,b,c) * Z(a,b,c)  Z(a,b,c) = Z(a,b,c) - v(c)",
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("name", "after"),
    [*(("across", x) for x in AFTER), ("a batch", "a bias"), ("two sums", "two steps")],
)
def test_sums_of_one_term(name: str, after: str) -> None:
    product, inputs = ONE_TERM[name]
    text = f"def f({inputs}, float(C) v) -> (Z) {{ Z(a,b,c) +=! {product}\n {AFTER[after]} }}"
    kernel, rng = tcsym.define(text, strategy="symbolic").f, np.random.default_rng(1)
    for a, b, c, d in ((40, 30, 7, 1), (3, 40, 70, 1), (40, 30, 7, 2)):
        sizes = {"A": a, "B": b, "C": c, "D": d, "E": 1}
        shapes = [[sizes[n] for n in x.split(")")[0].split(",")] for x in text.split("float(")[1:]]
        given = [rng.standard_normal(shape, "f4") for shape in shapes]
        np.testing.assert_allclose(kernel(*given), kernel.reference(*given), 1e-5, 1e-5)


def test_several_results_of_short_and_long_sums() -> None:
    kernel = tcsym.define(
        """def g(float(M,K) A, float(K,N) B) -> (R, C, D) {
        R(i) +=! A(i,k)
        C(i,j) +=! A(i,k) * B(k,j)
        D(i,j) = fmax(C(i,j) + R(i), 0) }""",
        strategy="symbolic",
    ).g
    rng = np.random.default_rng(0)
    for m, n, k in ((20, 30, 40), (20, 30, 1100), (20, 30, 40), (300, 20, 5000)):
        a, b = (rng.integers(-2, 3, s).astype("f4") for s in ((m, k), (k, n)))
        r, c, d = kernel(a, b)
        np.testing.assert_array_equal(r, a.sum(1))
        np.testing.assert_array_equal(c, a @ b)
        np.testing.assert_array_equal(d, np.maximum(a @ b + a.sum(1)[:, None], 0))
