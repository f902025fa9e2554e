# SPDX-License-Identifier: Apache-2.0
"""A nest -> the nest in its versions: analyse, own, apply each plan, close."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tcsym.index.expr import TRUE
from tcsym.ir.loops import Block, Branch, Buffer, Kernel, Node
from tcsym.mapping.apply import apply
from tcsym.mapping.nest import Nest
from tcsym.mapping.own import own
from tcsym.mapping.plan import Version
from tcsym.mapping.tree import Close, Mapping_, accessed
from tcsym.mapping.trees import marked
from tcsym.schedule.analysis.loops import replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.target.machine import Machine


def map_nest(
    kernel: Kernel, nest: Nest, versions: Sequence[Version], machine: Machine, names: Names
) -> Kernel:
    """The kernel with these versions of the nest in its place, the first that fits a size first.

    Contract: the last has no condition. Raises `Refused` where one cannot be carried out.
    """
    shared = _shared(kernel, nest)
    trees = [_tree(nest.with_sizes(v.facts), v, shared, machine) for v in versions]
    made = list[Buffer]()
    node: Node | None = None
    for v, m in zip(reversed(versions), reversed(trees), strict=True):
        close = Close(names, m.buffers)
        tree = close(m.node, {}, {})
        made += close.made
        node = tree if node is None else Branch(v.when, tree, node)
    assert node is not None and versions[-1].when == TRUE
    new = marked(node, names)
    body = replace_loop(kernel.body, nest.top.variable, lambda _: new)
    return replace(kernel, body=body, buffers=(*kernel.buffers, *made))


def _tree(nest: Nest, v: Version, shared: frozenset[str], machine: Machine) -> Mapping_:
    start = Mapping_(nest.top, nest.buffers, nest.sizes, machine)
    return apply(own(start, nest, shared), v.plan)


def _shared(kernel: Kernel, nest: Nest) -> frozenset[str]:
    """Buffers whose elements live on when an iteration of all loops around the nest is done."""
    outside = replace_loop(kernel.body, nest.top.variable, lambda x: replace(x, body=Block(())))
    others = {b for b, *_ in accessed(outside)}
    return frozenset(
        b.name
        for b in kernel.buffers
        if b.space == "argument" or b.name in others or not nest.around <= b.private
    )
