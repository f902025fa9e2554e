# SPDX-License-Identifier: Apache-2.0
"""Where tiles may overlap: whole vectors everywhere, some elements computed twice, no masks."""

from __future__ import annotations

from collections.abc import Set

from tcsym.index.expr import Index
from tcsym.ir.loops import Kernel, Loop, Node, Store
from tcsym.ir.traverse import walk
from tcsym.schedule.analysis.access import Access, accesses, differ
from tcsym.schedule.analysis.loops import statements_in


def is_repeatable(
    kernel: Kernel, body: Node, variables: frozenset[str], own: Set[str] = frozenset()
) -> bool:
    """An iteration of the loops may be made twice: it reads nothing that they leave behind.

    own: buffers of which each iteration has a copy that it makes anew.
    """
    touched = tuple(accesses(body))
    fixed = _fixed(kernel, variables) if any(a.written for a in touched) else frozenset[str]()
    read = {a.buffer for a in touched if not a.written and not _is_of_before(a, touched, fixed)}
    for x, _ in statements_in(body):
        buffer = getattr(x, "buffer", None)
        if buffer is None or buffer in own or variables <= kernel.buffer(buffer).private:
            continue
        if not isinstance(x, Store) or buffer in read:
            return False
    return True


def _fixed(kernel: Kernel, variables: frozenset[str]) -> frozenset[str]:
    """What does not move while the loops run: sizes, and steps of scans around them."""
    around = [
        loops for x, loops in walk(kernel.body) if isinstance(x, Loop) and x.variable in variables
    ]
    steps = {
        y.variable
        for loops in around
        for y in loops
        if isinstance(y, Loop) and y.order == "sequential"
    }
    return frozenset(kernel.sizes) | steps


def _is_of_before(read: Access, touched: tuple[Access, ...], fixed: frozenset[str]) -> bool:
    """It is of an element of another step than all that is written."""
    stores = [a.subscripts for a in touched if a.written and a.buffer == read.buffer]
    return bool(stores) and all(
        any(
            isinstance(x, Index)
            and isinstance(y, Index)
            and (x.variables() | y.variables()) <= fixed
            and differ(x, y)
            for x, y in zip(read.subscripts, s)
        )
        for s in stores
    )
