# SPDX-License-Identifier: Apache-2.0
"""Exact integers in subscripts -> between what they lie, as far as that is told by their form.

Interval arithmetic with ends that move: of `2*i + min(at(i), 2)`, where `at` holds bytes, the least
is `2*i`, and the most `2*i + 2`.
"""

from __future__ import annotations

from tcsym.frontend.program import ROOM, Binary, Cast, Const, IndexValue, dtype_of
from tcsym.index.expr import Index, index
from tcsym.ir.loops import Value
from tcsym.sizes.context import Interval, interval
from tcsym.types import DType

Range = tuple[Index, Index]


def value_range(v: Value | Index) -> Range | None:
    """Ends over indices and sizes; None if they are not known or need not fit in 64 bits."""
    match v:
        case Index():
            return _fitting((v, v))
        case IndexValue(i, DType.INT64):
            return _fitting((i, i))
        case Const(int(x), _):
            return index(x), index(x)
        case Cast(operand, dtype) if dtype.is_integer and dtype_of(operand).is_integer:
            return _fitting(value_range(operand) or _all(dtype_of(operand)), dtype)
        case Binary(op, left, right, DType.INT64) if v.exact:
            a, b = value_range(left), value_range(right)
            return None if a is None or b is None else _fitting(_combined(op, a, b))
        case _:
            return None


def known_range(v: Value) -> tuple[int, int] | None:
    """The least and the largest value that there may be, in numbers."""
    found = value_range(v)
    if found is None:
        return None
    low, high = _numbers(found[0]).low, _numbers(found[1]).high
    return None if low is None or high is None else (low, high)


def _combined(op: str, a: Range, b: Range) -> Range | None:
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    numbers = [e.as_int() for e in (*a, *b)]
    p, q, x, y = (n or 0 for n in numbers)
    if op == "mul" and None in numbers[:2] and numbers[2:] == [x, x]:
        ends = a[0] * x, a[1] * x
        return ends if x >= 0 else (ends[1], ends[0])
    if op == "mul" and None in numbers[2:] and numbers[:2] == [p, p]:
        return _combined(op, b, a)
    if op == "mod" and numbers[2:] == [x, y] and x > 0:
        return index(0), index(y - 1)
    if None in numbers:
        return None
    match op:
        case "mul":
            corners = [m * n for m in (p, q) for n in (x, y)]
        case "div" if x > 0:
            corners = [m // n for m in (p, q) for n in (x, y)]
        case "min":
            corners = [min(p, x), min(q, y)]
        case "max":
            corners = [max(p, x), max(q, y)]
        case _:
            return None
    return index(min(corners)), index(max(corners))


def _all(dtype: DType) -> Range:
    return index(dtype.lowest), index(dtype.highest)


def _fitting(r: Range | None, dtype: DType = DType.INT64) -> Range | None:
    """The range if the type has it all, which is not so for elements of uint64 as int64."""
    if r is None:
        return None
    low, high = _numbers(r[0]).low, _numbers(r[1]).high
    fits = low is not None and high is not None and low >= dtype.lowest and high <= dtype.highest
    return r if fits else None


def _numbers(e: Index) -> Interval:
    return interval(e, dict.fromkeys(e.variables(), Interval(-ROOM, ROOM)))
