"""Finding and replacing loops by name, and the shapes of nests that schedules ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
    Prefetch,
    Store,
    TransposeBlock,
    Update,
    Verify,
    block,
)
from tcsym.ir.traverse import walk

Statement = Store | Update | Verify


def find_loop(node: Node, variable: str) -> Loop:
    todo = [node]  # not by `walk`: passes ask for every loop by name
    while True:
        n = todo.pop()
        match n:
            case Loop():
                if n.variable == variable:
                    return n
                todo.append(n.body)
            case Block(body):
                todo += body
            case Branch(_, a, b):
                todo += [a] if b is None else [a, b]
            case Allocate(_, body):
                todo.append(body)
            case _:
                pass


def replace_loop(node: Node, variable: str, change: Callable[[Loop], Node]) -> Node:
    """`node` with the loop of that name replaced."""
    return _replaced(node, variable, change) or node


def _replaced(n: Node, variable: str, change: Callable[[Loop], Node]) -> Node | None:
    """As `replace_loop`; None if the loop is not in `n`."""
    match n:
        case Loop():
            if n.variable == variable:
                return change(n)
            inner = _replaced(n.body, variable, change)
            return None if inner is None else replace(n, body=inner)
        case Block(body):
            for k, x in enumerate(body):
                inner = _replaced(x, variable, change)
                if inner is not None:
                    return block(*body[:k], inner, *body[k + 1 :])
            return None
        case Branch(c, a, b):
            inner = _replaced(a, variable, change)
            if inner is not None:
                return Branch(c, inner, b)
            inner = None if b is None else _replaced(b, variable, change)
            return None if inner is None else Branch(c, a, inner)
        case Allocate(name, body):
            inner = _replaced(body, variable, change)
            return None if inner is None else Allocate(name, inner)
        case Store() | Update() | Verify() | Prefetch() | TransposeBlock() | DeviceNode():
            return None
        case _:
            assert_never(n)


def loops_around(node: Node, variable: str) -> tuple[Loop, ...]:
    """Loops of `node` around the loop of that name, outermost first."""
    return next(a for x, a in walk(node) if isinstance(x, Loop) and x.variable == variable)


def conditions_around(node: Node, variable: str) -> tuple[Condition, ...]:
    """The conditions of `node` under which the loop of that name is reached; it is there."""
    return next(_conditions(node, variable))


def _conditions(node: Node, variable: str) -> Iterator[tuple[Condition, ...]]:
    match node:
        case Loop() if node.variable == variable:
            yield ()
        case Loop() | Allocate():
            yield from _conditions(node.body, variable)
        case Block(body):
            for x in body:
                yield from _conditions(x, variable)
        case Branch(c, a, b):
            yield from ((c, *more) for more in _conditions(a, variable))
            if b is not None:
                yield from ((negate(c), *more) for more in _conditions(b, variable))
        case _:
            pass


def outermost_loop(node: Node, variable: str) -> Loop:
    """The loop of that name, or the outermost one around it."""
    around = loops_around(node, variable)
    return around[0] if around else find_loop(node, variable)


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
