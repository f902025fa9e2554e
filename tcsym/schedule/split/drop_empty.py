# SPDX-License-Identifier: Apache-2.0
"""Loops and branches that never run, whatever the sizes -> nothing (substituted sizes leave such
main loops, and statements of sums without terms). Sums of one term -> that."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import FALSE, ONE, TRUE
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Block, Branch, Kernel, Loop, Node
from tcsym.ir.traverse import map_node, substitute_node
from tcsym.schedule.analysis.loops import loops_in
from tcsym.schedule.analysis.names import replace_private

EMPTY = Block(())


def drop_empty(kernel: Kernel) -> Kernel:
    """Without loops whose extent is a constant <= 0, without branches that are known never to be
    taken, and what has nothing else inside."""
    return replace(kernel, body=map_node(kernel.body, _kept))


def _kept(n: Node) -> Node | None:
    match n:
        case Loop():
            points = extent(n).as_int()
            never = points is not None and points <= 0
            return None if never or n.body == EMPTY else n
        case Branch(condition, then, orelse) if condition in (TRUE, FALSE):
            return then if condition == TRUE else orelse
        case Branch(_, then, orelse):
            return None if then == EMPTY and orelse in (None, EMPTY) else n
        case _:
            return n


def drop_single(kernel: Kernel) -> Kernel:
    """Reduction loops of one iteration replaced by it."""

    def change(x: Node) -> Node:
        if isinstance(x, Loop) and _is_single(x):
            return substitute_node(x.body, {x.variable: x.lower})
        return x

    gone = {x.variable for x in loops_in(kernel.body) if _is_single(x)}
    if not gone:
        return kernel
    kernel = replace(kernel, body=map_node(kernel.body, change))
    return replace_private(kernel, dict.fromkeys(gone, ()))


def _is_single(x: Loop) -> bool:
    return x.order == "reduction" and extent(x) == ONE
