# SPDX-License-Identifier: Apache-2.0
"""Least values of index expressions: which divisions need no rounding down.

Program sizes are not negative, a loop's variable is not below its lower bound. Strides may be
anything.
"""

from __future__ import annotations

from tcsym.codegen.scalar.context import Context
from tcsym.index.expr import Index
from tcsym.ir.loops import THREADS, Kernel
from tcsym.sizes.context import Interval, interval


def ranges_of_sizes(kernel: Kernel) -> dict[str, Interval]:
    """Of every size of the kernel that is no stride."""
    steps = [s.variables() for b in kernel.buffers for s in b.strides or ()]
    strides = frozenset[str]().union(*steps)
    names = (*kernel.sizes, *kernel.launched)
    return {x: Interval(int(x == THREADS)) for x in names if x not in strides}


def least(context: Context, e: Index) -> int | None:
    """A number that `e` is never below here, or None."""
    return interval(e, context.ranges, context.intervals).low if e.terms else e.constant


def starts_at(context: Context, variable: str, lower: Index) -> None:
    """A loop's variable is not below `lower`; loops of one name start alike."""
    known = Interval(least(context, lower))
    assert context.ranges.setdefault(variable, known) == known, variable
