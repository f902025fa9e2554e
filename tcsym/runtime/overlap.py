# SPDX-License-Identifier: Apache-2.0
"""Arrays of a call -> whether they share memory, and whether a call may write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tcsym.runtime.arrays import Array, numpy_array
from tcsym.runtime.view import View

MAX_OVERLAP_WORK: Any = 100_000  # numpy's annotation allows only two of the values it takes


def obstacle(view: View, others: Mapping[str, View] | None = None) -> str:
    """Why a call must not write there; '' if it may. others: arrays that it must not share."""
    if not view.writable or view.library == "jax":
        return "is read-only"
    if not view.dense and overlaps_itself(view):
        return "overlaps itself"
    shared = (name for name, other in (others or {}).items() if overlap(view, other))
    found = next(shared, "")
    return f"overlaps `{found}`" if found else ""


def overlap(a: View, b: View) -> bool:
    """True if some byte belongs to both; also if that would take too long to find out."""
    (low_a, high_a), (low_b, high_b) = span_of(a), span_of(b)
    if high_a <= low_b or high_b <= low_a:
        return False
    if a.dense and b.dense:
        return True
    return _share(numpy_array(a), numpy_array(b))


def span_of(view: View) -> tuple[int, int]:
    """Lowest and one past the highest address; an empty interval for an empty array."""
    low = high = view.pointer
    for extent, stride in zip(view.shape, view.strides):
        if extent == 0:
            return 0, 0
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low, high + (view.dtype.bytes if view.dtype else 1)


def overlaps_itself(view: View) -> bool:
    """True if two elements share a byte.

    Two such elements differ first in some dimension d; moved along, one has position 0 there and
    the other a later one. So it is enough to compare, for each d, the first slice with the rest.
    """
    array = numpy_array(view)
    if array.size < 2:
        return False
    for _ in range(array.ndim):
        if len(array) > 1 and _share(array[:1], array[1:]):
            return True
        array = array[0]
    return False


def _share(a: Array, b: Array) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=MAX_OVERLAP_WORK))
    except np.exceptions.TooHardError:
        return True
