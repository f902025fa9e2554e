# SPDX-License-Identifier: Apache-2.0
"""Chains of products in other orders: which programs have some, for which sizes, same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tcsym
from tcsym.frontend.program import Item, Program, Statement, reads
from tcsym.index.expr import FALSE, TRUE
from tcsym.index.values import holds
from tcsym.rewrite.reorder_chains import (
    best_chains,
    other_orders_hold,
    other_orders_pay,
    reorder_chains,
)
from tcsym.runtime.background import settle
from tcsym.sizes.context import Interval, decided
from tests.differential.inputs import arguments

CHAIN = """def f(float(I,K) A, float(K,L) B, float(L,J) C) -> (Y) {
  T(i,l) +=! A(i,k) * B(k,l)
  Y(i,j) +=! T(i,l) * C(l,j)
}"""
ONE_ROW_AT_A_TIME = """def f(float(D0,N0) V, float(D1,N1) W, float(M,N0,N1) X) -> (Y) {
  T(m,a,y) +=! X(m,a,r) * W(y,r)
  Y(m,x,y) +=! T(m,r,y) * V(x,r)
}"""
# By name: the text, and the steps of each other order: what they read, and their loops.
CHAINS = {
    "a chain": (CHAIN, [["B C | k j l", "A Y.pair0 | i j k"]]),
    "added": (
        "def f(float(I,J) Z, float(I,K) A, float(K,L) B, float(L,J) C) -> (Y) { Y(i,j) = Z(i,j)\n"
        " T(i,j) +=! A(i,k) * B(k,j)\n Y(i,j) += T(i,k) * C(k,j) / 2.0 }",
        [["Z | i j", "B C | k_0 j k", "A Y.pair0 | i j k_0"]],
    ),
    "one dimension after another": (
        ONE_ROW_AT_A_TIME,
        [["X V | m x r_0 r", "W Y.pair0 | m x y r_0"]],
    ),
    "something in between": (
        "def f(float(I,K) A, float(K,L) B, float(L,J) C) -> (Y, Z) { T(i,l) +=! A(i,k) * B(k,l)\n"
        " Z(i) +=! A(i,k)\n Y(i,j) +=! T(i,l) * C(l,j) }",
        [["A | i k", "B C | k j l", "A Y.pair0 | i j k"]],
    ),
    "two results multiplied": (
        "def f(float(I,K) A, float(K,L) B, float(L,M) C, float(M,J) D) -> (Y) {"
        " S(i,l) +=! A(i,k) * B(k,l)\n T(l,j) +=! C(l,m) * D(m,j)\n"
        " Y(i,j) +=! S(i,l) * T(l,j) }",
        [
            ["B C | k m l", "A Y.pair0 | i m k", "D Y.pair1 | i j m"],
            ["B C | k m l", "D Y.pair0 | k j m", "A Y.pair1 | i j k"],
            ["C D | l j m", "B Y.pair0 | k j l", "A Y.pair1 | i j k"],
            ["A B | i l k", "C Y.pair0 | i m l", "D Y.pair1 | i j m"],
        ],
    ),
}  # fmt: skip
OF_T = "T(i,l) +=! A(i,k) * B(k,l)\n"
AS_WRITTEN = {
    "a result": CHAIN.replace("-> (Y)", "-> (Y, T)"),
    "read twice": CHAIN.replace("* C(l,j)", "* C(l,j)\n  Y(i,j) = Y(i,j) + T(i,0)"),
    "written twice": CHAIN.replace("  Y(", "  T(i,l) += A(i,k) * B(k,l)\n  Y("),
    "not linear": CHAIN.replace("T(i,l) * C", "fmax(T(i,l), 0.0) * C"),
    "divided by": CHAIN.replace("T(i,l) * C(l,j)", "C(l,j) / T(i,l)"),
    "a maximum": CHAIN.replace("Y(i,j) +=!", "Y(i,j) max=!"),
    "not started from 0": CHAIN.replace("  T(i,l) +=!", "  T(i,l) = A(i,0) * B(0,l)\n  T(i,l) +="),
    "narrower in between": CHAIN.replace("float(", "half("),
    "integers": CHAIN.replace("float(", "int32("),
    "a diagonal": "def f(float(I,K) A, float(K,I) B, float(I,J) C) -> (Y) {"
    " T(i,l) +=! A(i,k) * B(k,l)\n Y(i,j) +=! T(i,i) * C(i,j) }",
    "a window": "def f(float(I,K) A, float(K,L) B, float(V,J) C) -> (Y) {"
    + OF_T
    + " Y(i,j) +=! T(i,l+v) * C(v,j) where i in 0:I, l in 0:(L-V+1) }",
    "a part": CHAIN.replace("C(l,j)", "C(l,j) where l in 0:2").replace(
        "float(K,L) B", "float(K,L) B, float(2) unused"
    ),
    "an operand that is overwritten": "def f(float(I,K) A, float(K,L) B, float(L,J) C) -> (Y, Z) {"
    " Z(k,l) = B(k,l)\n T(i,l) +=! A(i,k) * Z(k,l)\n Z(k,l) = 0.0\n Y(i,j) +=! T(i,l) * C(l,j) }",
    "in a loop": "def f(float(I,K) A, float(K,L) B, float(L,J) C) -> (Y) { Y(i,j) = 0.0 where"
    " i in 0:I, j in 0:J\n for t in 2 {" + OF_T + " Y(i,j) += T(i,l) * C(l,j) } }",
    "outer products": "def f(float(I) A, float(J) B, float(J,K) C) -> (Y) {"
    " T(i,j) = A(i) * B(j)\n Y(i,k) +=! T(i,j) * C(j,k) }",
}  # fmt: skip


def _program(text: str) -> Program:
    program: Program = tcsym.define(text).f.program
    return program


def _steps(items: tuple[Item, ...]) -> list[str]:
    def text(s: Statement) -> str:
        ranges = " ".join(r.variable for r in s.domain)
        return f"{' '.join(dict.fromkeys(r.tensor for r in reads(s.value)))} | {ranges}"

    return [text(s) for s in items if isinstance(s, Statement)]


@pytest.mark.parametrize("name", CHAINS)
def test_other_orders(name: str) -> None:
    text, orders = CHAINS[name]
    program = _program(text)
    n = len(other_orders_pay(program))
    assert [_steps(reorder_chains(program, k).body) for k in range(1, n + 1)] == orders


@pytest.mark.parametrize("name", AS_WRITTEN)
def test_others_stay_as_written(name: str) -> None:
    program = _program(AS_WRITTEN[name])
    assert other_orders_pay(program) == ()
    assert reorder_chains(program, 1) is program


def test_a_temporary_of_another_order_lies_as_its_largest_operand() -> None:
    between = reorder_chains(_program(ONE_ROW_AT_A_TIME), 1).tensor("Y.pair0")
    assert [str(n) for n in between.shape] == ["M", "D0", "N1"]


@given(st.lists(st.sampled_from((0, 1, 2, 7, 40, 300)), min_size=4, max_size=4))
def test_another_order_serves_where_it_saves_a_quarter_and_no_memory_is_lost(
    values: list[int],
) -> None:
    program = _program(CHAIN)
    sizes = dict(zip("IKLJ", values))
    i, k, n, j = values
    (pays,) = other_orders_pay(program)
    written, other = i * k * n + i * n * j, k * n * j + i * k * j
    expected = k and n and 4 * other < 3 * written and k * j <= i * n
    assert holds(pays, sizes) == bool(expected)
    changed = best_chains(program, sizes) is not program
    assert changed == bool(expected and other)


def test_what_is_declared_decides() -> None:
    (pays,) = other_orders_pay(_program(CHAIN))
    narrow = {"L": Interval(1, 8), "K": Interval(64, None), "J": Interval(64, None)}
    wide = {"L": Interval(512, None), "K": Interval(1, 8), "J": Interval(1, 8)}
    many = {"I": Interval(64, None)}
    assert decided(pays, narrow | many) != TRUE
    assert decided(pays, wide | many) != FALSE
    low_rank = {x: Interval(n, n) for x, n in {"I": 64, "K": 512, "L": 8, "J": 512}.items()}
    assert decided(pays, low_rank) == FALSE


def _check(kernel: Any, sizes: dict[str, int]) -> None:
    inputs = arguments(kernel, {v: sizes[v] for v in kernel.sizes}, {}, "dense")
    got, want = kernel(**inputs), kernel.reference(**inputs)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want))):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("name", "chains"),
    [*((x, 2 * (k % 2)) for k, x in enumerate(CHAINS)), *((x, 0) for x in AS_WRITTEN)],
)
def test_results_are_those_of_the_reference(name: str, chains: int) -> None:
    text = CHAINS[name][0] if name in CHAINS else AS_WRITTEN[name]
    options = tcsym.Options(chains=chains)
    kernel = tcsym.define(text, options=options, strategy="symbolic").f
    rng = np.random.default_rng(3)
    for turn in range(6):
        some = (2, 3, 7, 18, 33) if turn % 2 else (0, 1, 5, 70)
        sizes = {v: int(rng.choice(some)) for v in kernel.sizes}
        if name in ("a window", "a part", "read twice", "not started from 0"):
            sizes = {v: n + 2 for v, n in sizes.items()} | {"V": 2}
        _check(kernel, sizes)


ORDERS = {"written": (64, 64, 2, 64), "other": (64, 2, 64, 2), "none": (0, 2, 64, 2)}


@pytest.mark.parametrize("strategy", ["symbolic", "auto", "specialize", "bucket", "pad"])
def test_each_order_serves_its_sizes(strategy: str) -> None:
    declared = {x: tcsym.Dim(0, 64) for x in "IKLJ"} if strategy in ("bucket", "pad") else {}
    kernel = tcsym.define(CHAIN, strategy=strategy, sizes=declared).f
    for _ in range(2):
        for values in ORDERS.values():
            _check(kernel, dict(zip("IKLJ", values)))
        settle()


def test_versions_tell_their_order_in_words() -> None:
    kernel = tcsym.define(CHAIN, strategy="symbolic").f
    for values in ORDERS.values():
        _check(kernel, dict(zip("IKLJ", values)))
    settle()
    written, other = kernel.explain("variants", I=64, K=64).split("\nsymbolic")
    assert written.startswith("symbolic, products in the written order, options analytic")
    assert other.startswith(", products in order 2, which has the fewest points")
    assert kernel.stats.compilations + kernel.stats.cache_hits == 2
    assert list(kernel.stats.dispatch.values()) == [2, 1]
    assert "chains=2" in str(kernel.options_for(I=64, K=2, L=64, J=2))


def test_the_second_order_is_compiled_when_a_call_needs_it() -> None:
    kernel = tcsym.define(CHAIN, strategy="symbolic").f
    _check(kernel, dict(zip("IKLJ", ORDERS["written"])))
    assert kernel.stats.compilations + kernel.stats.cache_hits == 1


def test_given_options_name_an_order() -> None:
    written = tcsym.define(CHAIN, options=tcsym.Options(chains=1), strategy="symbolic").f
    assert "order" not in written.explain("variants")
    assert "Y.pair0" not in written.explain("scop", **dict(zip("IKLJ", ORDERS["other"])))
    other = tcsym.define(CHAIN, options=tcsym.Options(chains=2), strategy="symbolic").f
    assert "Y.pair0" in other.explain("scop", **dict(zip("IKLJ", ORDERS["written"])))
    assert "Y.pair0" not in other.explain("scop", **dict(zip("IKLJ", (5, 0, 5, 5))))


def test_no_terms_are_as_written_beside_infinities() -> None:
    assert other_orders_hold(_program(CHAIN)) != TRUE
    kernel = tcsym.define(CHAIN, options=tcsym.Options(chains=2), strategy="symbolic").f
    inputs = arguments(kernel, {"I": 3, "K": 0, "L": 4, "J": 5}, {}, "dense")
    inputs = {n: np.full_like(x, np.inf) if n == "C" else x for n, x in inputs.items()}
    np.testing.assert_array_equal(kernel(**inputs), kernel.reference(**inputs))


FACTORS = st.lists(st.sampled_from((1, 2, 3, 5, 9, 24)), min_size=7, max_size=7)


@settings(max_examples=15, deadline=None)
@given(FACTORS)
def test_three_factors_in_any_order(values: list[int]) -> None:
    kernel = tcsym.library.kronecker3
    _check(kernel, dict(zip(("M", "D0", "N0", "D1", "N1", "D2", "N2"), values)))
