# SPDX-License-Identifier: Apache-2.0
"""Positions that are read -> not checked one by one where sizes tell that all are inside.

`Y(2*i + min(at(i), 2)) += X(i)`, where `at` holds bytes: whether the least and the last of these
are inside is asked once in front of the loops (range-check elimination by loop versioning).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tcsym.frontend.program import Const, Expr, Read, Select, dtype_of
from tcsym.index.expr import FALSE, ZERO, Condition, Index, all_of, ge
from tcsym.ir.bounds import eliminate, relax
from tcsym.ir.loops import (
    Branch,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    Value,
    Verify,
)
from tcsym.ir.traverse import map_inner, map_node, map_value, subvalues, walk
from tcsym.ir.value_range import value_range
from tcsym.schedule.analysis.access import subscript_variables
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.version.versioning import Copies
from tcsym.types import DType

Position = tuple[Expr, Index]  # a subscript, and the extent of its dimension
Inside = dict[Position, Condition]  # that all of its values are inside


def assume_inside(kernel: Kernel, names: Names) -> Kernel:
    """Loops that move such positions in two versions. Contract: masks and threads are final."""
    inside: Inside = {}
    moved = frozenset[str]()
    sizes = frozenset(kernel.sizes)
    for n, around in walk(kernel.body):
        for e, extent in _positions(kernel, n):
            ends = value_range(e)
            if ends is None:
                continue
            low, high = (_bound(x, around, sizes, x is ends[1]) for x in ends)
            if low is None or high is None:
                continue
            fits = all_of((ge(low, 0), ge(extent - 1, high)))
            if fits != FALSE:
                inside[e, extent] = all_of((fits, inside.get((e, extent), fits)))
                moved |= subscript_variables(ends) or subscript_variables((e,))
    if not inside:
        return kernel
    copies = Copies(kernel, names)
    body = _versions(copies, kernel.body, inside, moved)
    return replace(copies.kernel, body=body)


def _bound(e: Index, around: tuple[Loop, ...], sizes: frozenset[str], high: bool) -> Index | None:
    found = eliminate(e, around, high)
    return None if found is None else relax(found, sizes, high)


def _positions(kernel: Kernel, n: Node) -> Iterator[Position]:
    match n:
        case Store() | Update() | Verify():
            for x in subvalues(n.value):
                if isinstance(x, Read):
                    shape = kernel.buffer(x.tensor).shape
                    for s, extent, checked in zip(x.subscripts, shape, x.checked):
                        if checked and not isinstance(s, Index):
                            yield s, extent
        case Loop(lower=lower, at=at) if at is not None and not isinstance(at, Index):
            if lower == ZERO:
                yield _place(at), n.upper


def _place(at: Expr) -> Expr:
    """Of a position that there is under a condition only: nothing is added where it does not hold,
    so that all of them may run if they are inside."""
    match at:
        case Select(_, place, Const(-1)):
            return place
    return at


def _versions(copies: Copies, n: Node, inside: Inside, moved: frozenset[str]) -> Node:
    def go(x: Node) -> Node:
        return _versions(copies, x, inside, moved)

    if not isinstance(n, Loop) or n.variable not in moved:
        return map_inner(n, go)
    kernel = copies.kernel
    found = [p for x, _ in walk(n) for p in _positions(kernel, x) if p in inside]
    if not found:
        return n
    plain = map_node(n, lambda x: _unchecked(kernel, x, inside))
    return Branch(all_of(inside[p] for p in found), copies.of(plain), n)


def _unchecked(kernel: Kernel, n: Node, inside: Inside) -> Node | None:
    def read(v: Value) -> Value:
        if not isinstance(v, Read) or not any(v.checked):
            return v
        dims = zip(v.subscripts, kernel.buffer(v.tensor).shape, v.checked)
        left = tuple(checked and (e, extent) not in inside for e, extent, checked in dims)
        return replace(v, checked=left if any(left) else ())

    match n:
        case Store() | Update():
            return replace(n, value=map_value(n.value, read, lambda i: i))
        case Verify((Read() as r) | Select(_, Read() as r, Const())):
            left = map_value(r, read, lambda i: i)
            assert isinstance(left, Read)
            needed = left.checked or r.unwritten is not None
            value = left if n.value is r else replace(n.value, then=left)
            return replace(n, value=value) if needed else None
        case Loop(at=at) if at is not None and not isinstance(at, Index) and n.lower == ZERO:
            place = _place(at)
            if (place, n.upper) not in inside:
                return n
            assert dtype_of(place) is DType.INT64
            return replace(n, at=None, value=place)
        case _:
            return n
