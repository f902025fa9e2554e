# SPDX-License-Identifier: Apache-2.0
"""Two loops of a band -> one, so that register tiles run on from one row into the next.

Rows of images are rarely a multiple of a tile. Rows of a tile are addressed one by one and may lie
anywhere. Its columns are vectors: all accesses but those of packed operands must follow evenly, so
that only the copies into panels see the seam (`contraction.copy_across`).
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import IndexValue, Read
from tcsym.index.expr import ONE, ZERO, Index, floordiv, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Holds, Kernel, Loop, Node, Value
from tcsym.ir.traverse import substitute_node, subvalues
from tcsym.schedule.analysis.access import (
    Subscripts,
    accesses,
    offset_stride,
    subscript_variables,
)
from tcsym.schedule.analysis.band import Band
from tcsym.schedule.analysis.loops import find_loop, replace_loop, statements_in
from tcsym.schedule.order.interchange import can_sink


def can_fuse(kernel: Kernel, band: Band, outer: str, inner: str) -> bool:
    """One loop can take the place of both: no bound, condition or value asks where a point is."""
    names = frozenset((outer, inner))
    if band.variables.index(outer) > band.variables.index(inner) or _bounds_move(band, names):
        return False
    if any(uses_position(x.value, names) for x, _ in statements_in(band.body)):
        return False
    for a in accesses(band.body):
        b = kernel.buffer(a.buffer)
        if b.space != "argument" and len(names & b.private) == 1:
            return False
    return extent(band.loop(outer)) != ONE


def follows_evenly(kernel: Kernel, band: Band, outer: str, inner: str) -> bool:
    """All addresses move by n*s with `outer` and by s with `inner` of n iterations.

    Those of panels are made so by `redirect_operand`.
    """
    names, n = frozenset((outer, inner)), extent(band.loop(inner))
    for a in accesses(band.body):
        b = kernel.buffer(a.buffer)
        own = b.space != "argument" and (b.padded or names <= b.private)
        if own or not names & subscript_variables(a.subscripts):
            continue
        if not are_even(b, a.subscripts, outer, inner, n):
            return False
    return True


def are_even(b: Buffer, subscripts: Subscripts, outer: str, inner: str, n: Index) -> bool:
    """The address moves n times as far with `outer` as with `inner`."""
    far, near = offset_stride(b, subscripts, outer), offset_stride(b, subscripts, inner)
    return far is not None and near is not None and far == near * n


def stores_follow(kernel: Kernel, band: Band, outer: str, columns: str) -> bool:
    """What is stored runs on from one row of columns into the next."""
    n = extent(band.loop(columns))
    stores = [a for a in accesses(band.body) if a.written and not kernel.buffer(a.buffer).private]
    return all(are_even(kernel.buffer(a.buffer), a.subscripts, outer, columns, n) for a in stores)


def _bounds_move(band: Band, names: frozenset[str]) -> bool:
    """Some bound or condition in the band uses one of the loops, or their bounds another one."""
    used = frozenset[str]().union(
        *(x.lower.variables() | x.upper.variables() for x in band.loops if x.variable not in names)
    )
    own = frozenset[str]().union(
        *(x.lower.variables() | x.upper.variables() for x in band.loops if x.variable in names)
    )
    moved = used & names or own & frozenset(band.variables)
    return bool(moved) or not can_sink(band.body, names)


def uses_position(v: Value, names: frozenset[str]) -> bool:
    """A value, not just an address, depends on where in a row the point is."""
    for x in subvalues(v):
        if isinstance(x, IndexValue) and x.index.variables() & names:
            return True
        if isinstance(x, Holds) or (isinstance(x, Read) and (x.unwritten or any(x.checked))):
            return True
    return False


def fused_position(outer: Loop, inner: Loop, at: Index) -> dict[str, Index]:
    """What both loops' variables are at a position of the fused loop."""
    n = extent(inner)
    quotient = floordiv(at, n)
    return {
        outer.variable: outer.lower + quotient,
        inner.variable: inner.lower + at - n * quotient,
    }


def fuse_loops(kernel: Kernel, outer: str, inner: str, new: str) -> Kernel:
    """Loop `new` in the place of `inner`, over all points of both. Needs `can_fuse`."""
    rows, columns = find_loop(kernel.body, outer), find_loop(kernel.body, inner)
    count = extent(rows) * extent(columns)

    def fused(x: Loop) -> Node:
        body = substitute_node(x.body, fused_position(rows, columns, var(new)))
        return replace(x, variable=new, lower=ZERO, upper=count, body=body)

    body = replace_loop(kernel.body, inner, fused)
    body = replace_loop(body, outer, lambda x: x.body)
    both = {outer, inner}
    buffers = tuple(
        replace(b, private=(b.private - both) | {new}) if both <= b.private else b
        for b in kernel.buffers
    )
    return replace(kernel, body=body, buffers=buffers)
