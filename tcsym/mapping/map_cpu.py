# SPDX-License-Identifier: Apache-2.0
"""A nest -> the nest in its versions: analyse, own, apply each plan, close."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tcsym.cost.choosing import Counting
from tcsym.index.expr import TRUE, all_of, eq, var
from tcsym.ir.loops import Block, Branch, Buffer, Choice, Kernel, Node
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
    return _in_place(kernel, nest, versions, trees, names)


def map_nest_by_cost(
    kernel: Kernel, nest: Nest, versions: Sequence[Version], machine: Machine, names: Names
) -> tuple[Kernel, Sequence[Version]]:
    """The same with those versions that are worth making; the cost chooses among them at the sizes
    of a call. And these, with conditions on what is chosen."""
    shared, counting = _shared(kernel, nest), Counting(kernel, machine)
    trees = [_tree(nest.with_sizes(v.facts), v, shared, machine) for v in versions]
    parts = list[int]()
    for v, m in zip(versions, trees, strict=True):
        among = replace(kernel, buffers=tuple(m.buffers.values()))
        parts.append(counting.cost(among, m.node, nest.around, v.needs))
    kept = counting.worth_making(parts, [not v.facts for v in versions])
    kept = sorted(kept, key=lambda k: (not versions[k].facts, k))  # the last one can always be
    variable = names.fresh("plan")
    conditions = [
        all_of((eq(var(variable), n), versions[k].needs)) if n < len(kept) - 1 else TRUE
        for n, k in enumerate(kept)
    ]
    taken = [replace(versions[k], when=c) for k, c in zip(kept, conditions, strict=True)]
    kernel = _in_place(kernel, nest, taken, [trees[k] for k in kept], names)
    if len(kept) == 1:
        return kernel, taken
    costs = counting.writer.written([parts[k] for k in kept])
    return replace(kernel, choices=(*kernel.choices, Choice(variable, costs))), taken


def _in_place(
    kernel: Kernel,
    nest: Nest,
    versions: Sequence[Version],
    trees: Sequence[Mapping_],
    names: Names,
) -> Kernel:
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
