# SPDX-License-Identifier: Apache-2.0
"""Block -> where in it loops and uses of buffers are, found once and kept as parts are replaced.

Passes ask for one loop or buffer after the other, and replace a few nodes of a block each time.
What is known lies in `Block.__dict__`, which is no part of the block's value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import assert_never

from tcsym.frontend.program import Expr
from tcsym.index.expr import Index
from tcsym.ir.device import DeviceNode
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
    block,
)
from tcsym.schedule.analysis.access import accesses

Places = dict[str, Node]  # by loop variable: the node of the block that has the loop
Users = Mapping[str, Sequence[int]]  # by buffer: positions of nodes that touch it, in order


def with_parts(b: Block, new: Mapping[int, Node]) -> Node:
    """The block with other nodes at some positions."""
    body = list(b.body)
    for k, x in new.items():
        body[k] = x
    nested = any(isinstance(x, Block) for x in new.values())
    made = block(*body) if nested or len(body) == 1 else Block(tuple(body))
    if isinstance(made, Block):
        if "places" in b.__dict__:
            made.__dict__["places"] = _places_with(b, new)
        if "users" in b.__dict__ and not nested:
            made.__dict__["users"] = _users_with(b, new)
    return made


def position(b: Block, node: Node) -> int:
    """Of a node of the block."""
    return list(map(id, b.body)).index(id(node))


# ---- loops


def loop_places(b: Block) -> dict[str, Node]:
    """By loop variable, the node of the block that has the loop. Names of loops are unique."""
    places: dict[str, Node] | None = b.__dict__.get("places")
    if places is None:
        places = b.__dict__["places"] = {v: x for x in b.body for v in _loops_in(x)}
    return places


def _loops_in(node: Node) -> Iterable[str]:
    """Of all loops in the node."""
    match node:
        case Loop():
            return (node.variable, *_loops_in(node.body))
        case Block():
            return loop_places(node)
        case Branch(_, a, b):
            return _loops_in(a) if b is None else (*_loops_in(a), *_loops_in(b))
        case Allocate(_, body):
            return _loops_in(body)
        case _:
            return ()


def _places_with(b: Block, new: Mapping[int, Node]) -> Places:
    places = loop_places(b)
    for k, x in new.items():
        parts = x.body if isinstance(x, Block) else (x,)
        gone = list(_loops_in(b.body[k]))
        came = {v: y for y in parts for v in _loops_in(y)}
        if gone or came:
            places = dict(places)
            for v in gone:
                places.pop(v, None)
            places.update(came)
    return places


# ---- buffers


def buffers_in(node: Node) -> AbstractSet[str]:
    """Buffers read or written in a node."""
    match node:
        case Block():
            return _users(node).keys()
        case Loop():
            return buffers_in(node.body) | _buffers_read(read_first(node))
        case Allocate():
            return buffers_in(node.body)
        case Branch(_, a, b):
            return buffers_in(a) if b is None else buffers_in(a) | buffers_in(b)
        case Store() | Update() | Verify() | TransposeBlock() | DeviceNode():
            return _buffers_read((node,))
        case _:
            assert_never(node)


def _buffers_read(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset([a.buffer for x in nodes for a in accesses(x)])


def touches(node: Node, buffer: str) -> bool:
    """As `buffer in buffers_in(node)`, without a set of them all."""
    match node:
        case Block():
            return buffer in _users(node)
        case Loop():
            return touches(node.body, buffer) or buffer in _buffers_read(read_first(node))
        case Allocate():
            return touches(node.body, buffer)
        case Branch(_, a, b):
            return touches(a, buffer) or (b is not None and touches(b, buffer))
        case _:
            return buffer in buffers_in(node)


def users(b: Block, buffer: str) -> Sequence[int]:
    """Positions of the nodes of the block that touch the buffer, in order."""
    return _users(b).get(buffer, ())


def _users(b: Block) -> Users:
    """Found once: passes keep most of a block, and look at one buffer after the other."""
    found: Users | None = b.__dict__.get("users")
    if found is None:
        by_name: dict[str, list[int]] = {}
        for k, x in enumerate(b.body):
            for name in buffers_in(x):
                by_name.setdefault(name, []).append(k)
        found = b.__dict__["users"] = by_name
    return found


def _users_with(b: Block, new: Mapping[int, Node]) -> Users:
    known = _users(b)
    changed = [(k, buffers_in(b.body[k]), buffers_in(x)) for k, x in new.items()]
    if all(before == now for _, before, now in changed):
        return known
    found = dict(known)
    for k, before, now in changed:
        for name in before - now:
            left = [j for j in found.pop(name) if j != k]
            if left:
                found[name] = left
        for name in now - before:
            found[name] = sorted((*found.get(name, ()), k))
    return found


def read_first(loop: Loop) -> tuple[Verify, ...]:
    """What is read to find the loop's one iteration, as statements in front of it."""
    values = [*_position(loop), *(() if loop.value is None else (loop.value,))]
    return tuple(map(Verify, values))


def _position(loop: Loop) -> tuple[Expr, ...]:
    """The value that finds the loop's one iteration, if it reads anything."""
    return () if loop.at is None or isinstance(loop.at, Index) else (loop.at,)
