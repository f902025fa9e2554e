# SPDX-License-Identifier: Apache-2.0
"""Quick proofs are sound: what is proved holds at every size tried."""

from __future__ import annotations

import itertools
import random

from tcsym.frontend.infer_facts import Facts
from tcsym.frontend.infer_forms import Interval, bound, extreme, is_nonnegative, split
from tcsym.index.expr import (
    ONE,
    TRUE,
    ZERO,
    Index,
    any_of,
    floordiv,
    ge,
    index,
    maximum,
    minimum,
    mod,
    var,
)
from tcsym.index.values import evaluate

N, M, K, J, T = map(var, ("N", "M", "K", "i", "t"))
SIZES = [dict(zip("NMK", row)) for row in itertools.product((0, 1, 2, 3, 7, 10), repeat=3)]


def random_index(rng: random.Random, depth: int = 2) -> Index:
    kind = rng.randrange(8 if depth else 2)
    if kind < 2:
        return rng.choice((N, M, K)) * rng.randrange(-2, 4) + rng.randrange(-2, 3)
    a, b = (random_index(rng, depth - 1) for _ in range(2))
    size = rng.choice((N, M))
    made = (
        a + b,
        a - b,
        floordiv(a, rng.randrange(1, 4)),
        rng.choice((minimum, maximum))(a, b),
        a + size * floordiv(b, size),
        mod(a, size) + floordiv(b, size),
    )
    return made[kind - 2]


def test_proofs_are_sound() -> None:
    rng = random.Random(1)
    n_proved = 0
    for _ in range(1500):
        e = random_index(rng)
        positive = frozenset(rng.choice(("", "N", "NM")))
        if is_nonnegative(e, positive):
            n_proved += 1
            for s in SIZES:
                if all(s[p] for p in positive):
                    assert evaluate(e, s) >= 0, (str(e), s)
    assert n_proved > 100


def test_bounds_hold_over_boxes() -> None:
    rng = random.Random(2)
    scope = (Interval("i", ZERO, M * N), Interval("t", ONE, K))
    for _ in range(300):
        e = random_index(rng, 1) + floordiv(J * rng.randrange(-1, 2), N) + T * rng.randrange(-2, 3)
        e = e + mod(J, M) * rng.randrange(-1, 2)
        for greatest in (True, False):
            value = bound(e, scope, greatest, frozenset("MN"))
            if value is None:
                continue
            for s in ({"N": 2, "M": 3, "K": 3}, {"N": 1, "M": 1, "K": 4}):
                limit = evaluate(value, s)
                for i, t in itertools.product(range(s["M"] * s["N"]), range(1, s["K"])):
                    here = evaluate(e, {**s, "i": i, "t": t})
                    assert here <= limit if greatest else here >= limit


def test_split_and_extreme() -> None:
    assert split(M * J + N - 1, "i") == (M, N - 1)
    assert split(floordiv(J, 2), "i") is None
    box = (Interval("i", ZERO, N), Interval("t", ZERO, M))
    assert extreme(M * J + T, box, greatest=True) == M * N - 1
    assert extreme(J * (N - M), box, greatest=True) is None
    triangle = (Interval("i", ZERO, T + 1), Interval("t", ZERO, N))
    assert extreme(J, triangle, greatest=True) == N - 1
    assert extreme(T - J, triangle, greatest=False) == ZERO


def test_decide() -> None:
    facts = Facts(("N", "M", "K"))
    assert facts.decide(any_of((ge(N, M), ge(M, N)))) == TRUE
    assert facts.decide(ge(N, M)) == ge(N, M)
    assert facts.smallest([floordiv(N + 1, 2), floordiv(N, 2)]) == floordiv(N, 2)
    assert facts.smallest([K, M]) == minimum(K, M)
    facts.assume_equal(K, M + 1)
    assert facts.smallest([K, M]) == M
    assert facts.is_nonnegative(K - M - 1)
    assert facts.greatest([index(0), N]) == N
