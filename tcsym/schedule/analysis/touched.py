"""Which buffers a node touches, for passes that look at one buffer after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never, cast

from msgspec.structs import replace

from tcsym.frontend.program import Expr
from tcsym.index.expr import Index
from tcsym.ir.device import DeviceNode, OnDevice
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Loop,
    Node,
    Prefetch,
    Store,
    TransposeBlock,
    Update,
    Verify,
    block,
)
from tcsym.schedule.analysis.access import Access, accesses

Leaf = Store | Update | Verify | Prefetch | TransposeBlock | OnDevice


class Touched:
    """Buffers read or written in a node, found once for every node object.

    Passes keep the nodes they do not change, so what is known of those serves the next buffer.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[frozenset[str], Node]] = {}  # the node keeps its id alive

    def __call__(self, node: Node) -> frozenset[str]:
        known = self._found.get(id(node))
        if known is None:
            known = self._found[id(node)] = (self._buffers(node), node)
        return known[0]

    def _buffers(self, n: Node) -> frozenset[str]:
        match n:
            case Block(body):
                return frozenset[str]().union(*map(self, body))
            case Loop():
                return self(n.body) | {a.buffer for x in _read_first(n) for a in accesses(x)}
            case Allocate():
                return self(n.body)
            case Branch(_, a, b):
                return self(a) if b is None else self(a) | self(b)
            case Store() | Update() | Verify() | Prefetch() | TransposeBlock() | DeviceNode():
                return frozenset(a.buffer for a in accesses(n))
            case _:
                assert_never(n)

    def uses(self, node: Node, buffer: str) -> Iterator[tuple[Access, tuple[Loop, ...]]]:
        """Accesses of the buffer with the loops around them."""
        for n, loops in self.nodes(node, buffer):
            if not isinstance(n, Branch):
                yield from ((a, loops) for a in accesses(n) if a.buffer == buffer)

    def nodes(self, node: Node, buffer: str) -> Iterator[tuple[Branch | Leaf, tuple[Loop, ...]]]:
        """Statements that touch the buffer, and branches around such, with the loops around."""
        empty: tuple[Loop, ...] = ()
        todo = [(node, empty)]
        while todo:
            n, loops = todo.pop()
            if buffer not in self(n):
                continue
            match n:
                case Block(body):
                    todo += [(x, loops) for x in reversed(body)]
                case Loop():
                    todo.append((n.body, (*loops, n)))
                    todo += [(x, loops) for x in _read_first(n)]
                case Branch(_, a, b):
                    yield n, loops
                    todo += [(x, loops) for x in (b, a) if x is not None]
                case Allocate(_, body):
                    todo.append((body, loops))
                case Store() | Update() | Verify() | Prefetch() | TransposeBlock() | DeviceNode():
                    yield n, loops
                case _:
                    assert_never(n)

    def rewrite(self, node: Node, buffer: str, change: Callable[[Leaf], Node]) -> Node:
        """`node` with `change` applied to the statements that touch the buffer."""
        if buffer not in self(node):
            return node
        match node:
            case Block(body):
                return block(*(self.rewrite(x, buffer, change) for x in body))
            case Loop():
                at, value = node.at, node.value
                for x in _position(node):
                    found = change(Verify(x))
                    assert isinstance(found, Verify)
                    at = cast(Expr, found.value)
                if value is not None:
                    found = change(Verify(value))
                    assert isinstance(found, Verify)
                    value = found.value
                inner = self.rewrite(node.body, buffer, change)
                return replace(node, at=at, value=value, body=inner)
            case Allocate():
                return replace(node, body=self.rewrite(node.body, buffer, change))
            case Branch(c, a, b):
                orelse = b and self.rewrite(b, buffer, change)
                return Branch(c, self.rewrite(a, buffer, change), orelse)
            case Store() | Update() | Verify() | Prefetch() | TransposeBlock() | DeviceNode():
                return change(node)
            case _:
                assert_never(node)


def _read_first(loop: Loop) -> tuple[Verify, ...]:
    """What is read to find the loop's one iteration, as statements in front of it."""
    values = [*_position(loop), *(() if loop.value is None else (loop.value,))]
    return tuple(map(Verify, values))


def _position(loop: Loop) -> tuple[Expr, ...]:
    """The value that finds the loop's one iteration, if it reads anything."""
    return () if loop.at is None or isinstance(loop.at, Index) else (loop.at,)
