# SPDX-License-Identifier: Apache-2.0
"""Loops and branches that never run, whatever the sizes -> nothing (substituted sizes leave such
main loops, and statements of sums without terms)."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import FALSE, TRUE
from tcsym.ir.loops import Block, Branch, Kernel, Loop, Node
from tcsym.ir.traverse import map_node

EMPTY = Block(())


def drop_empty(kernel: Kernel) -> Kernel:
    """Without loops whose extent is a constant <= 0, without branches that are known never to be
    taken, and what has nothing else inside."""
    return replace(kernel, body=map_node(kernel.body, _kept))


def _kept(n: Node) -> Node | None:
    match n:
        case Loop():
            extent = (n.upper - n.lower).as_int()
            never = extent is not None and extent <= 0
            return None if never or n.body == EMPTY else n
        case Branch(condition, then, orelse) if condition in (TRUE, FALSE):
            return then if condition == TRUE else orelse
        case Branch(_, then, orelse):
            return None if then == EMPTY and orelse in (None, EMPTY) else n
        case _:
            return n
