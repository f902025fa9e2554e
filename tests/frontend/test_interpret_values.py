# SPDX-License-Identifier: Apache-2.0
"""Element arithmetic of the interpreter: conversions, wrapping, comparison, exact indices."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tcsym.frontend.interpret import interpret
from tcsym.frontend.interpret_points import Points, box_points, index_at
from tcsym.frontend.interpret_values import arithmetic, cast, compare, exact_arithmetic, stored
from tcsym.frontend.program import Binary, Cast, IndexValue, Program, Range, Read, Statement, Tensor
from tcsym.index.expr import Index, choose, floordiv, ge, index, maximum, minimum, mod, var
from tcsym.types import DType

I32, I64, F16, BF16, F32 = DType.INT32, DType.INT64, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
i, N = var("i"), var("N")


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with np.errstate(all="ignore"):
        yield


# ---- conversions


@pytest.mark.parametrize("dtype", [t for t in DType if t.is_integer])
def test_float_to_integer_truncates_and_saturates(dtype: DType) -> None:
    values = np.array([2.9, np.nan, np.inf, -np.inf, 1e30, -1e30, 0.99, -0.99])
    low, high = dtype.lowest, dtype.highest
    assert cast(values, dtype).tolist() == [2, 0, high, low, high, low, 0, 0]
    assert cast(np.array([-2.9, float(high)]), dtype).tolist() == [max(-2, low), high]


def test_integers_wrap_between_types() -> None:
    values = np.array([300, -1, 2**31, -(2**63)])
    assert cast(values, DType.UINT8).tolist() == [44, 255, 0, 0]
    assert cast(values, DType.INT32).tolist() == [300, -1, -(2**31), 0]
    assert cast(values, DType.UINT64).tolist() == [300, 2**64 - 1, 2**31, 2**63]


def test_to_and_from_bool() -> None:
    assert cast(np.array([0.0, -0.0, np.nan, 0.5]), DType.BOOL).tolist() == [
        False,
        False,
        True,
        True,
    ]
    assert cast(np.array([True, False]), F32).tolist() == [1.0, 0.0]


def test_bfloat16_is_rounded_once() -> None:
    step = 2.0**-8
    values = np.array(
        [1 + step + 2**-40, 1 + step, -(1 + 3 * step - 2**-45), 1e39, np.nan, -np.inf]
    )
    rounded = stored(values, BF16)
    assert rounded.dtype == ml_dtypes.bfloat16
    expected = [1 + 2 * step, 1, -(1 + 2 * step), np.inf, np.nan, -np.inf]
    np.testing.assert_array_equal(rounded.astype(np.float64), expected)
    big = np.array([(1 << 62) + (1 << 54) + 1])  # above a tie by one part in 2^62
    assert int(stored(big, BF16)[0]) == (1 << 62) + (1 << 55)


def test_half_is_rounded_once() -> None:
    values = np.array([1 + 2.0**-11 + 2.0**-40, 65519.9, 65520.0])
    assert stored(values, F16).tolist() == [1 + 2.0**-10, 65504.0, np.inf]
    assert stored(np.array([2049, 2**62]), F16).tolist() == [2048.0, np.inf]


# ---- operators


@pytest.mark.parametrize("dtype", [t for t in DType if t.is_integer])
def test_integer_division_rounds_down_and_never_traps(dtype: DType) -> None:
    low, high = dtype.lowest, dtype.highest
    a = np.array([7, low, high, 0], dtype.numpy)
    b = np.array([2, 0, 0, 0], dtype.numpy)
    assert arithmetic("div", a, b).tolist() == [3, 0, 0, 0]
    assert arithmetic("mod", a, b).tolist() == [1, 0, 0, 0]
    assert arithmetic("add", a, np.full_like(a, high)).tolist()[2] == (
        -2 if dtype.is_signed else high - 1
    )
    if dtype.is_signed:
        a, b = np.array([low, -7, 7, -7], a.dtype), np.array([-1, 2, -2, -2], a.dtype)
        assert arithmetic("div", a, b).tolist() == [low, -4, -4, 3]
        assert arithmetic("mod", a, b).tolist() == [0, 1, -1, -1]


def test_float_remainder_and_extrema() -> None:
    a, b = np.array([-7.0, 7.0, 1.0, np.nan]), np.array([2.0, -2.0, 0.0, 1.0])
    np.testing.assert_array_equal(arithmetic("mod", a, b), [1.0, -1.0, np.nan, np.nan])
    np.testing.assert_array_equal(arithmetic("max", a, b), [2.0, 7.0, 1.0, np.nan])
    np.testing.assert_array_equal(arithmetic("min", b, a), [-7.0, -2.0, 0.0, np.nan])


def test_bool_arithmetic() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    for op in ("add", "max"):
        assert arithmetic(op, a, b).tolist() == [False, True, True, True]
    for op in ("mul", "min"):
        assert arithmetic(op, a, b).tolist() == [False, False, False, True]


OPS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


@pytest.mark.parametrize("op", OPS)
def test_integers_compare_by_value(op: str) -> None:
    signed = np.array([-1, 0, 2**62, 2**63 - 1, -(2**63), 5], np.int64)
    unsigned = np.array([2**64 - 1, 0, 2**62, 2**63, 2**63, 3], np.uint64)
    for a, b in ((signed, unsigned), (unsigned, signed), (signed.astype(np.int8), unsigned)):
        expected = [eval(f"{x} {OPS[op]} {y}") for x, y in zip(a.tolist(), b.tolist())]
        assert compare(op, a, b).tolist() == expected


def test_exact_arithmetic_reports_overflow() -> None:
    top, two = np.array([2**63 - 1, 1]), np.array([2, 2])
    assert exact_arithmetic("add", top, two) is None
    assert exact_arithmetic("mul", top, two) is None
    assert exact_arithmetic("div", np.array([-(2**63)]), np.array([-1])) is None
    quotient = exact_arithmetic("div", np.array([-7, 7]), np.array([2, 0]))
    remainder = exact_arithmetic("mod", np.array([-7, 7]), np.array([2, 0]))
    assert quotient is not None and quotient.tolist() == [-4, 0]
    assert remainder is not None and remainder.tolist() == [1, 0]


# ---- indices


def at(e: Index, **values: Any) -> list[int]:
    arrays = {n: np.array(v) for n, v in values.items() if isinstance(v, list)}
    scalars = {n: v for n, v in values.items() if isinstance(v, int)}
    result: list[int] = index_at(e, Points(3, arrays, scalars)).tolist()
    return result


def test_index_expressions_at_points() -> None:
    n = [-3, 0, 4]
    assert at(index(7)) == [7, 7, 7]
    assert at(2 * i + N - 1, i=n, N=5) == [-2, 4, 12]
    assert at(i * N, i=n, N=5) == [-15, 0, 20]
    assert at(floordiv(i, 2) + mod(i, 2) * 10, i=n) == [8, 0, 2]
    assert at(floordiv(N, i) + mod(N, i), i=n, N=7) == [-5, 0, 4]
    assert at(minimum(i, N) - maximum(i, 0), i=n, N=2) == [-3, 0, -2]
    assert at(choose(ge(i, 0), i, N), i=n, N=9) == [9, 0, 4]


def test_index_expressions_are_exact_beyond_64_bits() -> None:
    big = 2**62
    assert at(i * N * N, i=[-1, 0, 3], N=big) == [-(big**2), 0, 3 * big**2]
    assert at(floordiv(i * N * 4, var("M")), i=[-1, 1, 3], N=big, M=big) == [-4, 4, 12]


def test_points_of_a_box_are_in_row_major_order() -> None:
    (points,) = box_points([("i", 1, 3), ("j", -1, 1)], {})
    assert points.variables["i"].tolist() == [1, 1, 2, 2]
    assert points.variables["j"].tolist() == [-1, 0, -1, 0]
    assert [p.count for p in box_points([], {})] == [1]
    assert list(box_points([("i", 0, 5), ("j", 2, 2)], {})) == []


# ---- whole statements


def reduce_to_scalar(value: Any, op: Any, source: DType, target: DType, data: np.ndarray) -> Any:
    tensors = (Tensor("A", source, (N,), "input"), Tensor("O", target, (), "output"))
    domain = (Range("i", index(0), N, True),)
    body = (Statement("S", "O", (), op, True, domain, value),)
    program = Program("f", ("N",), (), tensors, body, ())
    return interpret(program, {"A": data}, {"N": len(data)})["O"][()]


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_halves_accumulate_wider_and_round_at_the_end(dtype: DType) -> None:
    ones = np.ones(4096, dtype.numpy)
    total = reduce_to_scalar(Read("A", (i,), dtype), "+=", dtype, dtype, ones)
    assert total == 4096.0 and total.dtype == dtype.numpy


def test_half_intermediates_are_wide_but_casts_round() -> None:
    x = Read("A", (i,), F16)
    square = Binary("mul", x, x, F16)
    data = np.array([300.0], np.float16)
    scaled = Binary("div", square, Cast(IndexValue(index(100), I32), F16), F16)
    assert reduce_to_scalar(scaled, "+=", F16, F16, data) == 900.0
    rounded = Binary("div", Cast(square, F16), Cast(IndexValue(index(100), I32), F16), F16)
    assert reduce_to_scalar(rounded, "+=", F16, F16, data) == np.inf


def test_terms_keep_their_type_until_accumulated() -> None:
    x = Read("A", (i,), DType.INT8)
    data = np.array([100, 100], np.int8)
    doubled = Binary("add", x, x, DType.INT8)  # wraps to -56
    assert reduce_to_scalar(doubled, "+=", DType.INT8, I32, data) == -112
    assert reduce_to_scalar(x, "+=", DType.INT8, DType.INT8, data) == -56
    assert reduce_to_scalar(x, "*=", DType.INT8, I64, data) == 10_000


def test_nan_propagates_through_minimum() -> None:
    data = np.array([1, np.nan, 0], np.float32)
    assert np.isnan(reduce_to_scalar(Read("A", (i,), F32), "min=", F32, F32, data))


def test_index_values_wrap_to_their_type() -> None:
    data = np.zeros(2, np.int8)
    assert reduce_to_scalar(IndexValue(i * 2**31, I32), "+=", DType.INT8, I64, data) == -(2**31)
    assert reduce_to_scalar(IndexValue(i * 2**70 + 3, I32), "+=", DType.INT8, I64, data) == 6
