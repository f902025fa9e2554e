# SPDX-License-Identifier: Apache-2.0
"""Scattered left subscripts, compiled for each target: whole texts against the interpreter."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import TCError

ROWS = "def f(int32(J) id, {0}(J,D) Y) -> ({0}(B,D) G) {{ G(id(j),d) {1} Y(j,d) }}"
SIZES = [(0, 1, 3), (1, 5, 0), (7, 1, 1), (40, 5, 3), (40, 33, 37), (300, 9, 300)]
TARGETS = ("cpu", "cpu:avx2", "cpu:novector", "cuda:twin")


@lru_cache(maxsize=1)
def compiled(text: str, target: str) -> Any:
    return tcsym.define(text, target=target, strategy="symbolic").f


def agree(text: str, target: str, *arrays: Any, **sizes: int) -> None:
    kernel = compiled(text, target)
    got, want = kernel(*arrays, sizes=sizes), kernel.reference(*arrays, sizes=sizes)
    np.testing.assert_array_equal(np.asarray(got, float), np.asarray(want, float))


def small(*shape: int, dtype: str = "f4", low: int = -3, high: int = 4) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(low, high, shape).astype(dtype)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("kind", "dtype", "op"),
    [
        ("float", "f4", "+=!"),
        ("half", "f2", "+=!"),
        ("int8", "i1", "max=!"),
        ("double", "f8", "*=!"),
    ],
)
def test_rows(target: str, kind: str, dtype: str, op: str) -> None:
    for j, b, d in SIZES:
        ids = small(j, dtype="i4", low=0, high=b)
        agree(ROWS.format(kind, op), target, ids, small(j, d, dtype=dtype), B=b)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "text",
    [
        "H(id(i)) += H(i % 5)",  # reads what it writes, as it was before
        "H(id(i)) += X(i) where k in 0:3",
        "H(min(id(i), 4)) max= X(i)",
        "H(4 - id(i)) += X(i) + X(id(i))",
        "H(id(id(i))) *= X(i)",
        "for t in 3 { H(id(i)) += X(i) * t }",
        "H(id(2)) += X(2)",
        "t(i) = 4 - id(i) H(t(i)) += X(i)",
    ],
)
def test_elements(target: str, text: str) -> None:
    text = f"def f(int32(J) id, int32(J) X, int32(5) O) -> (H) {{ H(p) = O(p) {text} }}"
    for j in (5, 24):
        agree(
            text,
            target,
            small(j, dtype="i4", low=0, high=5),
            small(j, dtype="i4"),
            small(5, dtype="i4"),
        )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "text",
    [
        "(float(N+M) Y) { Y(i+j) +=! A(i) * B(j) }",
        "(float(N+3*M) Y) { Y(i+3*j) +=! A(i) * B(j) }",
        "(float(2*N+M) Y) { Y(2*(N-1-i)+j+1) +=! A(i) * B(j) }",
        "(float(N+M,N+M) Y) { Y(i+j, M-1+i-j) max=! A(i) - B(j) }",
        "(float(N,N+M) Y) { Y(i,i+j) +=! A(i) * B(j) }",
        "(float(N+1,N) Y) { Y(i+1,i) +=! A(i) }",
        "(float(N*M+M) Y) { Y(M*i+j) +=! A(i) * B(j) }",
    ],
)
def test_affine(target: str, text: str) -> None:
    text = f"def f(float(N) A, float(M) B) -> {text}"
    for n, m in ((1, 1), (5, 3), (17, 20), (0, 4)):
        if "M*i" not in text or m:
            agree(text, target, small(n), small(m))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("at", [-1, 4, 2**31 - 1, -(2**31)])
def test_outside(target: str, at: int) -> None:
    ids = np.array([0, at, 3], np.int32)
    with pytest.raises(TCError) as e:
        compiled(ROWS.format("float", "+=!"), target)(ids, np.ones((3, 9), "f4"), sizes={"B": 4})
    assert (e.value.kind, e.value.line, e.value.column) == ("bounds", 1, 54)


def test_results_are_the_same_in_every_call() -> None:
    kernel = compiled("def f(int32(N) id, float(N) X) -> (float(B) H) { H(id(i)) +=! X(i) }", "cpu")
    rng = np.random.default_rng(0)
    ids, x = rng.integers(0, 50, 300_000).astype("i4"), rng.random(300_000).astype("f4")
    first = kernel(ids, x, sizes={"B": 50})
    assert all((kernel(ids, x, sizes={"B": 50}) == first).all() for _ in range(3))
    exact = np.bincount(ids, x.astype(float), 50)
    np.testing.assert_allclose(first, exact, 1e-4)


@pytest.mark.parametrize(("j", "b", "d"), [(3000, 9, 40), (2000, 3000, 300)])  # copies, columns
def test_threads(j: int, b: int, d: int) -> None:
    kernel = compiled(ROWS.format("float", "+=!"), "cpu")
    ids, y = small(j, dtype="i4", low=0, high=b), small(j, d)
    want = np.zeros((b, d), "f4")
    np.add.at(want, ids, y)
    for threads in (1, 2, 3):
        np.testing.assert_array_equal(kernel(ids, y, sizes={"B": b}, threads=threads), want)


@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:novector"])
def test_rows_of_any_length_are_added(target: str) -> None:
    """A row may be the one that was stored last."""
    text = """def f(float(B,D) A, int32(J) id, float(J,D) X) -> (G) {
      G(b,d) = A(b,d)
      G(id(j),d) += X(j,d)
    }"""
    kernel, rng = compiled(text, target), np.random.default_rng(0)
    for d in (0, 1, 3, 4, 7, 8, 9, 16, 21, 33, 63, 100):
        ids = rng.integers(0, 3, 20).astype("i4")
        a, x = (rng.integers(-9, 9, (n, d)).astype("f4") for n in (3, 20))
        for threads in (1, 2):
            got = kernel(a, ids, x, threads=threads)
            np.testing.assert_array_equal(got, kernel.reference(a, ids, x), err_msg=f"{d}")


@pytest.mark.parametrize("terms", ["0:M", "min(i, k):M"])
def test_a_range_of_what_moves_a_position_may_use_another_index(terms: str) -> None:
    """The loop over `k` stood outside of the one over `i`, which its range uses."""
    text = f"""def f(int32(N) P, int32(M,M) G) -> (int32(N) B) {{
      B(P(k)) +=! G(i,j) where i in 0:M, k in min(2, i):min(N, i + 2), j in {terms}
    }}"""
    kernel, rng = compiled(text, "cpu"), np.random.default_rng(0)
    for n, m in ((1, 1), (3, 3), (5, 4), (4, 7), (40, 33)):
        at, g = rng.integers(0, n, n).astype("i4"), rng.integers(-9, 9, (m, m)).astype("i4")
        got, want = (k(at, g) for k in (kernel, kernel.reference))
        np.testing.assert_array_equal(got, want)
