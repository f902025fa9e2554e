# SPDX-License-Identifier: Apache-2.0
"""Scop and dependences -> schedule tree, by isl's own scheduler (option `scheduler='isl'`).

Worth it for skewed and stencil programs. Its result is a tree like any other and proved like any
other; bands whose members depend on sizes (fusion by parameter shifts) are refused.
"""

from __future__ import annotations

from functools import reduce

import islpy as isl
from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.index.expr import Index, var
from tcsym.index.values import substitute
from tcsym.options import Fusion
from tcsym.polyhedral.dependence import Dependences
from tcsym.polyhedral.relations import IN, OUT
from tcsym.polyhedral.scop import Scop, ScopStatement
from tcsym.polyhedral.tree import Leaf, Member, Sequence, Tree, TreeLoop, sequence


class Unsuitable(Exception):
    """isl's schedule is not one that this compiler can use; the text says why."""


def isl_schedule(scop: Scop, dependences: Dependences, fusion: Fusion) -> Tree:
    """All loops `sequential`; those over plain iterators have bounds. Raises Unsuitable."""
    if not scop.statements:
        raise Unsuitable("there is nothing to order")
    _set_options(dependences.relations.presburger.context, fusion)
    problem = constraints(scop, dependences)
    if any(s.positions for s in scop.statements):
        raise Unsuitable("isl does not order scattered statements")
    if any(s.given for s in scop.statements):
        raise Unsuitable("bounds of ranges are read from tensors")
    try:
        root = problem.compute_schedule().get_root()
    except isl.Error as e:
        raise Unsuitable("isl found no schedule") from e
    walk = _Walk(scop, dependences)
    tree = walk.tree(root, tuple(s.name for s in scop.statements))
    return with_bounds(tree, scop, dependences)


def _set_options(context: isl.Context, fusion: Fusion) -> None:
    """min serialises components; the others as measured in recipes/isl.md."""
    context.set_schedule_serialize_sccs(int(fusion == "min"))
    context.set_schedule_whole_component(int(fusion == "max"))
    context.set_schedule_maximize_band_depth(0)
    context.set_schedule_outer_coincidence(1)
    context.set_schedule_treat_coalescing(0)
    context.set_schedule_max_constant_term(0)
    context.set_schedule_max_coefficient(1)


def constraints(scop: Scop, dependences: Dependences) -> isl.ScheduleConstraints:
    """What isl must keep (validity) and should bring together (proximity) or keep apart."""
    relations = dependences.relations
    domains = [isl.UnionSet.from_set(relations.domain(s)) for s in scop.statements]
    domain = reduce(lambda a, b: a.union(b), domains)
    empty = isl.UnionMap.empty(domain.get_space())
    kept = [(d, isl.UnionMap.from_map(dependences.relation(d))) for d in dependences.all]
    validity = reduce(lambda a, b: a.union(b), (m for _, m in kept), empty)
    flow = reduce(lambda a, b: a.union(b), (m for d, m in kept if d.kind == "flow"), empty)
    updates = (_reordered_updates(s, dependences) for s in scop.statements if s.reduced)
    coincidence = reduce(lambda a, b: a.union(b), updates, validity)
    return (
        isl.ScheduleConstraints.on_domain(domain)
        .set_validity(validity.coalesce())
        .set_coincidence(coincidence.coalesce())
        .set_proximity(flow.coalesce())
        .set_context(relations.context)
    )


def _reordered_updates(s: ScopStatement, dependences: Dependences) -> isl.UnionMap:
    """Updates of one element in one iteration of the `for` loops: in any order, not at once."""
    write = s.write
    assert write is not None
    access = dependences.relations.access(s, write)
    pairs = access.apply_range(access.reverse())
    for k in range(len(s.outer)):
        pairs = pairs.equate(IN, k, OUT, k)
    forward = isl.Map.lex_lt(pairs.get_space().domain())
    return isl.UnionMap.from_map(pairs.intersect(forward))


class _Walk(Struct):
    """isl's schedule tree -> ours."""

    scop: Scop
    dependences: Dependences
    taken: set[str] = field(default_factory=set)

    def tree(self, node: isl.ScheduleNode, names: tuple[str, ...]) -> Tree:
        """`names`: the statements that reach `node`, in text order."""
        self.dependences.relations.effort.step()
        kind = isl.schedule_node_type(node.get_type()).name
        if kind == "leaf":
            return sequence([Leaf(n, self.scop.statement(n).condition) for n in names])
        if kind == "band":
            return self._band(node, names, 0)
        if kind in ("sequence", "set"):
            return self._sequence(node, names)
        if kind in ("domain", "filter"):
            return self.tree(node.child(0), names)
        raise Unsuitable(f"isl made a node of type {kind}")

    def _sequence(self, node: isl.ScheduleNode, names: tuple[str, ...]) -> Tree:
        children: list[Tree] = []
        for k in range(node.n_children()):
            child = node.child(k)
            found = _statement_names(child.filter_get_filter())
            inside = tuple(n for n in names if n in found)
            if inside:
                children.append(self.tree(child.child(0), inside))
        return sequence(children)

    def _band(self, node: isl.ScheduleNode, names: tuple[str, ...], k: int) -> Tree:
        if k == node.band_n_member():
            return self.tree(node.child(0), names)
        function = node.band_get_partial_schedule().get_union_pw_aff(k)
        values = self._values(function, names)
        members = tuple(Member(n, values[n]) for n in names)
        variable = self._name(members)
        return TreeLoop(variable, None, None, members, self._band(node, names, k + 1))

    def _values(self, function: isl.UnionPwAff, names: tuple[str, ...]) -> dict[str, Index]:
        found: dict[str, isl.PwAff] = {}
        function.foreach_pw_aff(lambda p: found.__setitem__(p.domain().get_tuple_name(), p))
        presburger = self.dependences.relations.presburger
        values: dict[str, Index] = {}
        for n in names:
            if n not in found:
                raise Unsuitable(f"isl's band leaves out {n}")
            s = self.scop.statement(n)
            value = presburger.index_of(found[n], s.iterators)
            if not value.variables() <= set(s.iterators):
                raise Unsuitable(f"isl's schedule of {n} depends on sizes: {value}")
            values[n] = value
        return values

    def _name(self, members: tuple[Member, ...]) -> str:
        """The iterator that the first plain member moves along, made unique."""
        plain = (str(m.value) for m in members if _is_variable(m.value))
        base = next(plain, "c")
        unique, n = base, 1
        while unique in self.taken or unique in self.scop.sizes:
            unique, n = f"{base}_{n}", n + 1
        self.taken.add(unique)
        return unique


def _statement_names(instances: isl.UnionSet) -> frozenset[str]:
    found: set[str] = set()
    instances.foreach_set(lambda s: found.add(s.get_tuple_name()))
    return frozenset(found)


def _is_variable(value: Index) -> bool:
    return len(value.terms) == 1 and value == var(str(value.terms[0][0]))


def with_bounds(tree: Tree, scop: Scop, dependences: Dependences) -> Tree:
    """The tree with the bounds of its loops if all are plain over equal ranges, else as it is."""
    bounded = _bounded(tree, scop, dependences, {})
    return tree if bounded is None else bounded


def _bounded(
    t: Tree, scop: Scop, dependences: Dependences, around: dict[str, dict[str, Index]]
) -> Tree | None:
    """`around`: by statement, the loops of the iterators that outer loops determine."""
    match t:
        case Leaf(name, _):
            determined = around.get(name, {}).keys()
            return t if determined == set(scop.statement(name).iterators) else None
        case Sequence(children):
            inside = [_bounded(c, scop, dependences, around) for c in children]
            known = tuple(c for c in inside if c is not None)
            return Sequence(known) if len(known) == len(inside) else None
    same = dependences.relations.equal_for_all_sizes
    inner = dict(around)
    ends: list[tuple[Index, Index]] = []
    for m in t.members:
        s = scop.statement(m.statement)
        if not _is_variable(m.value):
            return None
        r = s.range_of(str(m.value))
        at = around.get(m.statement, {})
        if r.variable in at or not s.follows(r.variable) <= at.keys():
            return None
        inner[m.statement] = {**at, r.variable: var(t.variable)}
        ends.append((substitute(r.lower, at), substitute(r.upper, at)))
    lower, upper = ends[0]
    if not all(same(a, lower) and same(b, upper) for a, b in ends):
        return None
    body = _bounded(t.body, scop, dependences, inner)
    return None if body is None else replace(t, lower=lower, upper=upper, body=body)
