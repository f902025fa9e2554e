# SPDX-License-Identifier: Apache-2.0
"""Which terms of sums one instruction adds several of, and what these owe."""

from __future__ import annotations

import pytest

from tcsym.frontend.program import Cast, Expr, Unary
from tcsym.ir.loops import Update
from tcsym.ir.packed import BFLOAT, BYTES, SHORT, SIGNED
from tcsym.mapping.dot_terms import DotTerm, Owed, dot_terms
from tcsym.types import DType
from tests.schedule.naive import con, op, rd, up, v

i, j, k = v("i j k")
ALL = frozenset((BFLOAT, SHORT, BYTES))
INT8, UINT8, INT16, INT32 = DType.INT8, DType.UINT8, DType.INT16, DType.INT32
X8, Y8, Z16 = (rd(n, i, k, dtype=t) for n, t in (("X", INT8), ("Y", UINT8), ("Z", INT16)))


def best(x: Update, have: frozenset[str] = ALL) -> DotTerm | None:
    return next(iter(dot_terms(x, "i", frozenset("k"), have)), None)


def wide(x: Expr) -> Expr:
    return Cast(x, INT32)


def minus(a: Expr, b: Expr) -> Expr:
    return op("sub", a, b, INT32)


@pytest.mark.parametrize(
    ("left", "right", "function"),
    [
        (wide(X8), wide(Y8), BYTES),
        (minus(wide(Y8), con(7, INT32)), wide(X8), BYTES),  # a zero point
        (minus(wide(Y8), con(300, INT32)), wide(X8), BYTES),
        (minus(wide(Y8), rd("z", i, dtype=INT32)), wide(X8), BYTES),
        (minus(wide(Y8), rd("z", k, dtype=INT32)), wide(X8), None),  # one for each term
        (minus(wide(Y8), wide(rd("z", k, dtype=Y8.dtype))), wide(X8), SHORT),
        (op("add", con(5, INT32), wide(Z16), INT32), wide(X8), SHORT),
        (minus(con(5, INT32), wide(Y8)), wide(X8), SHORT),
        (op("mul", wide(X8), wide(Y8), INT32), wide(X8), SHORT),
        (op("mul", wide(Y8), wide(Y8), INT32), wide(X8), None),  # up to 65025
        (minus(wide(Z16), con(1, INT32)), wide(X8), SHORT),  # down to -32769: a zero point
        (wide(Cast(rd("W", i, k, dtype=INT32), INT8)), wide(X8), BYTES),  # wraps to eight bits
        (rd("W", i, k, dtype=INT32), wide(X8), None),
        (wide(rd("W", i, k, dtype=DType.UINT16)), wide(X8), None),
        (con(3, INT32), wide(X8), None),
    ],
)
def test_integers_are_packed_by_the_values_they_can_have(
    left: Expr, right: Expr, function: str | None
) -> None:
    update = up("C", (i, j), "add", op("mul", left, right, INT32))
    found = best(update)
    assert (found and found.function) == function


def test_what_two_signed_bytes_owe_is_paid_by_the_side_of_the_columns() -> None:
    a, b = rd("A", i, k, dtype=INT8), rd("B", k, j, dtype=INT8)
    for left, right in ((a, b), (b, a)):
        term = op("mul", wide(left), wide(right), INT32)
        found = best(up("C", (i, j), "add", term))
        assert found is not None and found.owed == (Owed(con(-128, INT32), b),)


def test_what_zero_points_owe() -> None:
    """(x + 128 - (128 + p)) * (y - q): sums of both sides, and the product of both points."""
    a, b = rd("A", i, k, dtype=INT8), rd("B", k, j, dtype=INT8)
    p, q = rd("p", i, dtype=INT32), rd("q", j, dtype=INT32)
    term = op("mul", minus(wide(a), p), minus(wide(b), q), INT32)
    found = best(up("C", (i, j), "add", term))
    assert found is not None
    higher = op("add", p, con(128, INT32), INT32)
    columns, rows, points = found.owed
    assert columns == Owed(Unary("neg", higher, INT32), b)
    assert rows == Owed(Unary("neg", q, INT32), found.left)
    assert points == Owed(op("mul", higher, q, INT32), None)


@pytest.mark.parametrize(
    ("left", "right", "both", "signed"),
    [(INT8, INT8, (SIGNED, 0), 0), (UINT8, INT8, (BYTES, 0), 1), (UINT8, UINT8, (BYTES, 1), 3)],
)
def test_instructions_of_other_signs(
    left: DType, right: DType, both: tuple[str, int], signed: int
) -> None:
    """The one that owes least comes first; with one for signed bytes alone, others are shifted."""
    term = op("mul", wide(rd("A", i, k, dtype=left)), wide(rd("B", k, j, dtype=right)), INT32)
    update = up("C", (i, j), "add", term)
    found = best(update, ALL | {SIGNED})
    assert found is not None and (found.function, len(found.owed)) == both
    only = best(update, frozenset((SIGNED,)))
    assert only is not None and (only.function, len(only.owed)) == (SIGNED, signed)
