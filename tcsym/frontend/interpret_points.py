# SPDX-License-Identifier: Apache-2.0
"""Box of index variables -> lists of points, and exact index expressions evaluated at them.

A statement's domain is walked in row-major order in chunks; a `Points` holds one chunk, or that
part of it where a guard holds. Integers stay exact: where int64 could overflow, Python integers
take over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, assert_never

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tcsym.index.expr import (
    All,
    Any_,
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    IsZero,
    Max,
    Min,
    Mod,
    NonNegative,
    Not,
    Product,
)

Array = NDArray[Any]

CHUNK = 1 << 16
INT64_LIMIT = (1 << 63) - 1


class Points(Struct, frozen=True):
    """`count` points: one array per index variable, and the sizes and loop variables they share."""

    count: int
    variables: Mapping[str, Array]
    scalars: Mapping[str, int]

    def where(self, mask: Array) -> Points:
        """The points at which `mask` holds, in the same order."""
        chosen = {name: values[mask] for name, values in self.variables.items()}
        return Points(int(np.count_nonzero(mask)), chosen, self.scalars)


def box_points(
    ranges: Sequence[tuple[str, int, int]], scalars: Mapping[str, int]
) -> Iterator[Points]:
    """Points of the box of `ranges` (name, lower, upper), first variable slowest, in chunks."""
    extents = [max(0, upper - lower) for _, lower, upper in ranges]
    total = math.prod(extents)
    for start in range(0, total, CHUNK):
        rest = np.arange(start, min(start + CHUNK, total), dtype=np.int64)
        count = len(rest)
        variables: dict[str, Array] = {}
        for (name, lower, _), extent in zip(reversed(ranges), reversed(extents)):
            rest, digit = np.divmod(rest, extent)
            variables[name] = digit + lower
        yield Points(count, variables, scalars)


def ranged_points(
    points: Points, name: str, lower: Index, upper: Index, most: int
) -> Iterator[Points]:
    """Each of the points once for each value of a variable in its own range, in chunks."""
    low, high = index_at(lower, points), index_at(upper, points)
    if any(max(abs(int(x)), abs(int(y))) > most for x, y in zip(low, high)):
        raise OverflowError(name)
    counts = np.maximum(high.astype(np.int64) - low.astype(np.int64), 0)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if points.count else 0
    for start in range(0, total, CHUNK):
        places = np.arange(start, min(start + CHUNK, total), dtype=np.int64)
        at = np.searchsorted(ends, places, side="right")
        variables = {n: values[at] for n, values in points.variables.items()}
        variables[name] = low[at].astype(np.int64) + places - (ends[at] - counts[at])
        yield Points(len(places), variables, points.scalars)


def index_at(e: Index, points: Points) -> Array:
    """Exact values of `e`: int64, or (dtype object) Python integers if int64 might overflow."""
    values: dict[str, Any] = {
        v: points.variables[v] if v in points.variables else points.scalars[v]
        for v in e.variables()
    }
    limits = {v: _largest(x) for v, x in values.items()}
    dtype = np.dtype(np.int64 if _magnitude(e, limits) <= INT64_LIMIT else object)
    arrays = {v: np.asarray(x, dtype=dtype) for v, x in values.items()}
    return np.array(np.broadcast_to(_sum(e, arrays, dtype), points.count), dtype=dtype)


def _largest(values: Any) -> int:
    if isinstance(values, int):
        return abs(values)
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


# ---- bounds on all intermediate values


def _magnitude(e: Index, limits: Mapping[str, int]) -> int:
    return abs(e.constant) + sum(abs(c) * _atom_magnitude(a, limits) for a, c in e.terms)


def _atom_magnitude(atom: Atom, limits: Mapping[str, int]) -> int:
    match atom:
        case str():
            return limits[atom]
        case Product(factors):
            return math.prod(max(1, _atom_magnitude(f, limits)) for f in factors)
        case FloorDiv(a, b) | Mod(a, b):
            return max(_magnitude(a, limits), _magnitude(b, limits))
        case Min(args) | Max(args):
            return max(_magnitude(a, limits) for a in args)
        case Choose(c, a, b):
            tested = [_magnitude(i, limits) for i in _compared(c)]
            return max(_magnitude(a, limits), _magnitude(b, limits), *tested, 0)
        case _:
            assert_never(atom)


def _compared(c: Condition) -> Iterator[Index]:
    match c:
        case NonNegative(i) | IsZero(i):
            yield i
        case Not(inner):
            yield from _compared(inner)
        case All(cs) | Any_(cs):
            for x in cs:
                yield from _compared(x)
        case _:
            assert_never(c)


# ---- values, all of one dtype (int64 or object)


def _sum(e: Index, values: Mapping[str, Array], dtype: np.dtype[Any]) -> Array:
    total: Array = np.asarray(e.constant, dtype=dtype)
    for atom, c in e.terms:
        total = np.asarray(total + c * _atom(atom, values, dtype), dtype=dtype)
    return total


def _atom(atom: Atom, values: Mapping[str, Array], dtype: np.dtype[Any]) -> Array:
    match atom:
        case str():
            return values[atom]
        case Product(factors):
            parts = [_atom(f, values, dtype) for f in factors]
            return reduce(lambda a, b: np.asarray(a * b, dtype=dtype), parts)
        case FloorDiv(a, b):
            return _divided(np.floor_divide, _sum(a, values, dtype), _sum(b, values, dtype))
        case Mod(a, b):
            return _divided(np.remainder, _sum(a, values, dtype), _sum(b, values, dtype))
        case Min(args):
            return reduce(np.minimum, [_sum(a, values, dtype) for a in args])
        case Max(args):
            return reduce(np.maximum, [_sum(a, values, dtype) for a in args])
        case Choose(c, a, b):
            mask = _holds(c, values, dtype)
            return np.where(mask, _sum(a, values, dtype), _sum(b, values, dtype))
        case _:
            assert_never(atom)


def _divided(divide: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    zero = b == 0
    safe = np.where(zero, np.ones_like(b), b)
    return np.where(zero, np.zeros_like(b), divide(a, safe))


def _holds(c: Condition, values: Mapping[str, Array], dtype: np.dtype[Any]) -> Array:
    match c:
        case NonNegative(i):
            return np.asarray(_sum(i, values, dtype) >= 0, dtype=bool)
        case IsZero(i):
            return np.asarray(_sum(i, values, dtype) == 0, dtype=bool)
        case Not(inner):
            return ~_holds(inner, values, dtype)
        case All(cs):
            return reduce(np.logical_and, [_holds(x, values, dtype) for x in cs], np.array(True))
        case Any_(cs):
            return reduce(np.logical_or, [_holds(x, values, dtype) for x in cs], np.array(False))
        case _:
            assert_never(c)
