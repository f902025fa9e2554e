# SPDX-License-Identifier: Apache-2.0
"""Sums of products of short numbers run two or four steps at a time where the target can."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.frontend.program import Call, Cast, Expr, Unary
from tcsym.index.values import holds
from tcsym.ir.loops import Kernel, Store, Update
from tcsym.ir.packed import BFLOAT, BYTES, PACK, SHORT, packed_run
from tcsym.ir.traverse import subvalues, walk
from tcsym.ir.verify import verify
from tcsym.mapping.dot_terms import Owed, dot_term
from tcsym.options import Options
from tcsym.schedule.analysis.band import roles_at
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.version.contraction_versions import panels_pay
from tcsym.types import DType
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, seq, st, up, v
from tests.schedule.targets import AVX2, AVX512, DOTS, SCALAR

i, j, k, h = v("i j k h")
ALL = frozenset((BFLOAT, SHORT, BYTES))
BF16, F32 = DType.BFLOAT16, DType.FLOAT32
INT8, UINT8, INT16, INT32 = DType.INT8, DType.UINT8, DType.INT16, DType.INT32


def product(a: DType, b: DType, wide: DType, transposed: bool = False) -> Kernel:
    """C(i,j) += wide(A(i,k)) * wide(B(k,j))"""
    right = rd("B", j, k, dtype=b) if transposed else rd("B", k, j, dtype=b)
    term = op("mul", Cast(rd("A", i, k, dtype=a), wide), Cast(right, wide), wide)
    zero = con(0.0 if wide.is_float else 0, wide)
    update = up("C", (i, j), "add", term)
    body = par("i", "M", par("j", "N", st("C", (i, j), zero), red("k", "K", update)))
    shape = "N K" if transposed else "K N"
    buffers = [buf("A", "M K", a), buf("B", shape, b), buf("C", "M N", wide)]
    return kernel("f", "M N K", buffers, body)


def calls(p: Kernel) -> set[str]:
    nodes = [x for x, _ in walk(p.body) if isinstance(x, Store | Update)]
    return {y.function for x in nodes for y in subvalues(x.value) if isinstance(y, Call)}


SIZES = [(9, 33, 5), (17, 40, 8), (8, 32, 1), (3, 35, 2), (16, 70, 7), (9, 1, 11), (0, 3, 4)]
CASES = [
    (BF16, BF16, F32, BFLOAT),
    (INT16, INT8, INT32, SHORT),
    (UINT8, INT8, INT32, BYTES),
    (INT8, UINT8, INT32, BYTES),
    (INT8, INT8, INT32, BYTES),
    (UINT8, UINT8, INT32, BYTES),
]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("a", "b", "wide", "function"), CASES)
def test_short_factors_are_multiplied_packed(
    a: DType, b: DType, wide: DType, function: str, transposed: bool
) -> None:
    naive = product(a, b, wide, transposed)
    mapped = map_cpu(naive, DOTS, Options(panel_parts=1)).kernel
    verify(mapped)
    assert calls(mapped) == {PACK, function}
    for m, n, steps in SIZES:
        assert_same(naive, mapped, {"M": m, "N": n, "K": steps})


def test_signed_bytes_below_other_loops_are_packed_in_pairs() -> None:
    """What bytes owe is summed before a nest, which would be done in every iteration there."""
    naive = product(INT8, INT8, INT32)
    naive = replace(naive, sizes=("T", *naive.sizes), body=seq("t", "T", naive.body))
    mapped = map_cpu(naive, DOTS, Options()).kernel
    verify(mapped)
    assert calls(mapped) == {PACK, SHORT}
    assert_same(naive, mapped, {"T": 2, "M": 9, "N": 33, "K": 7})


@pytest.mark.parametrize(("a", "b", "wide", "function"), CASES)
def test_targets_without_an_instruction_multiply_as_before(
    a: DType, b: DType, wide: DType, function: str
) -> None:
    naive = product(a, b, wide)
    expected = set() if wide is F32 else {PACK, SHORT}
    assert calls(map_cpu(naive, AVX2, Options()).kernel) == expected
    assert calls(map_cpu(naive, AVX512, Options()).kernel) == expected
    assert calls(map_cpu(naive, SCALAR, Options()).kernel) == set()
    assert calls(map_cpu(naive, DOTS, Options(vectorize=False)).kernel) == set()


def test_the_loop_that_is_packed_is_one_along_which_rows_lie() -> None:
    """C(i,j) += A(i,h,k) * B(k,h,j): elements of k are neighbours, those of h are not."""
    a, b = rd("A", i, h, k, dtype=BF16), rd("B", k, h, j, dtype=BF16)
    update = up("C", (i, j), "add", op("mul", Cast(a, F32), Cast(b, F32)))
    inner = red("k", "K", red("h", "H", update))
    body = par("i", "M", par("j", "N", st("C", (i, j), con(0.0)), inner))
    buffers = [buf("A", "M H K", BF16), buf("B", "K H N", BF16), buf("C", "M N")]
    naive = kernel("f", "M N K H", buffers, body)
    mapped = map_cpu(naive, DOTS, Options()).kernel
    packs = [
        y
        for x, _ in walk(mapped.body)
        if isinstance(x, Update)
        for y in subvalues(x.value)
        if isinstance(y, Call) and y.function == PACK
    ]
    assert any(r is not None and r.tensor == "A" for r in map(packed_run, packs))
    for sizes in ((9, 33, 5, 3), (8, 40, 1, 4), (10, 35, 6, 2)):
        assert_same(naive, mapped, dict(zip("MNKH", sizes)))


X8, Y8, Z16 = (rd(n, i, k, dtype=t) for n, t in (("X", INT8), ("Y", UINT8), ("Z", INT16)))


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
    found = dot_term(update, "i", frozenset("k"), ALL)
    assert (found and found.function) == function


def test_what_two_signed_bytes_owe_is_paid_by_the_side_of_the_columns() -> None:
    a, b = rd("A", i, k, dtype=INT8), rd("B", k, j, dtype=INT8)
    for left, right in ((a, b), (b, a)):
        term = op("mul", wide(left), wide(right), INT32)
        found = dot_term(up("C", (i, j), "add", term), "i", frozenset("k"), ALL)
        assert found is not None and found.owed == (Owed(con(-128, INT32), b),)


def test_what_zero_points_owe() -> None:
    """(x + 128 - (128 + p)) * (y - q): sums of both sides, and the product of both points."""
    a, b = rd("A", i, k, dtype=INT8), rd("B", k, j, dtype=INT8)
    p, q = rd("p", i, dtype=INT32), rd("q", j, dtype=INT32)
    term = op("mul", minus(wide(a), p), minus(wide(b), q), INT32)
    found = dot_term(up("C", (i, j), "add", term), "i", frozenset("k"), ALL)
    assert found is not None
    higher = op("add", p, con(128, INT32), INT32)
    columns, rows, points = found.owed
    assert columns == Owed(Unary("neg", higher, INT32), b)
    assert rows == Owed(Unary("neg", q, INT32), found.left)
    assert points == Owed(op("mul", higher, q, INT32), None)


def test_panels_of_several_steps_pay_from_a_few_rows_on() -> None:
    """Rows in place take one step at a time: bytes in panels four, pairs two."""

    def pays(a: DType, wide_type: DType, rows: int, steps: int) -> bool:
        p = product(a, a, wide_type)
        found = roles_at(p, "i")
        assert found is not None
        condition = panels_pay(p, "i", found, Setting(DOTS, Options(), Names.of(p), []))
        return holds(condition, {"M": rows, "N": 99, "K": steps})

    far = 2 * DOTS.level("l1").bytes // 64
    for dtype, wide_type, few in (
        (INT8, INT32, 2),
        (BF16, F32, 4),
        (INT16, INT32, 4),
        (F32, F32, 11),
    ):
        assert pays(dtype, wide_type, few + 1, 64) == (dtype is not F32)
        assert not pays(dtype, wide_type, few, 64)
        assert pays(dtype, wide_type, 3, far) == (dtype is not F32)
        assert not pays(dtype, wide_type, 2, far)
