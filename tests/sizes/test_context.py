# SPDX-License-Identifier: Apache-2.0
"""Interval arithmetic on index expressions, against all values in range."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

import tcsym as tc
from tcsym.index.expr import (
    FALSE,
    TRUE,
    Condition,
    Index,
    all_of,
    any_of,
    choose,
    eq,
    floordiv,
    ge,
    maximum,
    minimum,
    mod,
    negate,
    var,
)
from tcsym.index.text import condition_text
from tcsym.index.values import evaluate, holds
from tcsym.sizes.context import (
    Interval,
    Known,
    context_condition,
    decided,
    interval,
    narrowed,
    ranges_of,
    simplified,
    simplified_condition,
)

N, M = var("N"), var("M")
BOX = (Known("M", 2, 5), Known("N", 1, 4))


def random_index(rng: random.Random, depth: int) -> Index:
    if depth == 0:
        return rng.choice([N, M, N - M, N * M, Index((), rng.randrange(-3, 9))])
    a, b = random_index(rng, depth - 1), random_index(rng, depth - 1)
    match rng.randrange(7):
        case 0:
            return a + b
        case 1:
            return a * rng.randrange(-2, 3)
        case 2:
            return floordiv(a, rng.choice([2, 3, 8, N, M - 2]))
        case 3:
            return mod(a, rng.choice([2, 5, M]))
        case 4:
            return minimum(a, b)
        case 5:
            return maximum(a, b)
        case _:
            return choose(random_condition(rng, depth - 1), a, b)


def random_condition(rng: random.Random, depth: int) -> Condition:
    a = ge(random_index(rng, depth), random_index(rng, depth))
    b = eq(random_index(rng, depth), rng.randrange(4))
    return rng.choice([a, b, negate(a), all_of((a, b)), any_of((a, negate(b)))])


@pytest.mark.parametrize("seed", range(400))
def test_nothing_is_claimed_that_is_not_so(seed: int) -> None:
    rng = random.Random(seed)
    e, c = random_index(rng, seed % 4), random_condition(rng, seed % 3)
    ranges = ranges_of(BOX if seed % 5 else (Known("M", 2, None), Known("N", 0, None)))
    found, simple = interval(e, ranges), simplified(e, ranges)
    settled, left = decided(c, ranges), simplified_condition(c, ranges)
    for m, n in product(range(2, 6), range(1, 5)):
        values = {"M": m, "N": n}
        value = evaluate(e, values)
        assert found.low is None or found.low <= value
        assert found.high is None or value <= found.high
        assert evaluate(simple, values) == value
        assert holds(settled, values) == holds(left, values) == holds(c, values)
        if holds(c, values):
            for name, x in narrowed(c, ranges).items():
                assert x.low is None or x.low <= values[name]
                assert x.high is None or values[name] <= x.high


def test_conditions_narrow_ranges() -> None:
    ranges = {"N": Interval(0), "M": Interval(0)}
    columns = all_of((ge(floordiv(N + 1, 2), 17), eq(M, 3), ge(40, N)))
    assert narrowed(columns, ranges) == {"N": Interval(33, 40), "M": Interval(3, 3)}
    assert narrowed(ge(N, M + 31), ranges)["N"] == Interval(31)
    assert narrowed(any_of((ge(N, 3), ge(M, 3))), ranges) == ranges


def test_what_is_known_is_used() -> None:
    ranges = ranges_of(BOX)
    assert decided(ge(M, 2), ranges) == TRUE and decided(ge(N, 5), ranges) == FALSE
    assert decided(eq(N + M, 2), ranges) == FALSE and decided(ge(N, 2), ranges) == ge(N, 2)
    assert simplified(minimum(N, 8), ranges) == N
    assert simplified(floordiv(N + 15, 16), ranges) == Index((), 1)
    assert simplified(maximum(N * M, 2), ranges) == N * M
    assert interval(N * M - N, ranges) == Interval(-2, 19)
    assert interval(floordiv(3 * M + N - 1, M), ranges) == Interval(3, 4)
    assert ranges_of((Known("M", 5, 18, 4),)) == {"M": Interval(8, 16)}
    assert condition_text(context_condition(BOX)) == "M >= 2 && 5 >= M && N >= 1 && 4 >= N"


def test_loops_of_one_iteration_need_not_write_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though threads' parts of them have a size that only the call knows."""
    monkeypatch.setenv("TCSYM_VERIFY", "1")
    text = """def f(int64(B,B) C) -> (int64(B-2,B) T) {
      T(i,l) +=! C(i + 2*k, l) where k in 0:2, i in 0:B-2 }"""
    f = tc.define(text, sizes={"B": tc.Dim(2, 3)}).f
    c = np.arange(9).reshape(3, 3)
    np.testing.assert_array_equal(f(c), c[:1] + c[2:])


MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def test_versions_that_cannot_be_chosen_are_dropped() -> None:
    few = tc.define(MM, sizes={"M": tc.Dim(1, 2)}).mm.explain("mapped")
    every = tc.define(MM).mm.explain("mapped")
    assert "where M >= 1 && 2 >= M" in few
    assert "pack" in every.lower() or "panel" in every.lower() or "contraction, columns" in every
    assert few.count("\n") < 0.8 * every.count("\n")


@pytest.mark.parametrize("bounds", [(0, 3), (1, 4), (4, 11), (5, 64), (64, 130)])
@pytest.mark.parametrize("strategy", ["symbolic", "bucket", "pad"])
def test_results_at_bounds(bounds: tuple[int, int], strategy: str) -> None:
    low, high = bounds
    kernel = tc.define(MM, sizes={n: tc.Dim(low, high) for n in "MKN"}, strategy=strategy).mm
    rng = np.random.default_rng(0)
    for m, k, n in [(low, low, low), (high, low, high), (low, high, low + 1), (high, high, high)]:
        a = rng.integers(-4, 5, (m, k)).astype(np.float32)
        b = rng.integers(-4, 5, (k, n)).astype(np.float32)
        for _ in range(3):
            np.testing.assert_array_equal(kernel(a, b), a @ b)
    beyond = np.ones((high + 1, low), np.float32), np.ones((low, low), np.float32)
    with pytest.raises(tc.SizeError, match=f"from {low} to {high}"):
        kernel(*beyond)


def test_quotients_where_a_size_is_nothing() -> None:
    """What stands under conditions that never hold has empty ranges, and is compiled."""
    kernel = tc.define("""def f(uint32(B,B) A, float(B,B) C, bool(M) D) -> (T) {
      T(i,j) = (B > 0 && B > 0 ? A(B-1,B-1) : 0) - C(j % B, i % B) where i in 0:M, j in 0:M
    }""", strategy="symbolic").f  # fmt: skip
    rng = np.random.default_rng(0)
    for b, m in [(0, 0), (3, 0), (3, 7)]:
        a = rng.integers(0, 9, (b, b)).astype(np.uint32)
        args = a, a.astype(np.float32), np.zeros(m, bool)
        np.testing.assert_array_equal(kernel(*args), kernel.reference(*args))
