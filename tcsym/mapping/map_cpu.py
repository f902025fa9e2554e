# SPDX-License-Identifier: Apache-2.0
"""A nest -> the nest in its versions: analyse, own, apply each plan, close."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.cost.choosing import Counting, loops_of, sizes_of
from tcsym.index.expr import (
    TRUE,
    All,
    Atom,
    Condition,
    Index,
    NonNegative,
    all_of,
    eq,
    minimum,
    of_atom,
    var,
)
from tcsym.index.values import map_atoms
from tcsym.ir.loops import Allocate, Block, Branch, Buffer, Choice, Kernel, Node, block
from tcsym.mapping.apply import apply
from tcsym.mapping.nest import Nest
from tcsym.mapping.once import Copies, apart, times, where
from tcsym.mapping.own import own
from tcsym.mapping.plan import Refused, Version
from tcsym.mapping.tree import Close, Mapping_, accessed
from tcsym.mapping.trees import marked
from tcsym.schedule.analysis.loops import find_loop, loops_around, outermost_loop, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.target.machine import Machine


class Tree(Struct, frozen=True):
    """A version of a nest, its temporaries, and what it needs in front of loops around."""

    version: Version
    node: Node
    buffers: tuple[Buffer, ...]
    copies: Copies


def map_nest(
    kernel: Kernel, nest: Nest, versions: Sequence[Version], machine: Machine, names: Names
) -> Kernel:
    """The kernel with these versions of the nest in its place, the first that fits a size first.

    Contract: the last has no condition. Raises `Refused` where one cannot be carried out.
    """
    return _in_place(kernel, nest, _trees(kernel, nest, versions, machine, names), names)


def map_nest_by_cost(
    kernel: Kernel,
    nest: Nest,
    versions: Sequence[Version],
    machine: Machine,
    names: Names,
    has_all: bool = False,
    are_proposed: bool = False,
    on_threads: bool = False,
) -> tuple[Kernel, Sequence[Version]]:
    """The same with those versions that are worth making, or has_all; the cost chooses among them
    at the sizes of a call. And these, with conditions on what is chosen. are_proposed: what is not
    legal is no version, if there is another. on_threads: these share the nest's outermost loops,
    unless they share loops around it."""
    if len(versions) == 1 and versions[0].needs == TRUE:
        only = [replace(versions[0], when=TRUE)]
        return map_nest(kernel, nest, only, machine, names), only
    trees, costs = _trees(kernel, nest, versions, machine, names, are_proposed), list[int]()
    versions = [t.version for t in trees]
    moves = [sizes_of(kernel, t.node, t.version.needs) for t in trees]
    rounds = times(kernel, nest)
    for copies in (t.copies.before for t in trees if t.copies.before):
        moves.append(rounds.variables() | sizes_of(kernel, block(*copies)))
    around = loops_around(kernel.body, nest.top.variable)
    on_threads &= all(x.order != "parallel" for x in around)
    common = {tuple(v.facts.items()): v.facts for v in versions if v.facts}.values()
    counting = Counting(kernel, machine, frozenset[str]().union(*moves), on_threads, common)
    for t in trees:
        among = replace(kernel, buffers=(*kernel.buffers, *t.buffers))
        cost = counting.cost(among, t.node, nest.around, t.version.needs)
        if t.copies.before:
            filling = counting.cost(among, block(*t.copies.before), (), TRUE)
            cost = counting.with_share(cost, filling, rounds)
        costs.append(cost)
    always = [v.needs == TRUE for v in versions]
    if not any(always):
        raise Refused("no plan is for all sizes")
    loops = [loops_of(t.node) for t in trees]
    kept = range(len(versions)) if has_all else counting.worth_making(costs, always, loops)
    kept = sorted(kept, key=lambda k: (always[k], k))  # the last one can always be
    variable = names.fresh("plan")
    conditions = [
        all_of((eq(var(variable), n), versions[k].needs)) if n < len(kept) - 1 else TRUE
        for n, k in enumerate(kept)
    ]
    taken = [replace(versions[k], when=c) for k, c in zip(kept, conditions, strict=True)]
    chosen = [replace(trees[k], version=v) for k, v in zip(kept, taken, strict=True)]
    kernel = _in_place(kernel, nest, chosen, names)
    if len(kept) == 1:
        return kernel, taken
    by = counting.writer.written([costs[k] for k in kept])
    return replace(kernel, choices=(*kernel.choices, Choice(variable, by))), taken


def _in_place(kernel: Kernel, nest: Nest, trees: Sequence[Tree], names: Names) -> Kernel:
    new = marked(_in_versions(trees, [t.node for t in trees]), names)
    top, outer = nest.top.variable, outermost_loop(kernel.body, nest.top.variable).variable
    mapped = replace_loop(find_loop(kernel.body, outer), top, lambda _: new)
    before = [marked(x, names) for t in trees for x in t.copies.bound]
    filled = tuple(b for t in trees for b in t.copies.filled)
    if filled:
        node = _in_versions(trees, [block(*t.copies.before) for t in trees])
        condition = where(kernel, nest)
        node = node if condition == TRUE else Branch(condition, node, None)
        before.append(marked(node, names))
    node = block(*before, mapped)
    node = Allocate(filled, node) if filled else node
    body = replace_loop(kernel.body, outer, lambda _: node)
    made = (b for t in trees for b in t.buffers)
    return replace(kernel, body=body, buffers=(*kernel.buffers, *made))


def _in_versions(trees: Sequence[Tree], nodes: Sequence[Node]) -> Node:
    """What of each version has to run, where that runs."""
    assert trees[-1].version.when == TRUE
    *others, node = nodes
    for t, x in reversed([*zip(trees[:-1], others, strict=True)]):
        node = Branch(t.version.when, x, node)
    return node


def _trees(
    kernel: Kernel,
    nest: Nest,
    versions: Sequence[Version],
    machine: Machine,
    names: Names,
    are_proposed: bool = False,
) -> list[Tree]:
    found, refused = list[Tree](), Refused("no plan")
    for v in versions:
        try:
            made = _mapped(nest.with_sizes(v.facts), v, machine)
        except Refused as reason:
            if not are_proposed:
                raise
            refused = reason
            continue
        close = Close(names, made.buffers)
        bound = nest.constants.intersection(kernel.constants)
        node, copies = apart(close(made.node, {}, {}), made.once, bound, nest.constants)
        free = copies.free
        buffers = (replace(b, space="arena") if b.name in free else b for b in close.made)
        found.append(Tree(v, node, tuple(buffers), copies))
    if not found:
        raise refused
    return found


def _mapped(nest: Nest, v: Version, machine: Machine) -> Mapping_:
    start = Mapping_(nest.top, nest.buffers, nest.sizes, machine, uncertain=nest.uncertain)
    try:
        m = apply(own(start, nest), v.plan)
    except Refused as reason:
        reason.version = v.number
        raise
    most = dict(_most(v.only))
    made = {n: _bounded(b, most) for n, b in m.buffers.items() if n not in nest.buffers}
    return replace(m, buffers={**m.buffers, **made})


def _most(c: Condition) -> Iterator[tuple[Atom, int]]:
    """What a condition says to be no more than a number."""
    for x in c.conditions if isinstance(c, All) else (c,):
        if isinstance(x, NonNegative) and len(x.index.terms) == 1 and x.index.terms[0][1] == -1:
            yield x.index.terms[0][0], x.index.constant


def _bounded(b: Buffer, most: Mapping[Atom, int]) -> Buffer:
    """The buffer of a tree that runs where no more than that can be."""

    def one(a: Atom) -> Index | None:
        return minimum(of_atom(a), most[a]) if a in most else None

    return replace(b, shape=tuple(map_atoms(e, one) for e in b.shape))


def in_kernel(nest: Nest, kernel: Kernel) -> Nest:
    """The nest, which knows what of its buffers lives on."""
    used = {b: nest.buffers[b] for b, *_ in accessed(nest.top)}
    own = {b for b, x in used.items() if x.space != "argument" and nest.around <= x.private}
    if own:
        hole = replace_loop(kernel.body, nest.top.variable, lambda x: replace(x, body=Block(())))
        own -= {b for b, *_ in accessed(hole)}
    return replace(nest, shared=frozenset(used) - own)
