# SPDX-License-Identifier: Apache-2.0
"""Products of a few rows with a matrix that lies along the sum: blocks of vectors, no copies."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tests.processors import require

LINEAR = "def f(float(M,K) A, float(N,K) B) -> (C) { C(i,j) +=! A(i,k) * B(j,k) }"
BATCHED = "def f(float(P,M,K) A, float(P,N,K) B) -> (C) { C(p,i,j) +=! A(p,i,k) * B(p,j,k) }"
SUMS = """def f(float(M,K) A, float(N,K) B, float(N) b, float(M,N) R) -> (C) {
  C(i,j) = R(i,j)
  C(i,j) += A(i,k) * B(j,k)
  C(i,j) = fmax(C(i,j) + b(j), 0)
}"""
GROUPS = """def f(float(M,K) A, int8(N,K) B, float(N,G) s) -> (C) {
  C(i,j) +=! A(i,k) * float(B(j,k)) * s(j,k/SIZE)
}"""

ROWS = (1, 2, 3, 4, 5, 8, 9, 15, 16, 17)


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [rng.standard_normal(s, dtype=np.float32) for s in shapes]


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 7, 64])
@pytest.mark.parametrize("terms", [0, 1, 15, 16, 33, 300])
def test_every_number_of_rows_and_columns(columns: int, terms: int) -> None:
    kernel = tcsym.define(LINEAR, strategy="symbolic").f
    for rows in ROWS:
        a, b = arrays((rows, terms), (columns, terms))
        np.testing.assert_allclose(kernel(a, b), kernel.reference(a, b), 1e-4, 1e-4)


@pytest.mark.parametrize("rows", ROWS)
def test_sums_that_begin_with_other_values_are_added_to_once(rows: int) -> None:
    """Instead of rows that are not there the last is made again, with sums of its own."""
    kernel = tcsym.define(SUMS, strategy="symbolic").f
    given = arrays((rows, 200), (9, 200), (9,), (rows, 9))
    np.testing.assert_allclose(kernel(*given), kernel.reference(*given), 1e-4, 1e-4)


def test_batches_of_few_rows() -> None:
    kernel = tcsym.define(BATCHED, strategy="symbolic").f
    for rows, columns in ((2, 5), (3, 9), (6, 4), (1, 8)):
        a, b = arrays((3, rows, 130), (3, columns, 130))
        np.testing.assert_allclose(kernel(a, b), kernel.reference(a, b), 1e-4, 1e-4)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("size", [3, 24, 32, 64, 96, 128, 160])
@pytest.mark.parametrize("rows", [1, 3, 18])
def test_scales_of_groups(size: int, rows: int) -> None:
    kernel = tcsym.define(GROUPS.replace("SIZE", str(size)), strategy="symbolic").f
    for groups, columns, short in ((5, 6, 0), (2, 33, 1), (1, 4, size - 1)):
        terms = size * groups - short
        a, s = arrays((rows, terms), (columns, groups))
        b = np.random.default_rng(1).integers(-128, 128, (columns, terms)).astype(np.int8)
        expected = kernel.reference(a, b, s)
        np.testing.assert_allclose(kernel(a, b, s), expected, 1e-3, 1e-2)


@pytest.mark.parametrize("target, side", [("cpu:avx2", 3), ("cpu:avx512", 4)])
def test_blocks_are_of_rows_and_columns(target: str, side: int) -> None:
    """As many as registers hold with their operands."""
    plan = tcsym.define(LINEAR, target=target).f.explain("plan")
    dots = plan[plan.index("# dots") :].splitlines()
    assert f"split i tile reg:{side} end=half" in dots[1]
    assert f"reg:{side} end=half" in dots[2]


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("size", [64, 128])
def test_a_scale_for_many_lanes_is_one_load(target: str, size: int) -> None:
    """No copy of the operands; vectors of four rows along the sum, converted, scaled and added."""
    source = GROUPS.replace("SIZE", str(size)).replace("float(M,K) A", "float(1,K) A")
    kernel = tcsym.define(source, target=target).f
    assert "_along" not in kernel.explain("mapped")
    blocks = kernel.explain("asm").split("\n.LBB")
    along = [b for b in blocks if "vpmovsxbd" in b and "vfmadd" in b and "vgather" not in b]
    assert any(b.count("vpmovsxbd") == b.count("vfmadd") >= 4 for b in along)


STEPS = """def f(float(T,M,K) X, float(M,K) h, float(K,K) U) -> (float(T+1,M,K) S) {
  S(0,n,k) = h(n,k)
  for t in T {
    G(n,k) +=! S(t,n,l) * U(k,l)
    S(t+1,n,k) = tanh(G(n,k) + X(t,n,k))
  }
}"""


def test_panels_that_steps_use_again_are_for_few_rows_too() -> None:
    kernel = tcsym.define(STEPS, strategy="symbolic").f
    for steps, rows, terms in ((5, 1, 70), (9, 2, 70), (3, 3, 130), (0, 4, 20)):
        given = arrays((steps, rows, terms), (rows, terms), (terms, terms))
        given[2] /= 8
        np.testing.assert_allclose(kernel(*given), kernel.reference(*given), 1e-4, 1e-4)


STRIDED = """def f(float(N,C,H,W) I, float(O,C,KH,KW) F) -> (Y) {
  Y(n,o,h,w) +=! I(n,c,2*h+kh,2*w+kw) * F(o,c,kh,kw)
}"""


@pytest.mark.parametrize("target", ["cpu:novector", "cpu:avx2", "cpu:avx512"])
def test_panels_of_narrow_images_are_filled_row_by_row(target: str) -> None:
    """Rows of 1 to 40 columns: vectors with no end of a row in them, one, several, the last one."""
    require(target)
    kernel = tcsym.define(STRIDED, target=target, strategy="symbolic").f
    for width in (7, 8, 9, 12, 15, 17, 24, 37, 38, 40, 71, 85):
        given = arrays((2, 3, 13, width), (5, 3, 7, 7))
        np.testing.assert_allclose(kernel(*given), kernel.reference(*given), 1e-4, 1e-4)
