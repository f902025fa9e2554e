# SPDX-License-Identifier: Apache-2.0
"""Finding and replacing loops by name, and the shapes of nests that schedules ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import assert_never

from msgspec.structs import replace

from tcsym.frontend.program import variables_of
from tcsym.index.expr import Condition, negate
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
)
from tcsym.ir.traverse import walk
from tcsym.schedule.analysis.blocks import loop_places, position, with_parts

Statement = Store | Update | Verify


Way = tuple[Node, ...]


def way_to(node: Node, variable: str) -> Way | None:
    """The nodes around the loop of that name, outermost first, then the loop; None: not there.

    A block keeps which of its nodes has which loop: passes ask for one loop after the other.
    """
    match node:
        case Loop():
            if node.variable == variable:
                return (node,)
            below = way_to(node.body, variable)
        case Block():
            child = loop_places(node).get(variable)
            below = None if child is None else way_to(child, variable)
        case Branch(_, a, b):
            below = way_to(a, variable)
            if below is None and b is not None:
                below = way_to(b, variable)
        case Allocate(_, body):
            below = way_to(body, variable)
        case _:
            return None
    return None if below is None else (node, *below)


def find_loop(node: Node, variable: str) -> Loop:
    way = way_to(node, variable)
    assert way is not None and isinstance(way[-1], Loop), variable
    return way[-1]


def replace_loop(node: Node, variable: str, change: Callable[[Loop], Node]) -> Node:
    """`node` with the loop of that name replaced; `node` itself if it is not there."""
    way = way_to(node, variable)
    if way is None:
        return node
    *around, loop = way
    assert isinstance(loop, Loop)
    below: Node = loop
    inner = change(loop)
    for x in reversed(around):
        below, inner = x, _with_child(x, below, inner)
    return inner


def _with_child(n: Node, old: Node, new: Node) -> Node:
    """`n` with another node in the place of one right inside of it."""
    match n:
        case Loop():
            return replace(n, body=new)
        case Block():
            return with_parts(n, {position(n, old): new})
        case Branch(c, a, b):
            return Branch(c, new, b) if a is old else Branch(c, a, new)
        case Allocate(name, _):
            return Allocate(name, new)
        case Store() | Update() | Verify() | TransposeBlock() | DeviceNode():
            raise AssertionError(n)
        case _:
            assert_never(n)


def loops_around(node: Node, variable: str) -> tuple[Loop, ...]:
    """Loops of `node` around the loop of that name, outermost first."""
    way = way_to(node, variable)
    assert way is not None, variable
    return tuple([x for x in way[:-1] if isinstance(x, Loop)])


def conditions_around(node: Node, variable: str) -> tuple[Condition, ...]:
    """The conditions of `node` under which the loop of that name is reached; it is there."""
    way = way_to(node, variable)
    assert way is not None, variable
    steps = [(x, y) for x, y in pairwise(way) if isinstance(x, Branch)]
    return tuple([x.condition if x.then is y else negate(x.condition) for x, y in steps])


def outermost_loop(node: Node, variable: str) -> Loop:
    """The loop of that name, or the outermost one around it."""
    return next(iter(loops_around(node, variable)), None) or find_loop(node, variable)


def loops_in(node: Node) -> tuple[Loop, ...]:
    """All loops in `node`, parents first."""
    return tuple(x for x, _ in walk(node) if isinstance(x, Loop))


def outermost_loops(node: Node) -> tuple[Loop, ...]:
    """The loops of `node` with none around them in it."""
    inside: set[str] = set()
    out: list[Loop] = []
    for x in loops_in(node):
        if x.variable not in inside:
            out.append(x)
            inside |= {y.variable for y in loops_in(x)}
    return tuple(out)


def chain_of(node: Node) -> tuple[Loop, ...]:
    """The perfect nest starting at `node`, outermost first."""
    out: list[Loop] = []
    while isinstance(node, Loop):
        out.append(node)
        node = node.body
    return tuple(out)


def in_loops(loops: Iterable[Loop], body: Node) -> Node:
    """`body` in such loops, the first of them outermost."""
    for x in reversed([*loops]):
        body = replace(x, body=body)
    return body


def children(node: Node) -> tuple[Node, ...]:
    """The nodes of a sequence; a single node is a sequence of one."""
    return node.body if isinstance(node, Block) else (node,)


def is_leaf(loop: Loop) -> bool:
    """No loop inside."""
    return not loops_in(loop.body)


def statements_in(node: Node) -> Iterator[tuple[Statement, tuple[Loop, ...]]]:
    """Stores, updates and checks with the loops of `node` around them."""
    for x, around in walk(node):
        if isinstance(x, Store | Update | Verify):
            yield x, around


def writes_in(node: Node) -> Iterator[Store | Update]:
    """Statements that write."""
    return (x for x, _ in walk(node) if isinstance(x, Store | Update))


def finds_positions(node: Node) -> bool:
    """Something below runs only at positions that are found there (`Loop.at`)."""
    return any(isinstance(x, Loop) and x.at is not None for x, _ in walk(node))


def scatters(loop: Loop) -> bool:
    """Its iterations, in order, find positions each: what is inside is too little for threads."""
    inside = (x.at for x, _ in walk(loop.body) if isinstance(x, Loop) and x.at is not None)
    return any(loop.variable in variables_of(at) for at in inside)


def position_in(node: Node) -> Loop | None:
    """The innermost position of loops in order that do nothing but find it."""
    match node:
        case Loop() if node.order == "sequential":
            below = position_in(node.body)
            return below if below is not None or node.at is None else node
        case Block((*checks, Loop() as last)) if all(isinstance(x, Verify) for x in checks):
            return position_in(last)
        case _:
            return None
