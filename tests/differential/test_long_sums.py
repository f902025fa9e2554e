# SPDX-License-Identifier: Apache-2.0
"""Sums of more terms than caches hold: in blocks, whatever is summed, in whatever order it lies."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

PRODUCTS = {
    "tn": "def f({t}(K,M) A, {t}(K,N) B) -> (C) {{ C(i,j) +=! A(k,i) * B(k,j) }}",
    "nn": "def f({t}(M,K) A, {t}(K,N) B) -> (C) {{ C(i,j) +=! A(i,k) * B(k,j) }}",
    "nt": "def f({t}(M,K) A, {t}(N,K) B) -> (C) {{ C(i,j) +=! A(i,k) * B(j,k) }}",
}
EPILOGUE = """def f(float(K,M) A, float(K,N) B, float(M,N) C0, float(N) b) -> (C) {
    C(i,j) = C0(i,j)
    C(i,j) += A(k,i) * B(k,j)
    C(i,j) = fmax(C(i,j) + b(j), 0)
}"""
TWICE = """def f(float(K,M) A, float(K,N) B) -> (C, D) {
    C(i,j) +=! A(k,i) * B(k,j)
    D(i,j) max=! A(k,i) * B(k,j)
}"""
STEPS = """def f(float(T,K,M) A, float(K,N) B) -> (C) {
    C(0,i,j) = 1.0 where i in 0:M, j in 0:N
    for t in 0:T { C(t+1,i,j) +=! A(t,k,i) * B(k,j)
                   C(t+1,i,j) += C(t,i,j) }
}"""
SEVERAL = """def f({t}(B,P,Q,M) X, {t}(B,N,P,Q) Y) -> (D) {{
    D(m,n) +=! X(b,p,q,m) * Y(b,n,p,q)
}}"""
# M, N, K: the first few in one part of the sum, the last in rounds
SIZES = [(16, 16, 1023), (33, 40, 1024), (40, 37, 2049), (32, 35, 3100), (1100, 1100, 9500)]


def numbers_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def numbers(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    names = {"half": "f2", "double": "f8", "float": "f4", "int8": "i1", "int32": "i4"}
    return rng.integers(-2, 3, shape).astype(names[kind])


def shapes(name: str, m: int, n: int, k: int) -> list[tuple[int, int]]:
    return [(k, m) if name[0] == "t" else (m, k), (k, n) if name[1] == "n" else (n, k)]


def product(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = (x.astype("f8") for x in (a, b))
    return (a.T if name[0] == "t" else a) @ (b.T if name[1] == "t" else b)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("name", "target"), [*((name, "cpu") for name in PRODUCTS), ("nt", "cpu:avx2")]
)
def test_every_order_of_operands(name: str, target: str) -> None:
    """Integers, so that any order of additions is exact."""
    kernel, rng = tcsym.define(PRODUCTS[name].format(t="float"), target=target), numbers_of(0)
    for m, n, k in SIZES if target == "cpu" else SIZES[:-1]:
        a, b = (numbers(rng, "float", *s) for s in shapes(name, m, n, k))
        np.testing.assert_array_equal(kernel(a, b), product(name, a, b))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("kind", ["half", "double", "int32"])
def test_other_types(kind: str) -> None:
    kernel, rng = tcsym.define(PRODUCTS["tn"].format(t=kind)), numbers_of(1)
    for m, n, k in SIZES[1:-1]:
        a, b = (numbers(rng, kind, *s) for s in shapes("tn", m, n, k))
        want = kernel.reference(a, b)
        np.testing.assert_array_equal(kernel(a, b), want)


@pytest.mark.parametrize("name", ["tn", "nt"])
def test_bytes_in_products_of_four(name: str) -> None:
    text = PRODUCTS[name].format(t="int8").replace("-> (C)", "-> (int32(M,N) C)")
    kernel, rng = tcsym.define(text), numbers_of(2)
    for m, n, k in SIZES[1:-1]:
        a, b = (numbers(rng, "int8", *s) for s in shapes(name, m, n, k))
        np.testing.assert_array_equal(kernel(a, b), product(name, a, b))


def test_what_is_done_before_and_after() -> None:
    kernel, rng = tcsym.define(EPILOGUE), numbers_of(3)
    c, d = numbers(rng, "float", 33, 35), numbers(rng, "float", 35)
    for k in (1500, 2100):
        a, b = numbers(rng, "float", k, 33), numbers(rng, "float", k, 35)
        np.testing.assert_array_equal(kernel(a, b, c, d), np.maximum(c + a.T @ b + d, 0))


def test_two_results_and_a_maximum() -> None:
    kernel, rng = tcsym.define(TWICE), numbers_of(4)
    a, b = numbers(rng, "float", 1300, 20), numbers(rng, "float", 1300, 19)
    c, d = kernel(a, b)
    np.testing.assert_array_equal(c, a.T @ b)
    np.testing.assert_array_equal(d, (a[:, :, None] * b[:, None, :]).max(0))


def test_steps_of_a_recurrence() -> None:
    kernel, rng = tcsym.define(STEPS), numbers_of(5)
    a, b = numbers(rng, "float", 3, 1200, 20), numbers(rng, "float", 1200, 24)
    want = 1 + np.cumsum(np.einsum("tki,kj->tij", a, b), 0)
    np.testing.assert_array_equal(kernel(a, b)[1:], want)


def test_sums_over_several_loops() -> None:
    """The outermost loop of the sum is split, in steps of one at least."""
    kernel, rng = tcsym.define(SEVERAL.format(t="float")), numbers_of(6)
    for n, p, q in ((3, 20, 21), (1, 40, 70), (2, 3, 1100), (700, 2, 5)):
        x, y = numbers(rng, "float", n, p, q, 19), numbers(rng, "float", n, 18, p, q)
        np.testing.assert_array_equal(kernel(x, y), np.einsum("bpqm,bnpq->mn", x, y))


def test_known_and_late_sizes() -> None:
    text, rng = PRODUCTS["tn"].format(t="float"), numbers_of(7)
    a, b = numbers(rng, "float", 3000, 40), numbers(rng, "float", 3000, 36)
    whole = {"M": 40, "N": 36, "K": 3000}
    for known, bind in (({"K": 3000}, "after"), (whole, "before"), (whole, "after")):
        kernel = tcsym.define(text, sizes=known, options=tcsym.Options(bind=bind))
        np.testing.assert_array_equal(kernel(a, b), a.T @ b)


def test_the_same_threads_give_the_same_bits() -> None:
    """Another number of them may add parts where one adds all in order."""
    kernel, rng = tcsym.define(PRODUCTS["tn"].format(t="float")), numbers_of(8)
    for m, n, k in ((40, 50, 5000), (300, 310, 4500)):
        a, b = rng.standard_normal((k, m), "f4"), rng.standard_normal((k, n), "f4")
        one = kernel(a, b, threads=1)
        for threads in (1, 2, 3):
            found = kernel(a, b, threads=threads)
            np.testing.assert_array_equal(kernel(a, b, threads=threads), found)
            np.testing.assert_allclose(found, one, 1e-3, 1e-2)
