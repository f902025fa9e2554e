# SPDX-License-Identifier: Apache-2.0
"""Proved privacy of temporaries -> subscripts in which it shows."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tcsym.frontend.program import Expr, Read
from tcsym.index.expr import ZERO, Index, var
from tcsym.index.linear import linear_coefficient
from tcsym.ir.bounds import eliminate, extent_from
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, Value
from tcsym.ir.traverse import map_node
from tcsym.schedule.analysis.access import Access, Subscripts, value_variables
from tcsym.schedule.analysis.loops import replace_loop
from tcsym.schedule.analysis.touched import rewrite_uses, uses_in

Uses = Iterable[tuple[Access, tuple[Loop, ...]]]


def privatise(kernel: Kernel) -> Kernel:
    """Every temporary's subscripts move alike with each loop that it is private to.

    A temporary without the loop variable in any subscript gets a dimension for it; where accesses
    disagree, the loop is no longer taken as private, and so runs in order. Afterwards the terms of
    private loops may be dropped from all subscripts of a buffer (`contract_storage`).
    """
    for b in kernel.buffers:
        if b.space != "argument" and b.private:
            kernel = _privatise_one(kernel, b)
    return kernel


def _privatise_one(kernel: Kernel, b: Buffer) -> Kernel:
    around = _common_loops(kernel.body, b.name)
    kernel = kernel.with_buffer(replace(b, private=b.private & {x.variable for x in around}))
    for k, loop in reversed(
        tuple(enumerate(around))
    ):  # so that inner loops get the later dimensions
        if loop.variable not in kernel.buffer(b.name).private:
            continue
        moves = _moves(uses_in(kernel.body, b.name), loop.variable)
        if moves is None:
            kernel = _give_up(kernel, b.name, loop.variable)
        elif all(c == ZERO for c in moves):
            kernel = _add_dimension(kernel, b.name, loop, around[:k])
    return kernel


def _common_loops(node: Node, buffer: str) -> tuple[Loop, ...]:
    """Loops around every access of `buffer`, outermost first."""
    common: tuple[Loop, ...] | None = None
    for _, around in uses_in(node, buffer):
        if common is None:
            common = around
        n = next(
            (k for k, (a, b) in enumerate(zip(common, around)) if a.variable != b.variable), None
        )
        common = common[: min(len(common), len(around)) if n is None else n]
    return common or ()


def _moves(uses: Uses, variable: str) -> tuple[Index, ...] | None:
    """Coefficient of `variable` in each subscript, if all accesses agree."""
    found: set[tuple[Index, ...]] = set()
    for a, _ in uses:
        coefficients = tuple(_coefficient(s, variable) for s in a.subscripts)
        known = tuple(c for c in coefficients if c is not None)
        if len(known) < len(coefficients):
            return None
        found.add(known)
    return found.pop() if len(found) == 1 else None


def _coefficient(s: Index | Expr, variable: str) -> Index | None:
    if isinstance(s, Index):
        return linear_coefficient(s, variable)
    return None if variable in value_variables(s) else ZERO


def _give_up(kernel: Kernel, buffer: str, variable: str) -> Kernel:
    b = kernel.buffer(buffer)
    body = replace_loop(
        kernel.body, variable, lambda x: replace(x, order="sequential", independent=False)
    )
    return replace(kernel, body=body).with_buffer(replace(b, private=b.private - {variable}))


def _add_dimension(kernel: Kernel, buffer: str, loop: Loop, outer: tuple[Loop, ...]) -> Kernel:
    least, most = eliminate(loop.lower, outer, False), eliminate(loop.upper, outer, True)
    if least is None or most is None:
        return _give_up(kernel, buffer, loop.variable)
    b = kernel.buffer(buffer)
    n = extent_from(most - least, frozenset(kernel.sizes))
    new = replace(b, shape=(n, *b.shape), strides=None)
    body = prefix_subscript(kernel.body, buffer, var(loop.variable) - least)
    return replace(kernel, body=body).with_buffer(new)


def prefix_subscript(node: Node, buffer: str, subscript: Index) -> Node:
    """`node` with a first subscript added to every access of `buffer`."""

    def statement(x: Node) -> Node:
        if isinstance(x, Store | Update) and x.buffer == buffer:
            return replace(x, subscripts=(subscript, *x.subscripts))
        return x

    def value(v: Value) -> Value:
        if isinstance(v, Read) and v.tensor == buffer:
            subscripts: Subscripts = (subscript, *v.subscripts)
            return replace(
                v, subscripts=subscripts, checked=(False, *v.checked) if v.checked else ()
            )
        return v

    return rewrite_uses(node, buffer, lambda n: map_node(n, statement, value))
