# SPDX-License-Identifier: Apache-2.0
"""Sums of products of short numbers of any signs, less zero points -> as instructions add them.

Bytes of the signs that it takes, or 16 bits, without zero points. What the sums then owe
(`dot_terms`) is added behind them, of sums of one factor that are made in front of the
nest.
"""

from __future__ import annotations

from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Cast, Const, Expr, IndexValue, Read, dtype_of
from tcsym.index.expr import ZERO, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, block
from tcsym.ir.packed import available
from tcsym.ir.traverse import loads, map_node, substitute_node, subvalues, value_variables
from tcsym.mapping.contraction import Contraction, Sum, contraction
from tcsym.mapping.dot_terms import DotTerm, dot_terms
from tcsym.mapping.nest import Nest, asks, is_found, joined, places
from tcsym.mapping.tree import variables_of
from tcsym.schedule.analysis.loops import replace_loop
from tcsym.schedule.analysis.names import Names, rename_loops
from tcsym.target.machine import Machine
from tcsym.types import DType

INT32 = DType.INT32


def with_signs(
    kernel: Kernel, nest: Nest, machine: Machine, names: Names
) -> tuple[Kernel, tuple[str, ...]]:
    """The kernel, and the outermost loops of nests that it got in front of this one."""
    c = contraction(nest) if available(machine) and not nest.around else None
    if c is None:
        return kernel, ()
    made = list[str]()
    for s in c.sums:
        term = _term(nest, c, s, available(machine))
        if term is not None:
            kernel, tops = _Debts(kernel, nest, s, term, names).paid()
            made += tops
    return kernel, tuple(made)


def _term(nest: Nest, c: Contraction, s: Sum, have: frozenset[str]) -> DotTerm | None:
    """One that owes something, which can be summed in front of the nest."""
    sums = frozenset(x.variable for x in s.loops)
    ends = frozenset[str]().union(*(x.end_variables for x in s.loops))
    for term in dot_terms(s.update, c.columns, sums, have):
        if not term.owed or ends - nest.sizes:
            return None
        if all(_can_sum(nest, x.value) for x in term.owed if x.value is not None):
            return term
    return None


def _can_sum(nest: Nest, value: Expr) -> bool:
    written = {x.accesses[0].buffer for x in nest.statements}
    reads = loads(value)
    return bool(_moving(value) & {*nest.names}) and not written & {r.tensor for r in reads}


class _Debts(Struct, frozen=True):
    kernel: Kernel
    nest: Nest
    sum: Sum
    term: DotTerm
    names: Names

    def paid(self) -> tuple[Kernel, list[str]]:
        kernel, x = self.kernel, self.sum.update
        b, added, tops = kernel.buffer(x.buffer), list[Expr](), list[str]()
        for y in self.term.owed:
            value: Expr = IndexValue(product_of(map(extent, self.sum.loops)), INT32)
            if y.value is not None:
                kernel, value, top = self._summed(kernel, y.value)
                tops.append(top)
            added.append(Binary("mul", y.factor, value, INT32))
        total = reduce(lambda p, q: Binary("add", p, q, INT32), added)
        old = Read(x.buffer, x.subscripts, b.dtype)
        owed = Store(x.buffer, x.subscripts, Binary("add", old, total, b.dtype), x.name)
        loop, left, right = (
            self.sum.loops[0].variable,
            *(Cast(v, INT32) for v in (self.term.left, self.term.right)),
        )
        term = replace(x, value=Binary("mul", left, right, INT32))

        def of_sum(n: Node) -> Node:
            if isinstance(n, Loop) and n.variable == loop:
                return block(map_node(n, lambda z: term if z == x else z), owed)
            return n

        body = replace_loop(kernel.body, self.nest.top.variable, lambda n: map_node(n, of_sum))
        return replace(kernel, body=body), tops

    def _summed(self, kernel: Kernel, value: Expr) -> tuple[Kernel, Expr, str]:
        """A sum for each point of the loops of the band that move the value."""
        moving = _moving(value)
        band = [x for x in self.nest.band if x.variable in moving]
        name = self.names.fresh("owed")
        at = tuple(var(x.variable) - x.lower for x in band)
        loops = self._terms(value)
        left_out = {x.variable for x in self.sum.loops} - {x.variable for x in loops}
        node: Node = Update(name, at, "add", _as_int32(value), name)
        node = substitute_node(node, dict.fromkeys(left_out, ZERO))
        for x in reversed(loops):
            node = replace(x, body=node)
        node = block(Store(name, at, Const(0, INT32), name), node)
        for x in reversed(band):
            node = replace(x, body=node)
        new = {x.variable: self.names.fresh(x.variable) for x in (*band, *loops)}
        node = rename_loops(node, new)
        buffer = Buffer(name, INT32, tuple(map(extent, band)), "arena")
        top = self.nest.top.variable
        body = replace_loop(kernel.body, top, lambda n: block(node, n))
        kernel = replace(kernel, body=body).with_buffer(buffer)
        return kernel, Read(name, at, INT32), new[band[0].variable]

    def _terms(self, value: Expr) -> list[Loop]:
        """Loops of the sum, as one as far as terms follow one another."""
        (read, *others), loops = loads(value), list(self.sum.loops)
        own = frozenset(x.variable for x in loops)
        if others or is_found(read) or any(asks(v, own) for v in subvalues(value)):
            return loops
        return joined(self.nest.buffers[read.tensor], places(read), loops)


def _moving(value: Expr) -> frozenset[str]:
    """Variables of the places that the value reads, and of what it asks."""
    return variables_of(s for r in loads(value) for s in places(r)) | value_variables(value)


def _as_int32(v: Expr) -> Expr:
    return v if dtype_of(v) is INT32 else Cast(v, INT32)
