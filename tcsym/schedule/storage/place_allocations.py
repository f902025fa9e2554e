"""Where buffers live: `Allocate` nodes, outside all loops or inside the parallel loop."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import Condition
from tcsym.ir.loops import Allocate, Block, Branch, Kernel, Loop, Node, block
from tcsym.ir.traverse import loads, map_node
from tcsym.schedule.analysis.touched import Touched


def without_allocations(node: Node) -> Node:
    return map_node(node, lambda x: x.body if isinstance(x, Allocate) else x)


def place_allocations(kernel: Kernel) -> Kernel:
    """One Allocate for each used buffer that is not an argument; unused ones are dropped.

    A buffer used in one parallel loop only, and private to its iterations, is allocated inside it,
    so that each thread has its own; any other at the top, shared.
    """
    body = without_allocations(kernel.body)
    touched = Touched()
    used = touched(body)
    buffers = [b for b in kernel.buffers if b.space == "argument" or b.name in used]
    for b in sorted(buffers, key=lambda b: b.space == "shared"):  # these around all others
        if b.space != "argument":
            body = _place(body, b.name, b.private, touched)
    return replace(kernel, body=body, buffers=tuple(buffers))


def _place(node: Node, buffer: str, private: frozenset[str], touched: Touched) -> Node:
    inside = _inside_parallel(node, buffer, private, touched)
    return Allocate(buffer, node) if inside is None else inside


def _inside_parallel(
    node: Node, buffer: str, private: frozenset[str], touched: Touched
) -> Node | None:
    """`node` with the allocation inside its parallel loop; None if it must be outside `node`."""
    match node:
        case Loop():
            if node.kind in ("parallel", "thread"):
                inner = Allocate(buffer, node.body)
                return replace(node, body=inner) if node.variable in private else None
            if node.value is not None and any(r.tensor == buffer for r in loads(node.value)):
                return None
            found = _inside_parallel(node.body, buffer, private, touched)
            if found is None and node.kind == "block" and node.variable in private:
                found = Allocate(buffer, node.body)
            return None if found is None else replace(node, body=found)
        case Allocate(other, body):
            found = _inside_parallel(body, buffer, private, touched)
            return None if found is None else Allocate(other, found)
        case Branch(c, a, b):
            return _in_one_arm(c, a, b, buffer, private, touched)
        case Block(body):
            users = [k for k, x in enumerate(body) if buffer in touched(x)]
            found = (
                _inside_parallel(body[users[0]], buffer, private, touched)
                if len(users) == 1
                else None
            )
            if found is None:
                return None
            return block(*body[: users[0]], found, *body[users[0] + 1 :])
        case _:
            return None


def _in_one_arm(
    c: Condition, a: Node, b: Node | None, buffer: str, private: frozenset[str], touched: Touched
) -> Node | None:
    in_a, in_b = buffer in touched(a), b is not None and buffer in touched(b)
    if in_a and not in_b:
        found = _inside_parallel(a, buffer, private, touched)
        return None if found is None else Branch(c, found, b)
    if in_b and not in_a and b is not None:
        found = _inside_parallel(b, buffer, private, touched)
        return None if found is None else Branch(c, a, found)
    return None
