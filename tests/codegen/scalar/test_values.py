# SPDX-License-Identifier: Apache-2.0
"""Arithmetic, comparison, conversion of every type, scalar and vector, against the interpreter."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pytest

from tcsym.codegen import emit
from tcsym.frontend import interpret_values as oracle
from tcsym.frontend.program import Binary, Cast, Compare, Const, IndexValue, Read, Select, Unary
from tcsym.index.expr import Not, all_of, any_of, eq, floordiv, ge, lt, maximum, mod, var
from tcsym.ir.loops import Holds, Value
from tcsym.target.names import resolve_target
from tcsym.types import DType
from tests.codegen.harness import TARGETS, WAYS, elementwise, load

I = (var("i"),)  # noqa: E741
TYPES = list(DType)
NUMBERS = [t for t in TYPES if t is not DType.BOOL]
HALVES = (DType.FLOAT16, DType.BFLOAT16)
WIDTHS = (0, 8)


def samples(dtype: DType, seed: int = 0, n: int = 301) -> Any:
    """Ordinary and extreme values."""
    rng = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, n).astype(bool)
    if dtype.is_integer:
        some = rng.integers(dtype.lowest, dtype.highest, n, dtype=dtype.numpy, endpoint=True)
        some[::3] = rng.integers(0, 9, len(some[::3])) - (4 if dtype.is_signed else 0)
        edges = [dtype.lowest, dtype.highest, 0, 1, dtype.highest - 1, dtype.lowest + 1]
        some[5 : 5 + len(edges)] = edges
        return rng.permutation(some)
    some = rng.normal(size=n) * np.exp(rng.normal(size=n) * 6)
    edges = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 65504, 65520, 1e-8, 6e-8, 3e38, 127.5, 2**31]
    some[: len(edges)] = edges
    with np.errstate(all="ignore"):
        return rng.permutation(some).astype(dtype.numpy)


def run(value: Value, dtype: DType, inputs: dict[str, Any], target: str, width: int) -> Any:
    """`value` at every i, stored as `dtype`."""
    names = {str(t.numpy): t for t in TYPES}
    types = {name: names[str(a.dtype)] for name, a in inputs.items()}
    n = len(next(iter(inputs.values())))
    out = np.zeros(n, dtype.numpy)
    kernel = load(elementwise(value, dtype, types, width), target)
    assert kernel({**inputs, "O": out}, {"N": n}) == 0
    return out


def held(a: Any, dtype: DType) -> Any:
    return a.astype(oracle.held_in(dtype))


def same(got: Any, want: Any, dtype: DType) -> None:
    if dtype.is_float:
        with np.errstate(invalid="ignore"):  # signalling NaNs among the half types
            got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("target", "width"), WAYS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_arithmetic(dtype: DType, width: int, target: str) -> None:
    a, b = samples(dtype, 1), samples(dtype, 2)
    ops = ("add", "mul", "min", "max") + (() if dtype is DType.BOOL else ("sub", "div", "mod"))
    for op in ops:
        value = Binary(op, Read("A", I, dtype), Read("B", I, dtype), dtype)  # type: ignore[arg-type]
        got = run(value, dtype, {"A": a, "B": b}, target, width)
        with np.errstate(all="ignore"):
            exact = oracle.arithmetic(op, held(a, dtype), held(b, dtype))
            same(got, oracle.stored(exact, dtype), dtype)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("target", "width"), WAYS)
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, 100, 0, -1, -3])
def test_division_by_constants(divisor: int, width: int, target: str) -> None:
    for dtype in (DType.INT32, DType.INT64, DType.UINT8, DType.INT16):
        if not dtype.lowest <= divisor <= dtype.highest:
            continue
        a = samples(dtype, 3)
        for op in ("div", "mod"):
            value = Binary(op, Read("A", I, dtype), Const(divisor, dtype), dtype)  # type: ignore[arg-type]
            got = run(value, dtype, {"A": a}, target, width)
            with np.errstate(all="ignore"):
                same(got, oracle.arithmetic(op, a, np.full_like(a, divisor)), dtype)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("target", "width"), WAYS)
@pytest.mark.parametrize("source", TYPES, ids=str)
def test_casts(source: DType, width: int, target: str) -> None:
    a = samples(source, 4)
    for dtype in TYPES:
        got = run(Cast(Read("A", I, source), dtype), dtype, {"A": a}, target, width)
        with np.errstate(all="ignore"):
            want = oracle.stored(oracle.cast(held(a, source), dtype), dtype)
        same(got, want, dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("short", HALVES, ids=str)
def test_rounding_to_halves_is_single(short: DType, target: str) -> None:
    """Values on and next to ties, from types with more bits than float32."""
    one = 1.0 + np.arange(64) * 2.0**-11
    near = np.concatenate([one, one * (1 + 2.0**-40), one * (1 - 2.0**-40), one * 2.0**-20])
    whole = (np.int64(1) << 40) + (np.arange(64, dtype=np.int64) << 31)
    whole = np.concatenate([whole, whole + 1, whole - 1, -whole, -whole - 1, whole << 20])
    for a, source in ((near, DType.FLOAT64), (whole, DType.INT64)):
        with np.errstate(all="ignore"):
            want = oracle.stored(oracle.cast(a, short), short)
        for width in WIDTHS:
            got = run(Cast(Read("A", I, source), short), short, {"A": a}, target, width)
            same(got, want, short)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("short", HALVES, ids=str)
def test_every_half_survives(short: DType, target: str) -> None:
    a = np.arange(1 << 16, dtype=np.uint16).view(short.numpy)
    got = run(Cast(Read("A", I, short), DType.FLOAT32), DType.FLOAT32, {"A": a}, target, 8)
    np.testing.assert_array_equal(got, a.astype(np.float32))
    back = run(Cast(Read("A", I, DType.FLOAT32), short), short, {"A": got}, target, 8)
    same(back, a, short)


@pytest.mark.parametrize(("target", "width"), WAYS)
def test_comparison_of_any_integers_is_by_value(width: int, target: str) -> None:
    integers = [t for t in TYPES if t.is_integer]
    pairs = list(itertools.product(integers, integers))[:: 3 if width else 2]
    for left, right in pairs:
        a, b = samples(left, 5), samples(right, 6)
        value: Value = Binary(
            "and",
            Compare("le", Read("A", I, left), Read("B", I, right)),
            Compare("ne", Read("A", I, left), Read("B", I, right)),
            DType.BOOL,
        )
        got = run(value, DType.BOOL, {"A": a, "B": b}, target, width)
        np.testing.assert_array_equal(got, oracle.compare("lt", a, b))


@pytest.mark.parametrize(("target", "width"), WAYS)
@pytest.mark.parametrize(
    "dtype", [DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16, DType.BOOL], ids=str
)
def test_comparison_of_one_type(dtype: DType, width: int, target: str) -> None:
    a, b = samples(dtype, 7), samples(dtype, 8)
    for op in ("lt", "le", "gt", "ge", "eq", "ne"):
        if dtype is DType.BOOL:
            continue
        value = Compare(op, Read("A", I, dtype), Read("B", I, dtype))  # type: ignore[arg-type]
        got = run(value, DType.BOOL, {"A": a, "B": b}, target, width)
        np.testing.assert_array_equal(got, oracle.compare(op, held(a, dtype), held(b, dtype)))


@pytest.mark.parametrize(("target", "width"), WAYS)
def test_negation_and_logic(width: int, target: str) -> None:
    for dtype in NUMBERS:
        a = samples(dtype, 9)
        got = run(Unary("neg", Read("A", I, dtype), dtype), dtype, {"A": a}, target, width)
        with np.errstate(all="ignore"):
            same(got, oracle.stored(np.negative(held(a, dtype)), dtype), dtype)
    a, b = samples(DType.BOOL, 1), samples(DType.BOOL, 2)
    for op, f in (("and", np.logical_and), ("or", np.logical_or)):
        value = Binary(
            op,
            Unary("not", Read("A", I, DType.BOOL), DType.BOOL),  # type: ignore[arg-type]
            Read("B", I, DType.BOOL),
            DType.BOOL,
        )
        got = run(value, DType.BOOL, {"A": a, "B": b}, target, width)
        np.testing.assert_array_equal(got, f(~a, b))


@pytest.mark.parametrize(("target", "width"), WAYS)
def test_index_values_and_conditions(width: int, target: str) -> None:
    i, n = var("i"), var("N")
    a = np.zeros(77, np.int64)
    at = np.arange(77)
    cases = [
        (3 * i - 5, 3 * at - 5),
        (floordiv(i - 40, 7), (at - 40) // 7),
        (mod(40 - i, 6), (40 - at) % 6),
        (floordiv(i, n), at // 77),
        (floordiv(i - 40, maximum(n, 1)), (at - 40) // 77),
        (floordiv(i - 40, 3 * maximum(n - 76, 1)), (at - 40) // 3),
        (floordiv(i - 40, maximum(n, 1) - 78), -(at - 40)),
        (i * n, at * 77),
        (floordiv(n, i), np.where(at == 0, 0, 77 // np.maximum(at, 1))),
    ]
    for index, want in cases:
        for dtype in (DType.INT32, DType.INT64):
            got = run(IndexValue(index, dtype), dtype, {"A": a.astype(dtype.numpy)}, target, width)
            np.testing.assert_array_equal(got, want)
    conditions = [
        (ge(i, 5), at >= 5),
        (lt(i, 70), at < 70),
        (all_of([ge(i, 3), lt(2 * i, n)]), (at >= 3) & (2 * at < 77)),
        (any_of([eq(mod(i, 3), 0), ge(i, 60)]), (at % 3 == 0) | (at >= 60)),
        (Not(eq(i, 9)), at != 9),
        (ge(10 - i, 0), at <= 10),
        (ge(n, 5), at >= 0),
    ]
    for condition, truth in conditions:
        got = run(Holds(condition), DType.BOOL, {"A": a}, target, width)
        np.testing.assert_array_equal(got, truth)
        value = Select(
            Holds(condition), Const(1.5, DType.FLOAT32), Const(-2.0, DType.FLOAT32), DType.FLOAT32
        )
        got = run(value, DType.FLOAT32, {"A": a}, target, width)
        np.testing.assert_array_equal(got, np.where(truth, 1.5, -2.0))


def test_a_sum_of_more_terms_than_stack_frames() -> None:
    value: Value = Read("A", I, DType.FLOAT32)
    for _ in range(2 * sys.getrecursionlimit()):
        value = Binary("add", value, Read("A", I, DType.FLOAT32), DType.FLOAT32)  # type: ignore[arg-type]
    kernel = elementwise(value, DType.FLOAT32, {"A": DType.FLOAT32}, 0)
    text = emit(kernel, resolve_target("cpu:avx2"), 1).ir_text
    assert text.count("fadd") == 2 * sys.getrecursionlimit()
