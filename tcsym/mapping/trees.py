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

from tcsym.frontend.program import Binary, Const, Expr, IndexValue, Read
from tcsym.index.expr import ONE, ZERO, Index, var
from tcsym.ir.loops import (
    Allocate,
    Buffer,
    Kernel,
    Loop,
    Node,
    Standing,
    Store,
    TransposeBlock,
    block,
)
from tcsym.ir.traverse import allocated_in, loads, map_inner, substitute_node, walk
from tcsym.mapping.tree import Close, accessed, variables_of
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

    The statement accesses what the tree does of buffers from outside (`Standing`): at its place
    where only loops around move it, else anywhere. A pass may copy the statement, as part of what
    is around it, or drop it; it may rename loops around, and those buffers.
    """
    trees = dict[str, tuple[Node, Standing]]()
    body = _taken(kernel.body, trees, ())
    if not trees:
        return passes(kernel)
    held = allocated_in(block(*(x for x, _ in trees.values())))
    own = [b for b in kernel.buffers if b.name in held]
    others = [b for b in kernel.buffers if b.name not in held]
    marks = [Buffer(m, DType.INT64, (ONE,) * len(x.subscripts)) for m, (_, x) in trees.items()]
    kernel = passes(replace(kernel, body=body, buffers=(*others, *marks)))
    put = _Put(names, trees, {b.name: b for b in (*kernel.buffers, *own)}, set(), own)
    body = put(kernel.body)
    buffers = tuple(b for b in kernel.buffers if b.name not in trees)
    return replace(kernel, body=body, buffers=(*buffers, *put.made))


def _taken(n: Node, trees: dict[str, tuple[Node, Standing]], at: tuple[str, ...]) -> Node:
    if isinstance(n, Allocate) and _is_marked(n):
        (mark,) = n.buffers
        standing = _standing(mark, n.body, at)
        trees[mark] = n.body, standing
        return standing
    inside = (*at, n.variable) if isinstance(n, Loop) else at
    return map_inner(n, lambda x: _taken(x, trees, inside))


def _standing(mark: str, tree: Node, at: tuple[str, ...]) -> Standing:
    places, own = tuple(map(var, at)), allocated_in(tree)
    blocks = [x for x, _ in walk(tree) if isinstance(x, TransposeBlock)]
    moved = {b for x in blocks for b in (x.target, x.source)}
    inside = {x.variable for x, _ in walk(tree) if isinstance(x, Loop)}
    anywhere = IndexValue(sum(places, ZERO), DType.INT64)
    found: dict[bool, dict[Read, None]] = {True: {}, False: {}}
    for name, subscripts, written, _ in accessed(tree):
        if name not in own:
            still = (
                isinstance(s, Index) and name not in moved and not variables_of((s,)) & inside
                for s in subscripts
            )
            known = (s if x else anywhere for s, x in zip(subscripts, still, strict=True))
            found[written][Read(name, tuple(known), DType.INT64)] = None
    value: Expr = Const(0, DType.INT64)
    for r in (*found[True], *found[False]):
        value = Binary("add", value, r, DType.INT64)
    return Standing(mark, places, value, mark, written=len(found[True]))


class _Put(Struct):
    """done: trees that are back, of which another is a copy. made: the temporaries of all."""

    names: Names
    trees: Mapping[str, tuple[Node, Standing]]
    buffers: Mapping[str, Buffer]
    done: set[str]
    made: list[Buffer]

    def __call__(self, n: Node) -> Node:
        if not isinstance(n, Store) or n.buffer not in self.trees:
            return map_inner(n, self)
        tree, before = self.trees[n.buffer]
        places = zip(before.subscripts, n.subscripts, strict=True)
        values = {str(v): e for v, e in places if e != v}
        reads = zip(loads(before.value), loads(n.value), strict=True)
        buffers = {x.tensor: y.tensor for x, y in reads if x.tensor != y.tensor}
        if n.buffer not in self.done and not buffers:
            self.done.add(n.buffer)
            return Allocate((n.buffer,), substitute_node(tree, values) if values else tree)
        close = Close(self.names, self.buffers)
        copy = close(tree, values, buffers)
        self.made += close.made
        return marked(copy, self.names)
