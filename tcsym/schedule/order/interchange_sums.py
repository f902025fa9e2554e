# SPDX-License-Identifier: Apache-2.0
"""Rows of sums inside the loop over their terms -> that loop inside of each point of the rows.

In a step of linear attention, `S(k,v) = S(k,v) + ..` and `Y(v) +=! Q(k) * S(k,v)` share loops over
k around v: each term would load and store all of Y. With v outside, sums stay in registers.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.ir.loops import Block, Kernel, Loop, Node, block
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.loops import in_loops, replace_loop
from tcsym.schedule.analysis.names import rename_loops
from tcsym.schedule.analysis.rows import are_own


def interchange_sums(kernel: Kernel) -> Kernel:
    """In loops in order: where rows are made ready, summed in and used in loops of their own, one
    loop over their points does all that, if points touch nothing that others write."""
    for loop, around in tuple(walk(kernel.body)):
        if isinstance(loop, Loop) and loop.is_steps and not around:
            kernel = replace(kernel, body=replace_loop(kernel.body, loop.variable, _changed))
    return kernel


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
    moved = points.lower.variables() | points.upper.variables()
    if (first.lower, first.upper) != bounds or moved & {x.variable for x in sums}:
        return None
    inner = in_loops(sums, rename_loops(points.body, {points.variable: first.variable}))
    node = replace(first, body=block(first.body, inner))
    written = {a.buffer for a in accesses(node.body) if a.written}
    return node if are_own(node.body, first.variable, written) else None
