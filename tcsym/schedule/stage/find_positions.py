# SPDX-License-Identifier: Apache-2.0
"""Operands of products at positions that tensors hold -> the same, found and checked once before.

`W(e(g),k,m)` lies at the same position for all rows, columns and terms of product `g`: an expert's
weights, a page of a cache. Asked at every term, whether it is inside stands between the products.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Const, Expr, IndexValue, Read
from tcsym.index.expr import Condition, Index, all_of, any_of, ge, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    Verify,
    block,
    conditional,
)
from tcsym.ir.traverse import loads, map_node, substitute_value, walk
from tcsym.schedule.analysis.access import accesses, subscript_variables
from tcsym.schedule.analysis.band import band_of, factors, reductions
from tcsym.schedule.analysis.loops import find_loop, loops_around, loops_in, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.types import DType


class _Found(Struct, frozen=True):
    """`read` by `update`, at positions that `loops`, the outer ones, move; `rest` are all others
    around it, of which `sums` are the update's own."""

    read: Read
    update: Update
    loops: tuple[Loop, ...]
    rest: tuple[Loop, ...]
    sums: tuple[Loop, ...]

    @property
    def is_made(self) -> Condition:
        """The nest makes it, whatever the loops that move its positions are at."""
        return all_of(ge(extent(x), 1) for x in self.rest)

    def is_safe(self, kernel: Kernel) -> Condition:
        """The tensor has elements, or the sum no terms: what is out of range reads one of these."""
        shape = kernel.buffer(self.read.tensor).shape
        some = all_of(ge(n, 1) for n, checked in zip(shape, self.read.checked) if checked)
        return any_of((some, *(ge(0, extent(x)) for x in self.sums)))


def find_positions(kernel: Kernel, nests: Iterable[str], names: Names) -> Kernel:
    """In every nest that no loop is around. Contract: the bounds of its loops are final."""
    for nest in nests:
        if not loops_around(kernel.body, nest):
            kernel = _in_nest(kernel, nest, names)
    return kernel


def _in_nest(kernel: Kernel, nest: str, names: Names) -> Kernel:
    found = tuple(dict.fromkeys(_found(kernel, find_loop(kernel.body, nest))))
    safe = all_of(x.is_safe(kernel) for x in found)
    for x in {x.read: x for x in found}.values():
        made = any_of(y.is_made for y in found if y.read == x.read)
        kernel = _at_positions(kernel, nest, x, made, names)
    body = replace_loop(kernel.body, nest, lambda loop: conditional(safe, loop))
    return replace(kernel, body=body)


def _found(kernel: Kernel, top: Loop) -> Iterable[_Found]:
    band = band_of(top)
    if not band.loops or not _depend_on_sizes(kernel, loops_in(top)):
        return
    if any(isinstance(x, Branch) for x, _ in walk(top)):
        return
    written = {a.buffer for a in accesses(top) if a.written}
    for x, sums in reductions(band.body):
        along = {y.variable for y in sums}
        for r in factors(x):
            if not along <= subscript_variables(r.subscripts):
                continue  # where no term is, others may read all of it: to fill a panel
            moving = _moving(r, written) - frozenset(kernel.sizes)
            loops = tuple(y for y in band.loops if y.variable in moving)
            rest = tuple(y for y in (*band.loops, *sums) if y.variable not in moving)
            if loops and len(loops) < len(band.loops) and moving <= {y.variable for y in loops}:
                yield _Found(r, x, loops, rest, sums)


def _moving(r: Read, written: set[str]) -> frozenset[str]:
    """Loops that move the read's checked subscripts; none if these are to be checked where used."""
    checked = tuple(s for s, c in zip(r.subscripts, r.checked) if c)
    inside = [y for s in checked if not isinstance(s, Index) for y in loads(s)]
    plain = all(y.tensor not in written and y.unwritten is None for y in inside)
    plain = plain and not any(any(y.checked) for y in inside)
    if not plain or r.unwritten is not None or r.tensor in written:
        return frozenset()
    return subscript_variables(checked)


def _at_positions(kernel: Kernel, nest: str, x: _Found, made: Condition, names: Names) -> Kernel:
    """The positions in tensors of their own, filled before the nest, which reads those."""
    new = {y.variable: names.fresh(y.variable) for y in x.loops}
    values = {old: var(v) for old, v in new.items()} | {y.variable: y.lower for y in x.rest}
    moved = substitute_value(x.read, values)
    assert isinstance(moved, Read)
    place = tuple(var(y.variable) - y.lower for y in x.loops)
    at = tuple(substitute(s, values) for s in place)
    before: list[Node] = [conditional(made, Verify(moved, x.update.name))]
    subscripts = list(x.read.subscripts)
    for d, checked in enumerate(x.read.checked):
        if checked:
            own = Buffer(names.fresh("position"), DType.INT64, tuple(map(extent, x.loops)), "arena")
            inside = _kept_inside(moved.subscripts[d], kernel.buffer(moved.tensor).shape[d])
            kernel = kernel.with_buffer(own)
            before.append(Store(own.name, at, inside, x.update.name))
            subscripts[d] = Read(own.name, place, DType.INT64)
    node = block(*before)
    for y in reversed(x.loops):
        node = Loop(new[y.variable], y.lower, y.upper, node, "serial", "parallel")
    found = replace(x.read, subscripts=tuple(subscripts), checked=())
    body = replace_loop(kernel.body, nest, lambda y: block(node, _reading(y, x.read, found)))
    return replace(kernel, body=body)


def _reading(nest: Node, old: Read, new: Read) -> Node:
    return map_node(nest, on_value=lambda v: new if v == old else v)


def _kept_inside(subscript: Index | Expr, extent: Index) -> Expr:
    """The subscript, or the nearest one of an element that there is."""
    kind = DType.INT64
    least: Expr = IndexValue(subscript, kind) if isinstance(subscript, Index) else subscript
    least = Binary("max", least, Const(0, kind), kind)
    return Binary("min", least, IndexValue(extent - 1, kind), kind)


def _depend_on_sizes(kernel: Kernel, loops: Iterable[Loop]) -> bool:
    """No bound of the loops moves with another loop."""
    used = frozenset[str]().union(*(x.end_variables for x in loops))
    return used <= frozenset(kernel.sizes)
