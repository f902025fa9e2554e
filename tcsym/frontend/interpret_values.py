# SPDX-License-Identifier: Apache-2.0
"""Element values as numpy arrays: conversions, arithmetic, comparison, reduction.

LANGUAGE B5, B7-B9, E2, E3. Values of half and bfloat16 are held in float32 (intermediates may be
wider) and rounded by a cast or a store; every other type is held in itself. All functions assume
that floating-point warnings are off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tcsym.frontend.program import AssignOp
from tcsym.types import DType

Array = np.ndarray[Any, np.dtype[Any]]  # importing numpy.typing takes a millisecond

_HALVES = frozenset({DType.FLOAT16, DType.BFLOAT16})


def held_in(dtype: DType) -> np.dtype[Any]:
    """The numpy type in which values of `dtype` are computed with."""
    return np.dtype(np.float32) if dtype in _HALVES else np.dtype(dtype.numpy)


def accumulated_in(dtype: DType) -> np.dtype[Any]:
    """The numpy type of a reduction into `dtype`; wider for floats, so that it is nearly exact."""
    if not dtype.is_float:
        return np.dtype(dtype.numpy)
    return np.dtype(np.longdouble if dtype is DType.FLOAT64 else np.float64)


# ---- conversions


def cast(values: Array, target: DType) -> Array:
    """Held values of any type converted to (the values of) `target`, as `type(e)` does."""
    if target is DType.BOOL:
        return np.not_equal(values, 0)
    if target.is_float:
        return stored(values, target).astype(held_in(target))
    if values.dtype.kind == "f":
        return _float_to_integer(values, target)
    return values.astype(target.numpy)


def stored(values: Array, dtype: DType) -> Array:
    """Held or accumulated values as they are in memory; one rounding."""
    if dtype is DType.BFLOAT16 and values.dtype != np.float32:
        return _round_to_odd(values).astype(dtype.numpy)
    if dtype is DType.FLOAT16 and values.dtype.kind in "iu":
        return values.astype(np.float64).astype(dtype.numpy)
    return values.astype(dtype.numpy)


def _round_to_odd(values: Array) -> Array:
    """float32 values whose rounding to bfloat16 is that of `values` themselves."""
    wide = values.astype(np.longdouble)
    near = wide.astype(np.float32)
    beyond = np.abs(near.astype(np.longdouble)) > np.abs(wide)
    inexact = np.isfinite(wide) & (near.astype(np.longdouble) != wide)
    toward_zero = np.where(beyond, np.nextafter(near, np.float32(0)), near)
    rounded: Array = (toward_zero.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32)
    return rounded


def _float_to_integer(values: Array, target: DType) -> Array:
    whole = np.trunc(values.astype(np.float64))
    above = whole >= float(target.highest + 1)  # a power of two: exact
    below = whole < float(target.lowest)
    inside = np.where(above | below | np.isnan(whole), 0.0, whole).astype(target.numpy)
    inside[above] = target.highest
    inside[below] = target.lowest
    return inside


def constant(value: int | float, dtype: DType, count: int) -> Array:
    exact = float(value) if dtype.is_float else int(value)
    return np.full(count, exact, dtype=held_in(dtype))


# ---- operators

_ON_BOOL: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.logical_or,
    "max": np.logical_or,
    "mul": np.logical_and,
    "min": np.logical_and,
}
_ON_BITS: dict[str, Callable[[Array, Array], Array]] = {
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
}
_ON_NUMBERS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "mod": np.remainder,
}


def arithmetic(op: str, a: Array, b: Array) -> Array:
    """Operands of one type; integers wrap, their quotients round down and are 0 by zero."""
    if op in _ON_BITS:
        return _ON_BITS[op](a, b)
    if a.dtype == np.bool_:
        return _ON_BOOL[op](a, b)
    if op in ("shl", "shr"):
        return _shifted(op, a, b)
    if op == "div":
        return np.divide(a, b) if a.dtype.kind == "f" else np.floor_divide(a, b)
    return _ON_NUMBERS[op](a, b)


def _shifted(op: str, a: Array, b: Array) -> Array:
    """The count is `b` read as unsigned (LANGUAGE F6)."""
    width = 8 * a.dtype.itemsize
    count = b.view(np.dtype(f"u{a.dtype.itemsize}"))
    beyond = count >= width
    inside = np.where(beyond, 0, count).astype(a.dtype)
    if op == "shl":
        return np.where(beyond, 0, np.left_shift(a, inside)).astype(a.dtype)
    ends = np.where(a < 0, -1, 0).astype(a.dtype)  # numpy's common type with uint64 is a float
    return np.where(beyond, ends, np.right_shift(a, inside))


def exact_arithmetic(op: str, a: Array, b: Array) -> Array | None:
    """int64 operands: int64 result, or None if some result does not fit."""
    x, y = a.astype(object), b.astype(object)
    if op in ("div", "mod"):
        zero = b == 0
        y = np.where(zero, 1, y)
        result = np.where(zero, 0, x // y if op == "div" else x % y)
    else:
        result = _ON_NUMBERS[op](x, y)
    if not all(-(1 << 63) <= r < 1 << 63 for r in result):
        return None
    return result.astype(np.int64)


_COMPARISONS: dict[str, Callable[[Any, Any], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def compare(op: str, a: Array, b: Array) -> Array:
    """bool; integers of any two types by value."""
    if {a.dtype.kind, b.dtype.kind} != {"i", "u"}:
        return _COMPARISONS[op](a, b)
    if a.dtype.kind == "u":
        return compare(_MIRRORED[op], b, a)
    negative = a < 0
    same = _COMPARISONS[op](np.where(negative, 0, a).astype(np.uint64), b.astype(np.uint64))
    return np.where(negative, op in ("lt", "le", "ne"), same)


# ---- reductions


def identity(op: AssignOp, dtype: DType) -> int | float:
    """The neutral element of a reduction in `dtype` (also for bool, where + is or and * is and)."""
    if op in ("+=", "*="):
        return 0 if op == "+=" else 1
    if dtype.is_float:
        return np.inf if op == "min=" else -np.inf
    return dtype.highest if op == "min=" else dtype.lowest


_REDUCERS: dict[str, np.ufunc] = {
    "+=": np.add,
    "*=": np.multiply,
    "min=": np.minimum,
    "max=": np.maximum,
}
_BOOL_REDUCERS: dict[str, np.ufunc] = {
    "+=": np.logical_or,
    "max=": np.logical_or,
    "*=": np.logical_and,
    "min=": np.logical_and,
}


def accumulate(op: AssignOp, into: Array, positions: Array, terms: Array) -> None:
    """`into[p] op term` for every pair; `into` is flat and of the terms' type."""
    reducer = (_BOOL_REDUCERS if into.dtype == np.bool_ else _REDUCERS)[op]
    reducer.at(into, positions, terms)
