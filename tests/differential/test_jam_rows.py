# SPDX-License-Identifier: Apache-2.0
"""Sums along rows that share an operand or wait for others, compiled: several rows at a time."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym

MATVEC = "def f({0}(M,K) A, {0}(K) x) -> (y) {{ y(i) +=! A(i,k) * x(k) }}"
SIZES = [(0, 5), (1, 40), (3, 40), (4, 13), (5, 16), (9, 33), (14, 100), (70, 21), (6, 0)]


@pytest.mark.parametrize("kind", ["float", "double", "half", "int32"])
def test_matrix_times_vector(kind: str) -> None:
    kernel = tcsym.define(MATVEC.format(kind))
    dtype = {"float": "f4", "double": "f8", "half": "f2", "int32": "i4"}[kind]
    rng = np.random.default_rng(1)
    for m, k in SIZES:
        a, x = (rng.integers(-3, 4, s).astype(dtype) for s in ((m, k), k))
        np.testing.assert_array_equal(kernel(a, x), kernel.reference(a, x), err_msg=f"{m} {k}")


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_batches_with_a_start_and_a_value_of_each_sum(rows: int) -> None:
    text = """def f(float(B,M,K) A, float(B,K) x, float(M) s) -> (y) {
  y(b,i) = s(i) where b in 0:B, i in 0:M
  y(b,i) += A(b,i,k) * x(b,k)
  y(b,i) = fmax(y(b,i), 1)
}"""
    kernel = tcsym.define(text)
    rng = np.random.default_rng(2)
    a, x, s = (rng.integers(-3, 4, n).astype("f4") for n in ((3, rows, 37), (3, 37), rows))
    np.testing.assert_array_equal(kernel(a, x, s), kernel.reference(a, x, s))


def test_several_rows_are_a_tile_by_default() -> None:
    text = tcsym.define(MATVEC.format("float"), target="cpu:avx2").explain("plan")
    assert "split i tile reg:" in text or "split i panel tile:" in text


NORMS = {
    "layer": """def f(float(N,D) I, float(D) g) -> (O) {
  mean(n) +=! I(n,d)
  mean(n) = mean(n) / D
  var(n) +=! (I(n,d) - mean(n)) * (I(n,d) - mean(n))
  O(n,d) = (I(n,d) - mean(n)) * rsqrt(var(n) / D + 0.5) * g(d)
}""",
    "root": """def f(float(N,D) I, float(D) g) -> (O) {
  s(n) +=! I(n,d) * I(n,d)
  O(n,d) = I(n,d) * rsqrt(s(n) + 1) * g(d)
}""",
    "largest": """def f(float(B,N,D) I, float(D) g) -> (O) {
  big(b,n) max=! I(b,n,d)
  O(b,n,d) = I(b,n,d) - big(b,n) * g(d)
}""",
    "variance": """def f(float(N,D) I, float(D) g) -> (V) {
  mean(n) +=! I(n,d) * g(d)
  V(n) +=! (I(n,d) - mean(n)) * (I(n,d) - mean(n))
}""",
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["cpu", "cpu:avx2", "cpu:novector"])
@pytest.mark.parametrize("name", NORMS)
def test_rows_that_wait_for_sums_of_their_own(name: str, target: str) -> None:
    kernel = tcsym.define(NORMS[name], target=target)
    rng = np.random.default_rng(3)
    for n, d in [(0, 4), (1, 70), (2, 61), (3, 200), (5, 33), (8, 129), (2, 1), (11, 16)]:
        shape = (2, n, d) if name == "largest" else (n, d)
        x, g = (rng.standard_normal(s, dtype="f4") for s in (shape, d))
        np.testing.assert_allclose(
            kernel(x, g), kernel.reference(x, g), rtol=2e-5, atol=2e-5, err_msg=f"{n} {d}"
        )


FEW_COLUMNS = {
    "plain": "def f({0}(M,K) A, {0}(N,K) B) -> (C) {{ C(m,n) +=! A(m,k) * B(n,k) }}",
    "started": """def f({0}(M,K) A, {0}(N,K) B) -> (C) {{
  C(m,n) = A(m,0) where n in 0:N
  C(m,n) += A(m,k) * B(n,k)
  C(m,n) = max(C(m,n), B(n,0))
}}""",
    "squares": "def f({0}(M,K) A, {0}(N,K) B) -> (C) {{ C(m,n) +=! (A(m,k)*A(m,k)) * B(n,k) }}",
    "batches": """def f({0}(M,K) A, {0}(N,K) B) -> (C) {{
  C(b,m,n) +=! A(m,k) * B(n,k) where b in 0:2
}}""",
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["float", "double", "int32"])
@pytest.mark.parametrize("name", FEW_COLUMNS)
def test_few_columns_have_four_rows_at_a_time_and_the_last_one_again(name: str, kind: str) -> None:
    kernel = tcsym.define(FEW_COLUMNS[name].format(kind))
    dtype = {"float": "f4", "double": "f8", "int32": "i4"}[kind]
    rng = np.random.default_rng(3)
    for m in (0, 1, 2, 3, 4, 5, 9):
        for n, k in ((1, 17), (2, 64), (3, 130)):
            a, b = (rng.integers(-3, 4, (x, k)).astype(dtype) for x in (m, n))
            np.testing.assert_array_equal(kernel(a, b), kernel.reference(a, b), err_msg=f"{m} {n}")


def test_a_tensor_times_itself_has_no_sum_made_twice() -> None:
    kernel = tcsym.define("def f(float(M,K) A) -> (C) { C(m,n) +=! A(m,k) * A(n,k) }")
    rng = np.random.default_rng(4)
    for m in range(5):
        a = rng.integers(-3, 4, (m, 40)).astype("f4")
        np.testing.assert_array_equal(kernel(a), a @ a.T, err_msg=str(m))
