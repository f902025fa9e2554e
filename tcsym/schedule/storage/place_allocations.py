"""Where buffers live: `Allocate` nodes, outside all loops or inside the parallel loop."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.ir.loops import Allocate, Block, Branch, Buffer, Kernel, Loop, Node, block
from tcsym.ir.traverse import loads, map_node, walk
from tcsym.schedule.analysis.touched import Touched


def without_allocations(node: Node) -> Node:
    return map_node(node, lambda x: x.body if isinstance(x, Allocate) else x)


def place_allocations(kernel: Kernel) -> Kernel:
    """Allocates each used buffer that is not an argument; unused ones are dropped.

    A buffer used in one parallel loop only, and private to its iterations, is allocated inside it,
    so that each thread has its own; any other at the top, shared. One in registers or on the stack
    is allocated in each of several parallel loops: no arena has a place for it that they could
    share. Thread loops of a device may hand such a buffer on, each thread to itself.
    """
    body = without_allocations(kernel.body)
    touched = Touched()
    used = touched(body)
    on_device = any(isinstance(x, Loop) and x.kind == "thread" for x, _ in walk(body))
    buffers = [b for b in kernel.buffers if b.space == "argument" or b.name in used]
    for b in sorted(buffers, key=lambda b: b.space == "shared"):  # these around all others
        if b.space != "argument":
            inside = _Inside(b, touched, on_device)(body)
            body = Allocate(b.name, body) if inside is None else inside
    return replace(kernel, body=body, buffers=tuple(buffers))


class _Inside(Struct, frozen=True):
    """A node -> it with the allocation inside parallel loops; None if it must be outside of it."""

    buffer: Buffer
    touched: Touched
    on_device: bool

    def __call__(self, node: Node) -> Node | None:
        name, private = self.buffer.name, self.buffer.private
        match node:
            case Loop():
                if node.kind in ("parallel", "thread"):
                    inner = Allocate(name, node.body)
                    return replace(node, body=inner) if self.is_private(node) else None
                if node.value is not None and any(r.tensor == name for r in loads(node.value)):
                    return None
                found = self(node.body)
                if found is None and node.kind == "block" and node.variable in private:
                    found = Allocate(name, node.body)
                return None if found is None else replace(node, body=found)
            case Allocate(other, body):
                found = self(body)
                return None if found is None else Allocate(other, found)
            case Branch(c, a, b):
                arms = self._in_users((a,) if b is None else (a, b))
                return None if arms is None else Branch(c, arms[0], None if b is None else arms[1])
            case Block(body):
                parts = self._in_users(body)
                return None if parts is None else block(*parts)
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
                return self._all_in_private((a,) if b is None else (a, b))
            case Block(body):
                return self._all_in_private(body)
            case _:
                return False

    def _all_in_private(self, nodes: tuple[Node, ...]) -> bool:
        used = [x for x in nodes if self.buffer.name in self.touched(x)]
        return all(self._in_private(x) for x in used)

    def _in_users(self, nodes: tuple[Node, ...]) -> tuple[Node, ...] | None:
        """The nodes, each user with an allocation of its own."""
        users = [k for k, x in enumerate(nodes) if self.buffer.name in self.touched(x)]
        if len(users) > 1 and (self.on_device or self.buffer.space not in ("register", "stack")):
            return None
        found = {k: self(nodes[k]) for k in users}
        if any(x is None for x in found.values()):
            return None
        return tuple(found.get(k) or x for k, x in enumerate(nodes))
