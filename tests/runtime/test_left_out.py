# SPDX-License-Identifier: Apache-2.0
"""Sizes that a kernel's code leaves to another: who makes that, when, and what is entered then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tcsym
from tcsym.runtime.background import settle
from tcsym.runtime.cache import _cache_at
from tests.entered import python_frames

PRODUCT = "def f(float(M,K) A, float(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }"
BEFORE = tcsym.Options(mapping="old")  # plans that leave sizes to another kernel
SHORT, LONG = (20, 30, 40), (20, 30, 1100)
Arrays = tuple[np.ndarray, np.ndarray]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TCSYM_CACHE", raising=False)
    monkeypatch.setenv("TCSYM_VERIFY", "0")
    _cache_at.cache_clear()
    yield
    settle()


def arrays(m: int, n: int, k: int) -> Arrays:
    rng = np.random.default_rng(m + n + k)
    return rng.integers(-2, 3, (m, k)).astype("f4"), rng.integers(-2, 3, (k, n)).astype("f4")


def check(kernel: tcsym.Kernel, *sizes: tuple[int, int, int]) -> None:
    for each in sizes:
        a, b = arrays(*each)
        np.testing.assert_array_equal(kernel(a, b), a @ b)


def defined(strategy: str = "symbolic") -> tcsym.Kernel:
    return tcsym.define(PRODUCT, strategy=strategy, options=BEFORE).f


def made(kernel: tcsym.Kernel) -> int:
    return kernel.stats.compilations + kernel.stats.cache_hits


def has_blocks(kernel: tcsym.Kernel) -> list[bool]:
    variants = kernel.stats.variants
    return [any("long sums in blocks" in note for note in v.notes) for v in variants]


def is_entered(kernel: tcsym.Kernel, sizes: tuple[int, int, int]) -> bool:
    a, b = arrays(*sizes)
    return not python_frames(lambda: kernel(a, b))


def test_code_of_long_sums_is_made_when_they_come() -> None:
    kernel = defined()
    check(kernel, SHORT, (20, 14, 5000), (300, 30, 1100))
    assert has_blocks(kernel) == [False]
    check(kernel, LONG)
    assert has_blocks(kernel) == [False, True]
    check(kernel, (50, 60, 2100), SHORT, (70, 65, 4500))
    assert made(kernel) == 2


def test_a_first_call_with_a_long_sum_makes_one_variant() -> None:
    kernel = defined()
    check(kernel, LONG, SHORT)
    assert has_blocks(kernel) == [True]


def test_native_calls_come_back_once() -> None:
    kernel = defined()
    check(kernel, SHORT)
    assert is_entered(kernel, SHORT)
    assert not is_entered(kernel, LONG)
    settle()
    assert is_entered(kernel, LONG) and is_entered(kernel, SHORT)
    check(kernel, LONG, SHORT)
    assert sum(kernel.stats.dispatch.values()) == 7


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_other_layouts_have_their_own(layout: str) -> None:
    kernel = defined()
    for sizes in (SHORT, LONG, SHORT):
        a, b = arrays(*sizes)
        wide = np.zeros((a.shape[0], 2 * a.shape[1]), a.dtype)
        wide[:, : a.shape[1]] = a
        given = wide[:, : a.shape[1]] if layout == "rows" else np.asfortranarray(a)
        np.testing.assert_array_equal(kernel(given, b), a @ b)
    assert has_blocks(kernel) == [False, True]


def test_given_memory_and_declared_sizes() -> None:
    a, b = arrays(*LONG)
    out = np.full((20, 30), np.nan, "f4")
    kernel = defined()
    check(kernel, SHORT)
    assert kernel(a, b, out=out) is out
    np.testing.assert_array_equal(out, a @ b)
    short = tcsym.define(
        PRODUCT, strategy="symbolic", sizes={"K": tcsym.Dim(1, 1000)}, options=BEFORE
    ).f
    check(short.precompile(), SHORT)
    assert has_blocks(short) == [False]


def test_whoever_compiles_ahead_has_all() -> None:
    kernel = defined().precompile()
    check(kernel, SHORT, LONG)
    assert has_blocks(kernel) == [True] and made(kernel) == 1
    other = tcsym.define(PRODUCT.replace("f(", "g("), strategy="symbolic", options=BEFORE).g
    check(other, SHORT)
    other.compile((20, 1100), (1100, 30))
    count = made(other)
    check(other, LONG)
    assert made(other) == count


@pytest.mark.thinned(2)
@pytest.mark.parametrize("strategy", ["symbolic", "auto", "specialize", "bucket", "pad"])
def test_every_strategy(strategy: str) -> None:
    ranges = {"M": tcsym.Dim(1, 64), "N": tcsym.Dim(1, 64), "K": tcsym.Dim(1, 4096)}
    declared = ranges if strategy in ("bucket", "pad") else {}
    kernel = tcsym.define(PRODUCT, strategy=strategy, sizes=declared, options=BEFORE).f
    for _ in range(3):
        check(kernel, SHORT, LONG, (33, 17, 3000), (20, 30, 1023))
        settle()


LATER = f"""
import sys, numpy as np, tcsym
kernel = tcsym.define({PRODUCT!r}, strategy=sys.argv[1], options=tcsym.Options(mapping="old"))
for m, n, k in eval(sys.argv[2]):
    a, b = np.ones((m, k), "f4"), np.ones((k, n), "f4")
    assert (kernel(a, b) == k).all()
print("tcsym.kernel.serving" in sys.modules, "tcsym.schedule.map_cpu" in sys.modules)
"""


@pytest.mark.thinned(2)
@pytest.mark.parametrize("strategy", ["symbolic", "auto"])
def test_later_processes_find_both(strategy: str) -> None:
    def told(*sizes: tuple[int, int, int]) -> list[str]:
        command = [sys.executable, "-c", LATER, strategy, repr(sizes)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    assert told(SHORT)[1] == "True"
    assert told(SHORT)[1] == "False"
    assert told(LONG, SHORT)[1] == "True"
    assert told(LONG, SHORT)[1] == "False"


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


def test_several_results_are_left_as_a_whole() -> None:
    kernel = tcsym.define(
        """def g(float(M,K) A, float(K,N) B) -> (R, C, D) {
        R(i) +=! A(i,k)
        C(i,j) +=! A(i,k) * B(k,j)
        D(i,j) = fmax(C(i,j) + R(i), 0) }""",
        strategy="symbolic",
    ).g
    for sizes in (SHORT, LONG, SHORT, (300, 20, 5000)):
        a, b = arrays(*sizes)
        r, c, d = kernel(a, b)
        np.testing.assert_array_equal(r, a.sum(1))
        np.testing.assert_array_equal(c, a @ b)
        np.testing.assert_array_equal(d, np.maximum(a @ b + a.sum(1)[:, None], 0))
