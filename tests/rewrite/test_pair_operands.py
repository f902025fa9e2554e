# SPDX-License-Identifier: Apache-2.0
"""Sums of products of several operands: in which pairs, and that results stay the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tcsym
from tcsym.frontend.program import If, Item, Program, Statement, reads
from tcsym.index.text import condition_text
from tcsym.ir.loops import Branch, Loop
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.rewrite.bind import bind_program
from tcsym.rewrite.pair_operands import pair_operands
from tests.differential.inputs import arguments

# By name: the text, and for each version its pairs: what a step reads, loops that are summed last.
PAIRED = {
    "a quadratic form of each row": (
        "def f(float(N,D) X, float(D,D) P) -> (Y) { Y(n) +=! X(n,i) * P(i,j) * X(n,j) }",
        [["X P | n j i", "X Y.pair0 | n j"]],
    ),
    "of differences": (
        "def f(float(N,D) X, float(D,D) P, float(D) m) -> (Y) {"
        " Y(n) +=! (X(n,i) - m(i)) * P(i,j) * (X(n,j) - m(j)) }",
        [["X m P | n j i", "X m Y.pair0 | n j"]],
    ),
    "of two rows": (
        "def f(float(N,I) X, float(O,I,J) W, float(N,J) Z) -> (Y) {"
        " Y(n,o) +=! X(n,i) * W(o,i,j) * Z(n,j) / 2.0 }",
        [["X W | n o j i", "Z Y.pair0 | n o j"]],
    ),
    "a chain": (
        "def f(float(I,K) A, float(K,L) B, float(L,J) C) -> (Y) {"
        " Y(i,j) +=! A(i,k) * B(k,l) * C(l,j) }",
        [["A B | i l k", "C Y.pair0 | i j l"], ["B C | k j l", "A Y.pair1 | i j k"]],
    ),
    "a chain of two sizes": (
        "def f(float(N,D) A, float(D,D) S) -> (Y) { Y(i,j) +=! A(i,k) * S(k,l) * A(j,l) }",
        [["A S | i l k", "A Y.pair0 | i j l"]],
    ),
    "a factor that is not summed": (
        "def f(float(I,K) A, float(K,J) B, float(I,J) M) -> (Y) {"
        " Y(i,j) +=! A(i,k) * B(k,j) / M(i,j) }",
        [["A B | i j k", "Y.pair0 M | i j"]],
    ),
    "added": (
        "def f(float(I,K) A, float(K,J) B, float(I,J) M) -> (Y) {"
        " Y(i,j) = M(i,j)\n Y(i,j) += A(i,k) * M(i,j) * B(k,j) }",
        [["A B | i j k", "M Y.pair0 | i j"]],
    ),
    "what one operand sums": (
        "def f(float(I,K) A, float(K,J) B) -> (Y) { Y(i) +=! A(i,k) * B(k,j) }",
        [["B | k j", "A Y.pair0 | i k"]],
    ),
    "what moves no operand": (
        "def f(float(I,K) A, float(K,J) B, float(I,J) M, float(P) Z) -> (Y) {"
        " Y(i,j) +=! A(i,k) * B(k,j) / M(i,j) where p in 0:P }",
        [["A B | i j k", "Y.pair0 M | i j p"]],
    ),
}  # fmt: skip
KEPT = {
    "two operands": (
        "def f(float(I,K) A, float(K,J) B, float(K) s) -> (Y) {"
        " Y(i,j) +=! A(i,k) * s(k) * B(k,j) / 3.0 }"
    ),
    "read once": (
        "def f(float(B,I) x, float(B,I,J) A, float(B,J) y) -> (Y) {"
        " Y(b) +=! x(b,i) * A(b,i,j) * y(b,j) }"
    ),
    "products that would only be stored": (
        "def f(float(I,R) A, float(J,R) B, float(K,R) C) -> (Y) {"
        " Y(i,j,k) +=! A(i,r) * B(j,r) * C(k,r) }"
    ),
    "gathered": (
        "def f(float(N,D) X, float(D,D) P, int32(N) at) -> (Y) {"
        " Y(n) +=! X(at(n),i) * P(i,j) * X(at(n),j) }"
    ),
    "a window": (
        "def f(float(N) X, float(K) A, float(L) B) -> (Y) { Y(n) +=! X(n+k+l) * A(k) * B(l) }"
    ),
    "integers": "def f(int32(N,D) X, int32(D,D) P) -> (Y) { Y(n) +=! X(n,i) * P(i,j) * X(n,j) }",
    "a maximum": "def f(float(N,D) X, float(D,D) P) -> (Y) { Y(n) max=! X(n,i) * P(i,j) * X(n,j) }",
}


def _steps(items: tuple[Item, ...]) -> list[str]:
    def text(s: Statement) -> str:
        ranges = " ".join(r.variable for r in s.domain)
        return f"{' '.join(dict.fromkeys(r.tensor for r in reads(s.value)))} | {ranges}"

    return [text(s) for s in items if isinstance(s, Statement)]


def _versions(items: tuple[Item, ...]) -> Iterator[list[str]]:
    """The arms of all branches but what is left of a sum without terms."""
    branches = [x for x in items if isinstance(x, If)]
    for b in branches:
        yield from _versions(b.then)
        yield from _versions(b.orelse)
    if not branches and len(items) > 1:
        yield _steps(items)


def _paired(text: str) -> tuple[Program, Program]:
    program = tcsym.define(text).f.program
    return program, pair_operands(program)


@pytest.mark.parametrize("name", PAIRED)
def test_operands_are_paired(name: str) -> None:
    text, versions = PAIRED[name]
    assert list(_versions(_paired(text)[1].body)) == versions


@pytest.mark.parametrize("name", KEPT)
def test_others_stay(name: str) -> None:
    before, after = _paired(KEPT[name])
    assert after is before


def test_sizes_choose_between_two_orders() -> None:
    program = _paired(PAIRED["a chain"][0])[1]
    (around,) = program.body
    assert isinstance(around, If)
    (choice,) = around.then
    assert isinstance(choice, If)
    assert condition_text(around.condition) == "K >= 1 && L >= 1"
    assert condition_text(choice.condition) == "I*J*K + J*K*L >= I*J*L + I*K*L"


def test_arms_of_a_condition_on_sizes_share_no_loop() -> None:
    """A branch at each element, for sums without terms, would keep the nest from its schedules."""
    program = _paired(PAIRED["a factor that is not summed"][0])[0]
    scheduled = schedule_program(program, Options(), {})
    tops = [x for x, around in walk(scheduled.kernel.body) if isinstance(x, Loop) and not around]
    assert not any(isinstance(y, Branch) for x in tops for y, _ in walk(x))


def test_what_lies_between_has_the_order_of_its_reader() -> None:
    text = """def f(float(B,N,D) X, float(D,E) A, float(B,E) w) -> (Y) {
  Y(b,n) +=! X(b,n,i) * A(i,j) * w(b,j)
}"""
    between = _paired(text)[1].tensor("Y.pair0")
    assert [str(n) for n in between.shape] == ["B", "D"]


@pytest.mark.parametrize("k", [1, 100])
def test_known_sizes_have_one_order(k: int) -> None:
    program = tcsym.define(PAIRED["a chain"][0]).f.program
    sizes = {"I": 10, "J": 10, "K": k, "L": 101 - k}
    steps = _steps(pair_operands(bind_program(program, sizes)).body)
    assert steps[0].startswith("A B" if k == 100 else "B C")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", [*PAIRED, *KEPT])
def test_results_are_those_of_the_reference(name: str) -> None:
    text = PAIRED[name][0] if name in PAIRED else KEPT[name]
    kernel = tcsym.define(text).f
    rng = np.random.default_rng(3)
    for turn in range(12):
        some = (1, 2, 3, 7, 18, 33) if turn % 2 else (0, 1, 5, 16)
        sizes = {v: int(rng.choice(some)) for v in kernel.sizes}
        if "n+k+l" in text:
            sizes["N"] += sizes["K"] + sizes["L"]
        inputs = arguments(kernel, sizes, {"at": "index N"} if "at(" in text else {}, "dense")
        got = kernel(**inputs, sizes=sizes)
        want = kernel.reference(**inputs, sizes=sizes)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_no_terms_are_zero_beside_infinities() -> None:
    kernel = tcsym.define(PAIRED["a chain"][0]).f
    sizes = {"I": 3, "K": 0, "L": 4, "J": 5}
    inputs = arguments(kernel, {v: sizes[v] for v in kernel.sizes}, {}, "dense")
    inputs = {n: np.full_like(x, np.inf) if n == "C" else x for n, x in inputs.items()}
    assert (np.asarray(kernel(**inputs)) == kernel.reference(**inputs)).all()


def test_sums_of_one_column_with_rows_apart_compile() -> None:
    """The column's parts have one element a part: vectors of columns still address them."""
    f = tcsym.define(
        "def f(float(K,1) D) -> (T) { T(i) +=! D(i,j) * D(l,j) }", strategy="symbolic"
    ).f
    for k in (1, 17, 700):
        rows = np.random.default_rng(0).standard_normal((k, 3)).astype(np.float32)[:, :1]
        np.testing.assert_allclose(f(rows), f.reference(rows), rtol=1e-4, atol=1e-4)
