# SPDX-License-Identifier: Apache-2.0
"""Neighbouring branches on one condition -> one branch: sizes are then compared and used once.

Layers of equal sizes choose their versions alike, and the formulas of a version (its tiles, its
chunks) are computed anew in every branch, because no branch knows what another one computed.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.ir.loops import Block, Branch, Kernel, Loop, Node, block
from tcsym.ir.traverse import map_inner


def merge_branches(kernel: Kernel) -> Kernel:
    """Outside of loops that run on threads or in lanes. Conditions read no memory."""
    return replace(kernel, body=_merged(kernel.body))


def _merged(node: Node) -> Node:
    match node:
        case Block(body):
            return block(*map(_inside, _joined(body)))
        case _:
            return _inside(node)


def _inside(node: Node) -> Node:
    if isinstance(node, Loop) and node.kind != "serial":
        return node
    return map_inner(node, _merged)


def _joined(body: tuple[Node, ...]) -> list[Node]:
    out: list[Node] = []
    for x in body:
        last = out[-1] if out else None
        if isinstance(x, Branch) and isinstance(last, Branch) and x.condition == last.condition:
            arms = [n for n in (last.orelse, x.orelse) if n is not None]
            orelse = block(*arms) if arms else None
            out[-1] = Branch(x.condition, block(last.then, x.then), orelse)
        else:
            out.append(x)
    return out
