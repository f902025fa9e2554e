"""Finding and replacing loops by name, and the shapes of nests that schedules ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tcsym.loop_ir import Block, Loop, Node, Store, Update, Verify, map_node, walk

Statement = Store | Update | Verify


def find_loop(node: Node, variable: str) -> Loop:
    return next(x for x, _ in walk(node) if isinstance(x, Loop) and x.variable == variable)


def replace_loop(node: Node, variable: str, change: Callable[[Loop], Node]) -> Node:
    """`node` with the loop of that name replaced."""

    def at(x: Node) -> Node:
        return change(x) if isinstance(x, Loop) and x.variable == variable else x

    return map_node(node, at)


def loops_around(node: Node, variable: str) -> tuple[Loop, ...]:
    """Loops of `node` around the loop of that name, outermost first."""
    return next(a for x, a in walk(node) if isinstance(x, Loop) and x.variable == variable)


def loops_in(node: Node) -> tuple[Loop, ...]:
    """All loops in `node`, parents first."""
    return tuple(x for x, _ in walk(node) if isinstance(x, Loop))


def chain_of(node: Node) -> tuple[Loop, ...]:
    """The perfect nest starting at `node`, outermost first."""
    out: list[Loop] = []
    while isinstance(node, Loop):
        out.append(node)
        node = node.body
    return tuple(out)


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
