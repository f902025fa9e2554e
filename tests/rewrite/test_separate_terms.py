# SPDX-License-Identifier: Apache-2.0
"""Sums of several products: which become sums of each, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.frontend.program import Program, statements
from tcsym.index.presburger import Presburger
from tcsym.rewrite.normalise import normalise
from tcsym.rewrite.separate_terms import separate_terms
from tests.differential.inputs import arguments

HEAD = "def f({t}(M,K) A, {t}(K,N) B, {t}(M,K) C, {t}(K,N) D) -> (Y) {{ {s} }}"
ONE, TWO = "A(i,k) * B(k,j)", "C(i,k) * D(k,j)"
SPLIT = {
    "sum": ("float", f"Y(i,j) +=! {ONE} + {TWO}", 2),
    "difference": ("double", f"Y(i,j) +=! {ONE} - {TWO}", 2),
    "of integers": ("int32", f"Y(i,j) +=! {ONE} - {TWO} - {ONE}", 3),
    "guarded": ("float", f"Y(i,j) +=! {ONE} + (i >= 3 ? {TWO} : 0.0)", 2),
    "less a guarded one": ("float", f"Y(i,j) +=! {ONE} - (i + k >= 3 ? {TWO} : 0.0)", 2),
    "twice": ("float", f"Y(i,j) = 1.0 where i in 0:M, j in 0:N Y(i,j) += {ONE} + {TWO}", 3),
}
WHOLE = {
    "no product": ("float", f"Y(i,j) +=! {ONE} + C(i,k)"),
    "maximum": ("float", f"Y(i,j) max=! {ONE} + {TWO}"),
    "no sum": ("float", "Y(i,k) = A(i,k) * C(i,k) + C(i,k) * C(i,k)"),
    "many": ("float", "Y(i,j) +=! " + " + ".join([ONE, TWO] * 3)),
    "other value": ("float", f"Y(i,j) +=! {ONE} + (i >= 3 ? {TWO} : 1.0)"),
    "short": ("int8", f"Y(i,j) +=! {ONE} + {TWO}"),
}


def both(kind: str, text: str) -> tuple[Program, Program]:
    program = tcsym.define(HEAD.format(t=kind, s=text)).f.program
    program = normalise(program, Presburger(program.sizes))
    return program, separate_terms(program)


@pytest.mark.parametrize("name", SPLIT)
def test_products_become_statements(name: str) -> None:
    *given, n = SPLIT[name]
    _, program = both(*given)  # type: ignore[arg-type]
    found = tuple(statements(program.body))
    assert len(found) == n
    assert [s.initialise for s in found].count(True) <= 1 and not found[-1].initialise


@pytest.mark.filterwarnings("ignore::tcsym.TCWarning")
@pytest.mark.parametrize("name", WHOLE)
def test_others_stay(name: str) -> None:
    before, after = both(*WHOLE[name])
    assert after is before


@pytest.mark.filterwarnings("ignore::tcsym.TCWarning")
@pytest.mark.parametrize("name", [*SPLIT, *WHOLE])
def test_results_are_those_of_the_reference(name: str) -> None:
    kind, text = (SPLIT.get(name) or WHOLE[name])[:2]
    kernel = tcsym.define(HEAD.format(t=kind, s=text)).f
    for m, k, n in ((0, 5, 3), (5, 0, 3), (1, 1, 1), (7, 19, 4), (40, 33, 37)):
        sizes = {v: {"M": m, "K": k, "N": n}[v] for v in kernel.sizes}
        inputs = arguments(kernel, sizes, {}, "dense")
        got, want = kernel(**inputs, sizes=sizes), kernel.reference(**inputs, sizes=sizes)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
