# SPDX-License-Identifier: Apache-2.0
"""Sliding windows: subscripts that move with a parallel loop and with a reduction, and overlap.

Where two dimensions lie behind each other as one, `N*n + k` moves with both too, but a step of n is
as long as all of k: nothing slides.
"""

from __future__ import annotations

from collections.abc import Iterable

from tcsym.index.expr import ZERO, Index
from tcsym.index.linear import linear_coefficient
from tcsym.ir.bounds import extent, is_nonnegative
from tcsym.ir.loops import Loop


def slides(s: object, moving: str, window: Iterable[Loop]) -> bool:
    """The subscript moves with `moving` and with some loop of `window`, in steps that overlap.

    Steps of constant length count in any case: windows side by side are windows, too.
    """
    if not isinstance(s, Index) or moving not in s.variables():
        return False
    inside = [x for x in window if x.variable in s.variables()]
    if not inside:
        return False
    step = linear_coefficient(s, moving)
    return step is None or step.as_int() is not None or not _covers(step, s, inside)


def _covers(step: Index, s: Index, inside: Iterable[Loop]) -> bool:
    """One step is at least as long as all that the loops `inside` reach from a point."""
    reach = ZERO
    for x in inside:
        c = linear_coefficient(s, x.variable)
        if c is None:
            return False
        reach = reach + c * extent(x)
    left = step - reach
    return is_nonnegative(left, left.variables())
