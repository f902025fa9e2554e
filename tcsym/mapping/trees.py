# SPDX-License-Identifier: Apache-2.0
"""Trees that plans made, among nests that later passes still change.

Such a tree has its tiles, ends and temporaries; passes that make these for other nests must not see
it, passes that serve all nests must. So it is marked, by an `Allocate` of a name that no buffer
has, and `apart` keeps marked trees away from a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Const
from tcsym.index.expr import ONE, var
from tcsym.ir.loops import Allocate, Buffer, Kernel, Loop, Node, Store
from tcsym.ir.traverse import map_inner, substitute_node, walk
from tcsym.mapping.tree import Close
from tcsym.schedule.analysis.names import Names
from tcsym.types import DType

_MARK = "$tree"


def marked(tree: Node, names: Names) -> Node:
    return Allocate((names.fresh(_MARK),), tree)


def _is_marked(n: Node) -> bool:
    return isinstance(n, Allocate) and n.buffers[0].startswith(_MARK)


def unmarked(kernel: Kernel) -> Kernel:
    """The kernel with the trees as they are."""

    def without(n: Node) -> Node:
        return n.body if isinstance(n, Allocate) and _is_marked(n) else map_inner(n, without)

    return replace(kernel, body=without(kernel.body))


def apart(kernel: Kernel, names: Names, passes: Callable[[Kernel], Kernel]) -> Kernel:
    """What the passes make of the kernel with a statement in the place of each marked tree.

    A pass may copy the statement, as part of what is around it, or drop it; it may rename loops
    around, as these are subscripts of the statement.
    """
    trees = dict[str, tuple[Node, tuple[str, ...]]]()
    body = _taken(kernel.body, trees, ())
    if not trees:
        return passes(kernel)
    held = {
        b
        for x, _ in trees.values()
        for n, _ in walk(x)
        if isinstance(n, Allocate)
        for b in n.buffers
    }
    own = [b for b in kernel.buffers if b.name in held]
    others = [b for b in kernel.buffers if b.name not in held]
    marks = [Buffer(m, DType.FLOAT32, (ONE,) * len(at)) for m, (_, at) in trees.items()]
    kernel = passes(replace(kernel, body=body, buffers=(*others, *marks)))
    put = _Put(names, trees, {b.name: b for b in (*kernel.buffers, *own)}, set(), own)
    body = put(kernel.body)
    buffers = tuple(b for b in kernel.buffers if b.name not in trees)
    return replace(kernel, body=body, buffers=(*buffers, *put.made))


def _taken(n: Node, trees: dict[str, tuple[Node, tuple[str, ...]]], at: tuple[str, ...]) -> Node:
    if isinstance(n, Allocate) and _is_marked(n):
        (mark,) = n.buffers
        trees[mark] = n.body, at
        return Store(mark, tuple(map(var, at)), Const(0, DType.FLOAT32), mark)
    inside = (*at, n.variable) if isinstance(n, Loop) else at
    return map_inner(n, lambda x: _taken(x, trees, inside))


class _Put(Struct):
    """done: trees that are back, of which another is a copy. made: the temporaries of all."""

    names: Names
    trees: Mapping[str, tuple[Node, tuple[str, ...]]]
    buffers: Mapping[str, Buffer]
    done: set[str]
    made: list[Buffer]

    def __call__(self, n: Node) -> Node:
        if not isinstance(n, Store) or n.buffer not in self.trees:
            return map_inner(n, self)
        tree, at = self.trees[n.buffer]
        values = {v: e for v, e in zip(at, n.subscripts, strict=True) if e != var(v)}
        if n.buffer not in self.done:
            self.done.add(n.buffer)
            return Allocate((n.buffer,), substitute_node(tree, values) if values else tree)
        close = Close(self.names, self.buffers)
        copy = close(tree, values, {})
        self.made += close.made
        return marked(copy, self.names)
