# SPDX-License-Identifier: Apache-2.0
"""Sums over gathered rows -> the same, fetching rows that later steps will read.

Where a row lies is known as soon as its index is read; the processor finds out a few rows ahead,
and no prefetcher does, as rows follow each other in no order. So a step fetches the row of one some
steps later. Tables that lie in the second cache are not worth it: a condition on sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tcsym.frontend.program import Read, Select
from tcsym.index.expr import ZERO, Index, ge, minimum, var
from tcsym.ir.loops import (
    Branch,
    Kernel,
    Loop,
    Node,
    Prefetch,
    Store,
    Update,
    block,
    conditional,
)
from tcsym.ir.traverse import loads, map_node, substitute_value, subvalues, walk
from tcsym.schedule.analysis.access import run_length, subscript_variables
from tcsym.target.machine import Machine

STEPS_AHEAD = 16
MOST_LINES = 8  # of a row


def prefetch_gathers(kernel: Kernel, machine: Machine) -> Kernel:
    """Every serial reduction over rows of an argument, at indices that another argument has.

    Contract: bounds, masks and subscripts are final; nothing after asks for loops of stores alone.
    """
    written = {x.buffer for x, _ in walk(kernel.body) if isinstance(x, Store | Update)}

    def change(x: Node) -> Node:
        if not isinstance(x, Loop) or x.kind != "serial" or x.order != "reduction":
            return x
        fetched = list(dict.fromkeys(_fetched(kernel, x, written, machine)))
        return replace(x, body=block(*fetched, x.body)) if fetched else x

    return replace(kernel, body=map_node(kernel.body, change))


def _fetched(kernel: Kernel, loop: Loop, written: set[str], machine: Machine) -> Iterator[Node]:
    """For each gathered row of the loop's steps, in its innermost loops only.

    Every step must read its index: one under a condition may lie nowhere.
    """
    inside = list(walk(loop.body))
    if any(isinstance(y, Branch) or getattr(y, "kind", "") == "serial" for y, _ in inside):
        return
    for x, around in inside:
        if not isinstance(x, Store | Update):
            continue
        if any(isinstance(v, Select) for v in subvalues(x.value)):
            continue
        for r in loads(x.value):
            lines = _lines(kernel, r, loop, around, machine)
            if lines and not written & {y.tensor for y in loads(r)}:
                b = kernel.buffer(r.tensor)
                size = b.shape[0] * b.element_strides()[0] * b.dtype.bytes
                yield conditional(ge(size, machine.level("l2").bytes), block(*lines))


def _lines(
    kernel: Kernel, r: Read, loop: Loop, points: tuple[Loop, ...], machine: Machine
) -> list[Prefetch]:
    """One for each line of the row that a later step reads; none if `r` is no gathered row."""
    *places, last = r.subscripts or (None,)
    indices = [s for s in places if s is not None and not isinstance(s, Index)]
    inner = frozenset(y.variable for y in points)
    if not indices or not isinstance(last, Index) or subscript_variables(tuple(indices)) & inner:
        return []
    if loop.variable not in subscript_variables(tuple(indices)):
        return []
    if any(any(y.checked) or y.unwritten for s in indices for y in loads(s)):
        return []  # what an index reads may lie anywhere
    n = run_length(kernel.buffer(r.tensor), r.subscripts, points)
    line = machine.line_bytes // kernel.buffer(r.tensor).dtype.bytes
    if not 0 < n <= MOST_LINES * line:
        return []
    later = minimum(var(loop.variable) + STEPS_AHEAD, loop.upper - 1)
    values = {loop.variable: later, **dict.fromkeys(inner, ZERO)}
    row = substitute_value(replace(r, checked=(), unwritten=None), values)
    assert isinstance(row, Read)
    *before, first = row.subscripts
    assert isinstance(first, Index)
    return [Prefetch(replace(row, subscripts=(*before, first + k))) for k in range(0, n, line)]
