# SPDX-License-Identifier: Apache-2.0
"""Sums down columns -> a version for a single column, which lies in memory as a row.

`Y(b,c) +=! X(b,t,c)` has c in the lanes. With one column all lanes but one are idle, and the terms
are neighbours: X[b, t, 0] is where X[b, 0, t] is. Only the call knows. The version has no loop over
columns, and the last two subscripts the other way round, so that it runs along t, in vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, TRUE, ZERO, eq, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, Value
from tcsym.ir.traverse import loads, map_node, substitute_node
from tcsym.schedule.analysis.access import Subscripts, stride
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import find_loop, loops_in, replace_loop, statements_in
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import SingleColumn, Version

T = TypeVar("T")


def unit_columns(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[SingleColumn]]:
    """A row, for the columns of sums that step through memory by their number."""
    sizes = frozenset(_column_sizes(kernel, find_loop(kernel.body, nest)))
    if len(sizes) == 1:
        (size,) = sizes
        if in_context(kernel, eq(var(size), 1)) != TRUE and can_be_row(kernel, nest, size):
            plan = SingleColumn(size, may_be_short=False)
            yield Version(eq(var(size), 1), plan, "before", keeps_rest=True)


def can_be_row(kernel: Kernel, nest: str, size: str) -> bool:
    """Columns of that size may be left out, where it is one."""
    return _turned(kernel, find_loop(kernel.body, nest), size) is not None


def as_row(kernel: Kernel, nest: str, size: str) -> Kernel:
    """The nest for a single column. Contract: `can_be_row`."""
    turned = _turned(kernel, find_loop(kernel.body, nest), size)
    assert turned is not None
    kernel, row = turned
    return replace(kernel, body=replace_loop(kernel.body, nest, lambda _: row))


def _column_sizes(kernel: Kernel, nest: Loop) -> Iterator[str]:
    """Sizes by which sums step through memory, and which a parallel loop inside the nest has."""
    inside = [x for x in loops_in(nest.body) if size_of(x) is not None]
    sizes = {size_of(x) for x in inside}
    for x, around in statements_in(nest):
        if isinstance(x, Update):
            for r in loads(x.value):
                b = kernel.buffer(r.tensor)
                for y in around:
                    step = stride(b, r.subscripts, y.variable)
                    if y.order == "reduction" and _is_matrix(b) and step == b.shape[-1]:
                        yield from (s for s in sizes if s is not None and step == var(s))


def size_of(x: Loop) -> str | None:
    """The size that is the extent of a parallel loop."""
    terms = extent(x).terms
    if x.order != "parallel" or x.lower != ZERO or x.upper.constant or len(terms) != 1:
        return None
    ((atom, c),) = terms
    return atom if isinstance(atom, str) and c == 1 else None


def _is_matrix(b: Buffer) -> bool:
    return len(b.shape) > 1 and b.strides is None


def _turned(kernel: Kernel, copy: Loop, size: str) -> tuple[Kernel, Loop] | None:
    """Without loops over columns; None if some access is not of the only column."""
    gone = {x.variable for x in loops_in(copy) if size_of(x) == size}
    if copy.variable in gone:
        return None

    def once(x: Node) -> Node:
        if isinstance(x, Loop) and x.variable in gone:
            return substitute_node(x.body, {x.variable: ZERO})
        return x

    node = substitute_node(map_node(copy, once), {size: ONE})
    own = {x.variable for x in loops_in(node)}
    turned = [b for b in kernel.buffers if len(b.shape) > 1 and b.shape[-1] == var(size)]
    names = frozenset(b.name for b in turned)
    used = {name for name, *_ in _places(node)} & names
    if not all(_can_turn(kernel.buffer(b), own) for b in used) or not _is_first(node, names):
        return None
    buffers = []
    for b in kernel.buffers:
        if b.name in used and b.space != "argument":
            b = replace(b, shape=_exchanged(b.shape))
        buffers.append(replace(b, private=b.private - gone))
    row = map_node(node, lambda x: _node(x, names), lambda v: _value(v, names))
    assert isinstance(row, Loop)
    return replace(kernel, buffers=tuple(buffers)), row


def _can_turn(b: Buffer, loops: set[str]) -> bool:
    """In memory as its shape says, or the version's own."""
    return b.strides is None and (b.space == "argument" or bool(b.private & loops))


def _places(node: Node) -> Iterator[tuple[str, Subscripts, bool]]:
    """Buffers and subscripts of all accesses; whether they are checked."""
    for x, _ in statements_in(node):
        if isinstance(x, Store | Update):
            yield x.buffer, x.subscripts, False
        for r in loads(x.value):
            yield r.tensor, r.subscripts, any(r.checked) or r.unwritten is not None


def _is_first(node: Node, names: frozenset[str]) -> bool:
    """All accesses of these are plain ones of the first column."""
    return all(s[-1] == ZERO and not checked for name, s, checked in _places(node) if name in names)


def _exchanged(parts: tuple[T, ...]) -> tuple[T, ...]:
    return (*parts[:-2], parts[-1], parts[-2])


def _node(x: Node, names: frozenset[str]) -> Node:
    if isinstance(x, Store | Update) and x.buffer in names:
        return replace(x, subscripts=_exchanged(x.subscripts))
    return x


def _value(v: Value, names: frozenset[str]) -> Value:
    if isinstance(v, Read) and v.tensor in names:
        return replace(v, subscripts=_exchanged(v.subscripts))
    return v
