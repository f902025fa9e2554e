# SPDX-License-Identifier: Apache-2.0
"""Sums chosen by a short index: one for each of its values, with the same results."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.frontend.program import Select, reads, statements, subexpressions
from tcsym.rewrite.separate_sums import separate_sums
from tests.differential.inputs import arguments

SEPARATED = {
    "complex numbers": """def f(float(M,K,2) A, float(K,N,2) B) -> (float(M,N,2) C) {
  C(i,j,c) +=! c == 0 ? A(i,k,0)*B(k,j,0) - A(i,k,1)*B(k,j,1)
                      : A(i,k,0)*B(k,j,1) + A(i,k,1)*B(k,j,0)
}""",
    "three values, in a loop": """def f(float(T,M,K) A, float(K,N) B) -> (float(M,N,3) C) {
  C(i,j,c) = 0.0 where i in 0:M, j in 0:N
  for t in T { C(i,j,c) += A(t,i,k) * (c >= 1 ? (c == 2 ? B(k,j) : 1.0) : fabs(B(k,j))) }
}""",
    "checked, and a gather": """def f(float(V,K) A, float(K,N) B, int32(M) at) -> (float(2,M,N) C) {
  C(c,i,j) +=! (c == 1 ? A(at(i),k) : 0.5) * B(k,j) where c in 0:2, exists A(at(i),c)
}""",
}
KEPT = {
    "chosen by data": """def f(float(M,K) A, float(K,N) B, int32(2) w) -> (float(M,N,2) C) {
  C(i,j,c) +=! w(c) == 0 ? A(i,k) * B(k,j) : B(k,j)
}""",
    "chosen by two": """def f(float(M,K) A, float(K,N) B) -> (float(M,N,2) C) {
  C(i,j,c) +=! c == i ? A(i,k) * B(k,j) : B(k,j)
}""",
    "many values": """def f(float(M,K) A, float(K,N) B) -> (float(M,N,5) C) {
  C(i,j,c) +=! c == 0 ? A(i,k) * B(k,j) : B(k,j)
}""",
    "of any size": """def f(float(M,K) A, float(K,N) B, float(L) d) -> (float(M,N,L) C) {
  C(i,j,c) +=! c == 0 ? A(i,k) * B(k,j) : d(c)
}""",
    "reads what it writes": """def f(float(M,K) A, float(K,2) B) -> (float(M,2) C) {
  C(i,c) = B(0,c)
  C(i,c) += c == 0 ? A(i,k) * B(k,1) : C(i,0)
}""",
    "no sum": """def f(float(M,N) A) -> (float(M,N,2) C) {
  C(i,j,c) = c == 0 ? A(i,j) : -A(i,j)
}""",
}


@pytest.mark.parametrize("name", SEPARATED)
def test_each_value_has_its_sum(name: str) -> None:
    program = separate_sums(tcsym.define(SEPARATED[name]).f.program)
    sums = [s for s in statements(program.body) if any(r.reduced for r in s.domain)]
    assert len(sums) == (3 if "three" in name else 2)
    assert not any(isinstance(x, Select) for s in sums for x in subexpressions(s.value))
    assert all("c" not in i.variables() for s in sums for i in s.subscripts)
    assert all(reads(s.value) for s in sums)


@pytest.mark.parametrize("name", KEPT)
def test_others_stay(name: str) -> None:
    program = tcsym.define(KEPT[name]).f.program
    assert separate_sums(program) is program


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", [*SEPARATED, *KEPT])
def test_results_are_those_of_the_reference(name: str) -> None:
    kernel = tcsym.define({**SEPARATED, **KEPT}[name]).f
    rng = np.random.default_rng(5)
    for some in [(1, 2, 3, 7, 18, 33), (0, 1, 5, 16), (20, 40, 70)]:
        sizes = {v: max(int(rng.choice(some)), 2 * (v in "VK")) for v in kernel.sizes}
        rules = {"at": "index V"} if "V" in sizes else {}
        inputs = arguments(kernel, sizes, rules, "dense")
        got, want = kernel(**inputs), kernel.reference(**inputs)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_products_of_complex_numbers_are_contractions() -> None:
    kernel = tcsym.define(SEPARATED["complex numbers"])
    assert "lane:" in kernel.explain("plan") and "c == 0" not in kernel.explain("mapped")
