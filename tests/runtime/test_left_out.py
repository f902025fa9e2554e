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

PRODUCT = """def f(float(E,B,A,D) X, float(C,E) Y) -> (Z) {
  Z(a,b,c,d) +=! X(e,b,a,d) * Y(c,e)
}"""
BEFORE = tcsym.Options(mapping="old")  # plans that leave sizes to another kernel
MANY, FEW = (8, 16, 24, 40, 32), (64, 64, 64, 2, 64)  # columns d: few change places with c
Arrays = tuple[np.ndarray, np.ndarray]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TCSYM_CACHE", raising=False)
    monkeypatch.setenv("TCSYM_VERIFY", "0")
    _cache_at.cache_clear()
    yield
    settle()


def arrays(e: int, b: int, a: int, d: int, c: int) -> Arrays:
    rng = np.random.default_rng(e + b + a + d + c)
    return tuple(rng.integers(-2, 3, s).astype("f4") for s in ((e, b, a, d), (c, e)))  # type: ignore[return-value]


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.einsum("ebad,ce->abcd", x, y, optimize=True)


def check(kernel: tcsym.Kernel, *sizes: tuple[int, ...]) -> None:
    for each in sizes:
        x, y = arrays(*each)
        np.testing.assert_array_equal(kernel(x, y), product(x, y))


def defined(strategy: str = "symbolic") -> tcsym.Kernel:
    return tcsym.define(PRODUCT, strategy=strategy, options=BEFORE).f


def made(kernel: tcsym.Kernel) -> int:
    return kernel.stats.compilations + kernel.stats.cache_hits


def has_all(kernel: tcsym.Kernel) -> list[bool]:
    variants = kernel.stats.variants
    return [any("contraction, columns c" in note for note in v.notes) for v in variants]


def is_entered(kernel: tcsym.Kernel, sizes: tuple[int, ...]) -> bool:
    x, y = arrays(*sizes)
    return not python_frames(lambda: kernel(x, y))


def test_given_memory_and_declared_sizes() -> None:
    x, y = arrays(*FEW)
    out = np.full((64, 64, 64, 2), np.nan, "f4")
    kernel = defined()
    check(kernel, MANY)
    assert kernel(x, y, out=out) is out
    np.testing.assert_array_equal(out, product(x, y))
    many = tcsym.define(
        PRODUCT, strategy="symbolic", sizes={"D": tcsym.Dim(32, 1000)}, options=BEFORE
    ).f
    check(many.precompile(), MANY)
    assert has_all(many) == [False]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("strategy", ["symbolic", "auto", "specialize", "bucket", "pad"])
def test_every_strategy(strategy: str) -> None:
    ranges = {name: tcsym.Dim(1, 64) for name in "EBADC"}
    declared = ranges if strategy in ("bucket", "pad") else {}
    kernel = tcsym.define(PRODUCT, strategy=strategy, sizes=declared, options=BEFORE).f
    for _ in range(3):
        check(kernel, MANY, FEW, (9, 3, 5, 7, 11))
        settle()


LATER = f"""
import sys, numpy as np, tcsym
kernel = tcsym.define({PRODUCT!r}, strategy=sys.argv[1], options=tcsym.Options(mapping="old"))
for e, b, a, d, c in eval(sys.argv[2]):
    x, y = np.ones((e, b, a, d), "f4"), np.ones((c, e), "f4")
    assert (kernel(x, y) == e).all()
print("tcsym.kernel.serving" in sys.modules, "tcsym.schedule.map_cpu" in sys.modules)
"""


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
