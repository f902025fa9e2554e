# SPDX-License-Identifier: Apache-2.0
"""A long scatter -> parts on threads, with copies of what they add to, or with their own columns.

`H[bin[i]] += W[i]` runs in the order of i, as two terms may meet. Threads either take runs of
terms, and each has a whole H for these, which are combined in their order; or they own columns of
rows, `G[id[j], d] += Y[j, d]`, and go through all rows. So results are the same in every call with
as many threads.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ZERO, Index, ceildiv, maximum, minimum, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, block
from tcsym.ir.traverse import loads, map_node
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import (
    loops_around,
    loops_in,
    position_in,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.names import Names

COPY_TERMS = 16  # of an element of a copy, for which that is set and added up


class Scatter(Struct, frozen=True):
    """All that the scan `loop` does. rows: parallel loops inside, around the update; terms: of all
    its loops; elements: positions they meet in."""

    loop: Loop
    update: Update
    rows: tuple[Loop, ...]
    terms: Index
    elements: Index


def scatter_of(kernel: Kernel, loop: Loop) -> Scatter | None:
    """That of an outermost loop, if it is one update, of elements that are not read."""
    position = position_in(loop)
    inside = [x for x, _ in statements_in(position.body)] if position is not None else []
    if position is None or len(inside) != 1 or not isinstance(inside[0], Update):
        return None
    update, sizes = inside[0], frozenset(kernel.sizes)
    around = [*loops_around(loop, position.variable), position]
    rows = [x for x in loops_in(position.body) if x.order == "parallel"]
    positions = [x for x in around if x.at is not None]
    plain = {var(x.variable) for x in (*positions, *rows)}
    bounds = (x.end_variables for x in around)
    if not set(update.subscripts) <= plain or not frozenset[str]().union(*bounds) <= sizes:
        return None
    if any(r.tensor == update.buffer for r in loads(update.value)):
        return None
    terms = [maximum(ZERO, extent(x)) for x in around if x.at is None]
    elements = [maximum(1, extent(x)) for x in positions]
    return Scatter(loop, update, tuple(rows), product_of(terms), product_of(elements))


def scatter_columns(kernel: Kernel, found: Scatter, parts: Index, names: Names) -> Kernel:
    """Every thread goes through all terms, for its own part of the outermost of the rows' loops."""
    part = names.fresh(found.rows[0].variable)

    def block_of(x: Loop) -> Loop:
        size = ceildiv(extent(x), parts)
        first = x.lower + var(part) * size
        return replace(x, lower=first, upper=minimum(x.upper, first + size))

    body = replace_loop(found.loop, found.rows[0].variable, block_of)
    own = Loop(part, ZERO, parts, body, "serial", "parallel")
    return replace(kernel, body=replace_loop(kernel.body, found.loop.variable, lambda _: own))


def scatter_copies(
    kernel: Kernel, found: Scatter, parts: Index, most: Index, names: Names
) -> Kernel:
    """Every thread takes some of the terms, and adds them into a copy of the target.

    most: the copies there is memory for, a bound of `parts`.
    """
    loop, target = found.loop, kernel.buffer(found.update.buffer)
    shape = (maximum(1, most), *target.shape)
    own = Buffer(names.fresh(f"{target.name}_parts"), target.dtype, shape, "arena")
    part = names.fresh(loop.variable)
    size = ceildiv(extent(loop), parts)
    first = loop.lower + var(part) * size
    end = minimum(loop.upper, first + size)
    run = _redirected(replace(loop, lower=first, upper=end), target.name, own.name, part)
    neutral, name = identity(found.update.op, target.dtype), found.update.name
    start = _over(target, names, lambda at: Store(own.name, (var(part), *at), neutral, name))
    last = names.fresh(loop.variable)

    def combined(at: tuple[Index, ...]) -> Node:
        term = Read(own.name, (var(last), *at), target.dtype)
        add = Update(target.name, at, found.update.op, term, name)
        return Loop(last, ZERO, parts, add, "serial", "reduction")

    both = Loop(part, ZERO, parts, block(start, run), "serial", "parallel")
    node = block(both, _over(target, names, combined))
    body = replace_loop(kernel.body, loop.variable, lambda _: node)
    return replace(kernel.with_buffer(own), body=body)


def _redirected(node: Node, target: str, own: str, part: str) -> Node:
    def statement(x: Node) -> Node:
        if isinstance(x, Update) and x.buffer == target:
            return replace(x, buffer=own, subscripts=(var(part), *x.subscripts))
        return x

    return map_node(node, statement)


def _over(target: Buffer, names: Names, statement: Callable[[tuple[Index, ...]], Node]) -> Node:
    """A statement for each element of the target."""
    variables = [names.fresh(target.name) for _ in target.shape]
    node = statement(tuple(map(var, variables)))
    for v, n in reversed(list(zip(variables, target.shape))):
        node = Loop(v, ZERO, n, node, "serial", "parallel")
    return node
