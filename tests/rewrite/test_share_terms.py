# SPDX-License-Identifier: Apache-2.0
"""Terms of sums that become temporaries: which, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.frontend.program import Program, statements
from tcsym.index.presburger import Presburger
from tcsym.rewrite.normalise import normalise
from tcsym.rewrite.share_terms import share_terms

TEXT = """def f(float(L,D) Q, float(L,D) K, float(L,D) V) -> (O) {{
  A(l,s) +=! Q(l,d) * K(s,d)
  m(l) max=! A(l,s) where s in {0}
  z(l) +=! exp(A(l,s) - m(l)) where s in {0}
  O(l,e) +=! {1} * V(s,e) where s in {2}
  O(l,e) = O(l,e) / z(l)
}}"""
TERM = "exp(A(l,s) - m(l))"
SHARED = [
    ("0:L", TERM, "0:L"),
    ("0:l+1", TERM, "0:l+1"),
    ("max(l-9,0):l+1", TERM, "max(l-9,0):l+1"),
]
KEPT = [
    ("0:l+1", TERM, "0:L"),  # other points
    ("0:l+1", "exp(A(l,s))", "0:l+1"),
    ("0:l+1", f"(s > 0 ? {TERM} : 0.5)", "0:l+1"),  # not at every point
    ("0:l+1", "A(l,s)", "0:l+1"),
]


def shared(first: str, term: str, second: str) -> tuple[Program, Program]:
    program = tcsym.define(TEXT.format(first, term, second)).f.program
    program = normalise(program, Presburger(program.sizes))
    return program, share_terms(program)


@pytest.mark.parametrize("case", SHARED)
def test_terms_of_two_sums_become_a_statement(case: tuple[str, str, str]) -> None:
    before, after = shared(*case)
    (term,) = after.tensors[len(before.tensors) :]
    made = [s for s in statements(after.body) if s.target == term.name]
    assert [len(s.domain) for s in made] == [2]
    assert len(after.body) == len(before.body) + 1


@pytest.mark.parametrize("case", KEPT)
def test_other_terms_stay(case: tuple[str, str, str]) -> None:
    before, after = shared(*case)
    assert before == after


@pytest.mark.parametrize("target", ["cpu", "cpu:novector", "cuda:twin"])
def test_a_row_sees_nothing_beyond_its_range(target: str) -> None:
    kernel = tcsym.define(TEXT.format(*SHARED[1]), target=target, strategy="symbolic").f
    for length in (1, 5, 61):
        q, k, v = np.random.default_rng(0).standard_normal((3, length, 7)).astype("f4")
        k[length - 1], v[length - 1] = np.inf, np.nan
        found, want = kernel(q, k, v), kernel.reference(q, k, v)
        np.testing.assert_allclose(found[:-1], want[:-1], 1e-4, 1e-5)
        assert length == 1 or np.isfinite(found[:-1]).all()


def test_several_terms_of_a_sum_are_told_apart() -> None:
    value = "X(i,j) * hypot(Z(i), 2.0) * (hypot(Z(i), 2.0) == 0.0 ? 0.0 : Z(i))"
    f = tcsym.define(
        "def f(float(N,M) X, float(N) Z) -> (Y) "
        f"{{ Y(i) +=! {value} Y(i) += {value} where i in 0:N }}"
    ).f
    X, Z = np.ones((3, 2), np.float32), np.array([0, 1, 2], np.float32)
    assert np.allclose(f(X, Z), f.reference(X, Z))
