# SPDX-License-Identifier: Apache-2.0
"""Where buffers live: `Allocate` nodes, outside all loops or inside the parallel loop."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct
from msgspec.structs import replace

from tcsym.ir.loops import Allocate, Block, Branch, Buffer, Kernel, Loop, Node, allocated
from tcsym.ir.traverse import allocated_in, loads, map_node, walk
from tcsym.schedule.analysis.blocks import buffers_in, touches, users, with_parts


def without_allocations(node: Node) -> Node:
    return map_node(node, lambda x: x.body if isinstance(x, Allocate) else x)


def place_allocations(kernel: Kernel) -> Kernel:
    """Allocates each used buffer that is no argument and has no place yet; unused ones are dropped.

    A buffer used in one parallel loop only, and private to its iterations, is allocated inside it,
    so that each thread has its own; any other at the top, shared. One in registers or on the stack
    is allocated in each of several parallel loops: no arena has a place for it that they could
    share. Thread loops of a device may hand such a buffer on, each thread to itself.
    """
    used = buffers_in(kernel.body)
    body = map_node(kernel.body, lambda x: _of_used(x, used))
    placed = allocated_in(body)
    on_device = any(isinstance(x, Loop) and x.kind == "thread" for x, _ in walk(body))
    buffers = [b for b in kernel.buffers if b.space == "argument" or b.name in used]
    for b in sorted(buffers, key=lambda b: b.space == "shared"):  # these around all others
        if b.space != "argument" and b.name not in placed:
            inside = _Inside(b, on_device)(body)
            body = allocated(b.name, body) if inside is None else inside
    return replace(kernel, body=body, buffers=tuple(buffers))


def _of_used(x: Node, used: AbstractSet[str]) -> Node:
    """An allocation of those buffers alone."""
    if not isinstance(x, Allocate):
        return x
    names = tuple(name for name in x.buffers if name in used)
    return Allocate(names, x.body) if names else x.body


class _Inside(Struct, frozen=True):
    """A node -> it with the allocation inside parallel loops; None if it must be outside of it."""

    buffer: Buffer
    on_device: bool

    def __call__(self, node: Node) -> Node | None:
        name, private = self.buffer.name, self.buffer.private
        match node:
            case Loop():
                if node.kind in ("parallel", "thread"):
                    inner = allocated(name, node.body)
                    return replace(node, body=inner) if self.is_private(node) else None
                if node.value is not None and any(r.tensor == name for r in loads(node.value)):
                    return None
                found = self(node.body)
                if found is None and node.kind == "block" and node.variable in private:
                    found = allocated(name, node.body)
                return None if found is None else replace(node, body=found)
            case Allocate(other, body):
                found = self(body)
                return None if found is None else Allocate(other, found)
            case Branch(c, a, b):
                both = (a,) if b is None else (a, b)
                arms = self._in_users(both, [k for k, x in enumerate(both) if self._uses(x)])
                if arms is None:
                    return None
                return Branch(c, arms.get(0, a), None if b is None else arms.get(1, b))
            case Block(body):
                parts = self._in_users(body, users(node, name))
                return None if parts is None else with_parts(node, parts)
            case _:
                return None

    def is_private(self, loop: Loop) -> bool:
        """To each iteration of the loop, or of loops inside that all uses lie in."""
        own = loop.variable in self.buffer.private
        return own or (loop.kind == "parallel" and self._in_private(loop.body))

    def _in_private(self, node: Node) -> bool:
        match node:
            case Loop():
                return node.variable in self.buffer.private or self._in_private(node.body)
            case Allocate(_, body):
                return self._in_private(body)
            case Branch(_, a, b):
                return all(self._in_private(x) for x in (a, b) if x is not None and self._uses(x))
            case Block(body):
                return all(self._in_private(body[k]) for k in users(node, self.buffer.name))
            case _:
                return False

    def _uses(self, node: Node) -> bool:
        return touches(node, self.buffer.name)

    def _in_users(self, nodes: tuple[Node, ...], users: Sequence[int]) -> dict[int, Node] | None:
        """The users among the nodes, each with an allocation of its own."""
        if len(users) > 1 and (self.on_device or self.buffer.space not in ("register", "stack")):
            return None
        found: dict[int, Node] = {}
        for k in users:
            inside = self(nodes[k])
            if inside is None:
                return None
            found[k] = inside
        return found
