# SPDX-License-Identifier: Apache-2.0
"""Whether iterations of a loop touch only what is theirs."""

from __future__ import annotations

from collections.abc import Collection

from tcsym.index.expr import Index
from tcsym.index.linear import linear_coefficient
from tcsym.ir.loops import Loop, Node
from tcsym.ir.traverse import walk
from tcsym.schedule.analysis.access import accesses


def are_own(body: Node, row: str, buffers: Collection[str], others: Collection[str] = ()) -> bool:
    """Of these buffers, iterations of the loop `row` around `body` touch elements that no other
    iteration touches, whatever the loops inside and `others` do: a subscript says so in all."""
    inside = {x.variable for x, _ in walk(body) if isinstance(x, Loop)} | {*others}
    touched = tuple(accesses(body))
    for name in buffers:
        mine = [a.subscripts for a in touched if a.buffer == name]
        columns = [c for c in zip(*mine) if len(set(c)) == 1]
        if not any(_tells(c[0], row, inside) for c in columns):
            return False
    return True


def _tells(s: object, row: str, others: Collection[str]) -> bool:
    """The subscript has another value for every value of `row`, whatever the other loops do."""
    if not isinstance(s, Index) or s.variables() & {*others}:
        return False
    coefficient = linear_coefficient(s, row)
    return coefficient is not None and bool(coefficient.as_int())
