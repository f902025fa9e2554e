# SPDX-License-Identifier: Apache-2.0
"""What divides sums, by conditions."""

from __future__ import annotations

import pytest

from tcsym.index.expr import Index, all_of, any_of, eq, floordiv, ge, mod, var
from tcsym.index.values import evaluate
from tcsym.sizes.multiples import divisor, multiples_in

N, M = var("N"), var("M")


def test_conditions_tell_of_what_variables_are_multiples() -> None:
    both = all_of([eq(mod(N, 4), 0), ge(N, 8), eq(mod(M, 6), 0)])
    assert dict(multiples_in(both)) == {"N": 4, "M": 6}
    for nothing in (
        any_of([eq(mod(N, 4), 0), eq(mod(N, 3), 0)]),
        eq(mod(N, 4), 1),
        eq(mod(N + M, 4), 0),
        eq(mod(N, 4), mod(M, 4)),
        eq(N, floordiv(N, 4)),
    ):
        assert dict(multiples_in(nothing)) == {}


@pytest.mark.parametrize(
    ("e", "greatest"),
    [
        (N * 3, 12),
        (N + 2, 2),
        (N * M + 8, 4),
        (floordiv(N, 4), 1),
        (floordiv(N, 4) * 5 + 15, 5),
        (M, 1),
        (Index((), 0), 0),
    ],
)
def test_what_divides_a_sum(e: Index, greatest: int) -> None:
    assert divisor(e, {"N": 4}) == greatest
    for n in (0, 4, 12, -8):
        assert not greatest or evaluate(e, {"N": n, "M": 7}) % greatest == 0
