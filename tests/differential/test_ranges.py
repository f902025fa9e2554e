# SPDX-License-Identifier: Apache-2.0
"""Ranges that use indices or read tensors, compiled, against the interpreter."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import BoundsError
from tests.guarded import guarded

ATTENTION = """def f(float(H,L,D) Q, float(H,L,D) K, float(H,L,E) V, float(R) w) -> (O) {{
  S(h,i,j) +=! Q(h,i,d) * K(h,j,d)
  m(h,i) max=! S(h,i,j) where j in {0}
  P(h,i,j) = exp(S(h,i,j) - m(h,i))
  z(h,i) +=! P(h,i,j) where j in {0}
  O(h,i,e) +=! P(h,i,j) * V(h,j,e) where j in {0}
  O(h,i,e) = O(h,i,e) / z(h,i)
}}"""
TARGETS = ["cpu", "cpu:avx2"]
BAG = """def f(int32(P) off, int32(J) id, float(V,D) E) -> (Y) {
  Y(b,d) +=! E(id(j),d) where j in off(b):off(b+1)
}"""


def _normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("f4")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("ends", ["0:i+1", "max(i-R,0):i+1"])
def test_attention_over_a_triangle_and_a_band(ends: str, target: str) -> None:
    kernel = tcsym.define(ATTENTION.format(ends), target=target, strategy="symbolic").f
    for length in (1, 50, 101):
        given = (_normal(2, length, 8), _normal(2, length, 8) + 1, _normal(2, length, 20))
        args = (*given, np.zeros(9, "f4"))
        np.testing.assert_allclose(kernel(*args), kernel.reference(*args), 1e-4, 1e-5)


@pytest.mark.parametrize("ends", ["0:i+1", "i:N", "i/2:min(i+5,N)"])
@pytest.mark.parametrize("target", TARGETS)
def test_triangular_products_let_in_nothing_from_outside(ends: str, target: str) -> None:
    text = (
        f"def f(float(N,N) A, float(N,M) B) -> (C) {{ C(i,j) +=! A(i,k)*B(k,j) where k in {ends} }}"
    )
    kernel = tcsym.define(text.replace("where", "where i in 0:N,"), target=target).f
    for n, m in ((1, 1), (50, 33), (101, 64)):
        a = _normal(n, n)
        full = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) < n
        a[full & ~_held(ends, n)] = np.nan
        found, want = kernel(a, _normal(n, m)), np.where(_held(ends, n), a, 0) @ _normal(n, m)
        np.testing.assert_allclose(found, want, 1e-4, 1e-4)


def _held(ends: str, n: int) -> Any:
    lower, upper = ends.split(":")
    k = np.arange(n)
    return np.array(
        [
            (k >= int(eval(lower.replace("/", "//"), {"i": i})))
            & (k < eval(upper, {"i": i, "N": n, "min": min}))
            for i in range(n)
        ]
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_bags_whose_lengths_differ_by_a_thousand(threads: int) -> None:
    lengths = np.where(np.arange(200) % 50 == 3, 1000, 1)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype("i4")
    at = np.random.default_rng(1).integers(0, 9, offsets[-1]).astype("i4")
    table = np.random.default_rng(2).integers(-3, 4, (9, 37)).astype("f4")
    kernel = tcsym.define(BAG).f
    want = np.stack([table[at[a:b]].sum(0) for a, b in pairwise(offsets)])
    np.testing.assert_array_equal(kernel(offsets, at, table, threads=threads), want)


@pytest.mark.parametrize("offsets", [[0, 3, 6], [-1, 2, 3], [2, 1, 9], [0, 2**31 - 1, 1]])
def test_a_row_that_ends_outside_is_an_error(offsets: list[int]) -> None:
    kernel = tcsym.define(BAG).f
    with pytest.raises(BoundsError, match="in `id`"):
        kernel(np.array(offsets, "i4"), np.zeros(5, "i4"), np.ones((2, 3), "f4"))


def test_a_row_that_ends_outside_is_an_error_on_a_device() -> None:
    kernel = tcsym.define(BAG, target="cuda:twin").f
    with pytest.raises(BoundsError, match="in `id`"):
        kernel(np.array([0, 3, 6], "i4"), np.zeros(5, "i4"), np.ones((2, 3), "f4"))


def test_a_condition_known_in_front_of_a_sum() -> None:
    text = "def f(float(N,N) X) -> (s) { s(i) +=! k <= i ? X(k,i) : 0.0 where k in 0:N, i in 0:N }"
    kernel = tcsym.define(text, target="cpu:novector", strategy="symbolic").f
    x = _normal(9, 9)
    np.testing.assert_allclose(kernel(x), kernel.reference(x), 1e-5, 1e-5)


def test_ragged_sums_stand_below_loops_for_threads() -> None:
    mapped = tcsym.define(ATTENTION.format("0:i+1"), target="cpu:avx2").f.explain("mapped")
    assert "parallel" in mapped
    bag = tcsym.define(BAG, target="cpu:avx2").f.explain("mapped")
    assert "parallel b in 0:P - 1" in bag and "read S0.j.lower = int64(off[b])" in bag


EMPTY = ["max(9-i,0):min(K-3,i)", "max(i-3,0):min(i+3,K)", "i/2:K-2", "i+2:min(i+1,K)"]


@pytest.mark.parametrize("ends", EMPTY)
def test_rows_of_empty_ranges_that_lie_outside_add_nothing_to_a_strip(ends: str) -> None:
    given = "double(K,N) A, double(M,K) B"
    text = f"C(i,j) +=! A(k,i)*B(j,k) where i in 0:N, j in 0:M, k in {ends}"
    kernel = tcsym.define(f"def f({given}) -> (C) {{ {text} }}", strategy="symbolic").f
    for n, k in ((4, 4), (40, 1), (70, 3), (9, 9)):
        args = np.ones((k, n)), np.ones((19, k))
        found = kernel(*(guarded(x) for x in args))  # ends at a page that must not be read
        np.testing.assert_array_equal(found, kernel.reference(*args))


def test_sizes_are_not_left_out_by_what_moves_with_a_strip() -> None:
    text = "C(i,j) +=! A(i,k)*B(k,j) where i in 0:N, j in 0:N, k in max(0-i,0):N"
    given = "float(N,N) A, float(N,N) B"
    kernel = tcsym.define(f"def f({given}) -> (C) {{ {text} }}", strategy="symbolic").f
    for n in (1, 50):
        args = _normal(n, n), _normal(n, n)
        np.testing.assert_allclose(kernel(*args), args[0] @ args[1], 1e-4, 1e-4)


def test_rows_that_are_one_vector_each_as_long_as_its_number() -> None:
    """What they read is the same for all rows, but how much of it is not."""
    text = "def f(float(K) C) -> (T) { T(i) +=! C(k) where i in 0:K, k in 0:i+1 }"
    f, C = tcsym.define(text, sizes={"K": tcsym.Dim(1, 12)}).f, _normal(11).astype(np.float32)
    for n in (1, 4, 11):
        assert np.allclose(f(C[:n]), np.cumsum(C[:n]), atol=1e-5)


def test_pieces_of_ranges_have_loops_of_their_own() -> None:
    """Sums inside were called alike in all pieces of a triangle, and one was taken for another."""
    text = """def f(double(B,N) D, double(K,B) T1, double(K) C_new,
      double(K) dC_new, double(K,B) dT1_new)
    -> (double(K) dC, double(B,N) dD, double(K,B) dT1) {
  T1_new_1(i0, i1) = T1(i0, i1)
  T1_new_sum(i, j) max=! D(j, k) - C_new(i) where k in i:N
  T1_new_sum_at(i, j) min=! D(j, k) - C_new(i) == T1_new_sum(i, j) ? k : N where k in i:N
  dT1_new_sum(i, j) = !(T1_new_1(i, j) >= T1_new_sum(i, j) || T1_new_1(i, j) != T1_new_1(i, j))
      ? dT1_new(i, j) : 0.0
  dT1_new_1(i, j) = T1_new_1(i, j) >= T1_new_sum(i, j) || T1_new_1(i, j) != T1_new_1(i, j)
      ? dT1_new(i, j) : 0.0
  dC_new_sum(i) +=! -(k == T1_new_sum_at(i, j) ? dT1_new_sum(i, j) : 0.0)
      where i in 0:K, j in 0:B, k in i:N
  dC_new_sum(i) = dC_new_sum(i) + dC_new(i)
  dC(i0) = dC_new_sum(i0)
  dD(j, k) +=! k == T1_new_sum_at(i, j) ? dT1_new_sum(i, j) : 0.0 where i in 0:min(K, k + 1)
  dT1(i0, i1) = dT1_new_1(i0, i1)
}"""
    kernel, rng = tcsym.define(text, target="cpu:avx2").f, np.random.default_rng(0)
    for k, b, n in ((3, 3, 4), (40, 17, 50), (2, 1, 0)):
        shapes = [(b, n), (k, b), (k,), (k,), (k, b)]
        arrays = [rng.integers(-3, 4, shape).astype("f8") for shape in shapes]
        for got, want in zip(kernel(*arrays), kernel.reference(*arrays), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        "for i in N {{ {} }}",
        "for i in N {{ if i % 2 == 0 {{ {} }} }}",
        "for i in N {{ if i % 2 == 0 {{ {} }} else {{ T(i) = 1.0 }} }}",
        "for i in N {{ if i % 2 == 1 {{ T(i) = T(i) + 1.0 }} else {{ {} }} }}",
    ],
)
def test_ends_that_are_read_are_checked_under_conditions(body: str) -> None:
    """Where the range has points, as the reference does, and nowhere else."""
    text = f"""def f(float(N) A, int32(N) P) -> (float(N) T) {{
      T(i) = A(i)
      {body.format("T(i) += A(k) where k in P(i):N")}
    }}"""
    f, a = tcsym.define(text, strategy="symbolic").f, np.arange(4, dtype="f4")
    for first in ([0, 1, 2, 3], [-1, 1, 2, 3], [0, -1, 2, 3], [4, 9, 4, 7]):
        p = np.array(first, "i4")
        try:
            want = f.reference(a, p)
        except tcsym.BoundsError:
            with pytest.raises(tcsym.BoundsError):
                f(a, p)
        else:
            np.testing.assert_array_equal(f(a, p), want)
