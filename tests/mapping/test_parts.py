# SPDX-License-Identifier: Apache-2.0
"""Contractions with their sums in parts: right at all sizes, and chosen where threads have work."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.ir.launched import chosen
from tcsym.ir.loops import THREADS
from tests.mapping.proposals import proposed
from tests.mapping.test_chosen import mapped

WORDS = ("split", "order", "merge", "combine", "stage", "at", "once", "part", "row", "parts")
PRODUCT = "C(m,n) +=! A(m,k) * B(k,n)"
PROGRAMS = {
    "product": ("float(K,M) A, float(K,N) B", "C(m,n) +=! A(k,m) * B(k,n)", "km,kn->mn"),
    "turned": ("float(M,K) A, float(N,K) B", "C(n,m) +=! A(m,k) * B(n,k)", "mk,nk->nm"),
    "vector": ("float(K,N) A, float(K) B", "C(n) +=! A(k,n) * B(k)", "kn,k->n"),
    "batch": ("float(M,K,N) A, float(M,K) B", "C(m,n) +=! A(m,k,n) * B(m,k)", "mkn,mk->mn"),
    "sums": ("float(K,L,M) A, float(L,N,K) B", "C(m,n) +=! A(k,l,m) * B(l,n,k)", "klm,lnk->mn"),
    "inner": ("float(K,3,N) A, float(3,K) B", "C(n) +=! B(l,k) * A(k,l,n)", "kln,lk->n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_proposal(name: str) -> None:
    head, body, subscripts = PROGRAMS[name]
    source = f"def f({head}) -> (C) {{ {body} }}"
    plans = [x for x in proposed(source, "cpu:avx2") if ".part at" in x]
    assert plans
    numbers = np.random.default_rng(0)
    for plan in plans:
        f = tcsym.define(source, target="cpu:avx2", plan=plan).f
        for k, m, n in [(0, 3, 5), (1, 1, 1), (511, 7, 17), (513, 2, 40), (3000, 13, 9)]:
            shapes = {"K": k, "M": m, "N": n, "L": 3, "3": 3}
            given = [
                numbers.uniform(-1, 1, [shapes[s.upper()] for s in part]).astype(np.float32)
                for part in subscripts.partition("->")[0].split(",")
            ]
            wanted = np.einsum(subscripts, *given, dtype=np.float64)
            np.testing.assert_allclose(f(*given), wanted, 1e-4, 1e-3)


PARTS = """n:
  if cheapest: split n tile reg:8 lane:8 end=half; order n.tile
  else: split k part row:512; combine k.part at n
    split n.parts tile reg:8 lane:8 end=half; order k.part n.parts.tile
    split n tile lane:8; order n.tile"""


def test_threads_choose() -> None:
    """Where plans differ in what threads share, the number of these is looked at."""
    head, body, _ = PROGRAMS["vector"]
    program = analyse(f"def f({head}) -> (C) {{ {body} }}")["f"]
    kernel = mapped(program, "cpu:avx2", tcsym.Options(plan=PARTS))
    (choice,) = kernel.choices
    for sizes, threads, taken in (
        ({"K": 100_000, "N": 16}, 1, 0),
        ({"K": 100_000, "N": 16}, 4, 1),
        ({"K": 100, "N": 16}, 4, 0),  # no work for a second one
    ):
        assert chosen(kernel, {**sizes, THREADS: threads}) == {choice.variable: taken}


@pytest.mark.parametrize("plan", ["", "row", "part"])
def test_sums_of_lengths_that_are_read(plan: str) -> None:
    """Nothing says in front of the call how many parts these have."""
    source = """def f(float(M,K) A, float(N) B, int64(M) P) -> (C) {
      C(m,n) +=! fabs(A(m,k) + B(n)) where k in 0:P(m) }"""
    given = f"n: split k part row:4; combine k.{plan} at n" if plan else ""
    f = tcsym.define(source, target="cpu:avx2", plan=given).f
    numbers = np.random.default_rng(0)
    a, b = (numbers.uniform(-1, 1, s).astype("f4") for s in ((5, 700), (17,)))
    lengths = np.array([0, 700, 3, 513, 1])
    if plan == "part":
        with pytest.raises(tcsym.errors.OptionError, match="more than sizes"):
            f(a, b, lengths)
        return
    wanted = [np.abs(x[:n, None] + b).sum(0) for x, n in zip(a, lengths, strict=True)]
    np.testing.assert_allclose(f(a, b, lengths), wanted, 1e-4, 1e-4)


def test_terms_of_what_is_made_before() -> None:
    """Parts are in front of all, also of what terms read."""
    source = """def f(float(K,N) A, float(N) B) -> (float(N) D, C) {
      D(n) = 2 * B(n)  C(n) +=! max(A(k,n), D(n)) }"""
    f = tcsym.define(source, target="cpu:avx2", plan="split k part row:4; combine k.part at n").f
    a, b = (np.random.default_rng(0).uniform(-1, 1, s).astype("f4") for s in ((9, 5), (5,)))
    with pytest.raises(tcsym.errors.OptionError, match="need what was made before"):
        f(a, b)


@pytest.mark.parametrize(
    "word", ["split", "order", "merge", "combine", "stage", "at", "once", "part", "row", "parts"]
)
def test_loops_may_be_called_as_words_of_plans(word: str) -> None:
    """Indices have any names: those of parts of a sum are no words of a text that is changed."""
    for of_index in "mnk":
        source = f"def f(float(M,K) A, float(K,N) B) -> (C) {{ {PRODUCT} }}"
        source = re.sub(rf"\b{of_index}\b", word, source)
        plans = [x for x in proposed(source, "cpu:avx2") if ".part at" in x]
        assert plans
        f = tcsym.define(source, target="cpu:avx2", plan=plans[0]).f
        a, b = np.ones((3, 600), "f4"), np.ones((600, 5), "f4")
        np.testing.assert_array_equal(f(a, b), a @ b)
