# SPDX-License-Identifier: Apache-2.0
"""Which buffers a node touches, and where, for passes that look at one buffer after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from msgspec.structs import replace

from tcsym.index.expr import Index
from tcsym.ir.device import DeviceNode, OnDevice
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Verify,
)
from tcsym.schedule.analysis.access import Access, accesses
from tcsym.schedule.analysis.blocks import read_first, touches, users, with_parts

Leaf = Store | Update | Verify | TransposeBlock | OnDevice


def uses_in(node: Node, buffer: str) -> Iterator[tuple[Access, tuple[Loop, ...]]]:
    """Accesses of the buffer with the loops around them."""
    for n, loops in nodes_with(node, buffer):
        if not isinstance(n, Branch):
            yield from ((a, loops) for a in accesses(n) if a.buffer == buffer)


def nodes_with(node: Node, buffer: str) -> Iterator[tuple[Branch | Leaf, tuple[Loop, ...]]]:
    """Statements that touch the buffer, and branches around such, with the loops around."""
    empty: tuple[Loop, ...] = ()
    todo = [(node, empty)]
    while todo:
        n, loops = todo.pop()
        match n:
            case Block(body):
                todo += [(body[k], loops) for k in reversed(users(n, buffer))]
            case Loop():
                todo.append((n.body, (*loops, n)))
                todo += [(x, loops) for x in read_first(n)]
            case Branch(_, a, b):
                if touches(n, buffer):
                    yield n, loops
                    todo += [(x, loops) for x in (b, a) if x is not None]
            case Allocate(_, body):
                todo.append((body, loops))
            case Store() | Update() | Verify() | TransposeBlock() | DeviceNode():
                if touches(n, buffer):
                    yield n, loops
            case _:
                assert_never(n)


def rewrite_uses(node: Node, buffer: str, change: Callable[[Leaf], Node]) -> Node:
    """`node` with `change` applied to the statements that touch the buffer."""
    match node:
        case Block(body):
            parts = {k: rewrite_uses(body[k], buffer, change) for k in users(node, buffer)}
            return with_parts(node, parts) if parts else node
        case Loop():
            return _rewrite_loop(node, buffer, change)
        case Allocate():
            inner = rewrite_uses(node.body, buffer, change)
            return node if inner is node.body else replace(node, body=inner)
        case Branch(c, a, b):
            then, orelse = rewrite_uses(a, buffer, change), b and rewrite_uses(b, buffer, change)
            return node if then is a and orelse is b else Branch(c, then, orelse)
        case Store() | Update() | Verify() | TransposeBlock() | DeviceNode():
            return change(node) if touches(node, buffer) else node
        case _:
            assert_never(node)


def _rewrite_loop(loop: Loop, buffer: str, change: Callable[[Leaf], Node]) -> Node:
    inner = rewrite_uses(loop.body, buffer, change)
    found = {"body": inner} if inner is not loop.body else {}
    for name, x in (("at", loop.at), ("value", loop.value)):
        first = None if x is None or isinstance(x, Index) else Verify(x)
        if first is not None and touches(first, buffer):
            changed = change(first)
            assert isinstance(changed, Verify)
            found[name] = changed.value  # type: ignore[assignment]
    return replace(loop, **found) if found else loop
