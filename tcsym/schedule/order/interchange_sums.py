# SPDX-License-Identifier: Apache-2.0
"""Rows of sums inside the loop over their terms -> that loop inside of each point of the rows.

In a step of linear attention, `S(k,v) = S(k,v) + ..` and `Y(v) +=! Q(k) * S(k,v)` share loops over
k around v: each term would load and store all of Y. With v outside, sums stay in registers. So with
`a(m) +=! X(m,d)`, `b(n) +=! Y(n,d)`, which may share the loop over d: each gets one of its own.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from tcsym.ir.loops import Block, Kernel, Loop, Node, Update, block
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.loops import children, in_loops, replace_loop, statements_in
from tcsym.schedule.analysis.names import Names, rename_loops
from tcsym.schedule.analysis.rows import are_own


def interchange_sums(kernel: Kernel, names: Names) -> Kernel:
    """In loops in order: where rows are made ready, summed in and used in loops of their own, one
    loop over their points does all that, if points touch nothing that others write. Sums outside
    of all points: inside of those of each."""
    for loop, around in tuple(walk(kernel.body)):
        if isinstance(loop, Loop) and not around:
            change = _changed if loop.is_steps else partial(_apart, names=names)
            kernel = replace(kernel, body=replace_loop(kernel.body, loop.variable, change))
    return kernel


def _apart(terms: Loop, names: Names) -> Node:
    """The sums of nests inside the loop over their terms, each with a loop of its own inside."""
    nests = children(terms.body)
    if terms.order != "reduction" or not all(_is_nest(x, terms.variable) for x in nests):
        return terms
    found = [x for x, _ in statements_in(terms)]
    sums = [x.buffer for x in found if isinstance(x, Update)]
    used = [a.buffer for x in nests for a in accesses(x) if not a.written]
    written = [{a.buffer for a in accesses(x) if a.written} for x in nests]
    if len(sums) < len(found) or {*sums} & {*used} or sum(map(len, written)) > len({*sums}):
        return terms
    return block(*(_with_terms(x, terms, names.fresh(terms.variable)) for x in nests))


def _is_nest(x: Node, terms: str) -> bool:
    return (
        isinstance(x, Loop)
        and (x.order, x.kind) == ("parallel", "serial")
        and terms not in x.end_variables
    )


def _with_terms(nest: Node, terms: Loop, name: str) -> Node:
    band: list[Loop] = []
    while isinstance(nest, Loop) and _is_nest(nest, terms.variable):
        band.append(nest)
        nest = nest.body
    inner = rename_loops(replace(terms, body=nest), {terms.variable: name})
    return in_loops(band, inner)


def _changed(scan: Loop) -> Node:
    return replace(scan, body=map_node(scan.body, _joining))


def _joining(node: Node) -> Node:
    """Pairs of a block: a loop over points, and loops of terms around one over the same points."""
    if not isinstance(node, Block):
        return node
    out: list[Node] = []
    for x in node.body:
        joined = _joined(out[-1], x) if out else None
        if joined is None:
            out.append(x)
        else:
            out[-1] = joined
    return block(*out)


def _joined(first: Node, terms: Node) -> Loop | None:
    """One loop over points; None where that is not the pair."""
    if not isinstance(first, Loop) or first.order != "parallel" or first.kind != "serial":
        return None
    points = terms
    sums: list[Loop] = []
    while isinstance(points, Loop) and points.order == "reduction" and points.kind == "serial":
        sums.append(points)
        points = points.body
    if not sums or not isinstance(points, Loop) or points.order != "parallel":
        return None
    bounds = points.lower, points.upper
    moved = points.end_variables
    if (first.lower, first.upper) != bounds or moved & {x.variable for x in sums}:
        return None
    inner = in_loops(sums, rename_loops(points.body, {points.variable: first.variable}))
    node = replace(first, body=block(first.body, inner))
    written = {a.buffer for a in accesses(node.body) if a.written}
    return node if are_own(node.body, first.variable, written) else None
