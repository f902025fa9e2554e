# SPDX-License-Identifier: Apache-2.0
"""Schedule tree -> proof that it keeps every dependence, for all sizes, and the order of each loop.

Instances of two statements are compared loop by loop, outermost first: at each common loop the
source of a dependence must not come later than its sink; where all common loops are equal, it must
stand before it in the tree. isl decides what equal subscripts do not. A failure names dependence
and loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import islpy as isl
from msgspec import Struct

from tcsym.frontend.program import reads
from tcsym.index.expr import Index, var
from tcsym.index.values import substitute
from tcsym.ir.loops import LoopOrder
from tcsym.polyhedral.classify import moving
from tcsym.polyhedral.dependence import Dependence, Dependences
from tcsym.polyhedral.relations import IN, OUT
from tcsym.polyhedral.scop import Scop, ScopStatement, is_ragged
from tcsym.polyhedral.tree import Tree, TreeLoop, leaves, tree_loops


class Carried(Struct, frozen=True):
    """`dependence` may connect iterations of a loop; `relation`: where (None: not asked)."""

    dependence: Dependence
    relation: isl.Map | None


class Proof(Struct, frozen=True):
    """`violations`: empty if the tree is legal. `carried`: by loop variable."""

    violations: tuple[str, ...]
    carried: Mapping[str, tuple[Carried, ...]]

    @property
    def is_legal(self) -> bool:
        return not self.violations


def prove(tree: Tree, scop: Scop, dependences: Dependences) -> Proof:
    problem = _shape_problem(tree, scop, dependences)
    if problem:
        return Proof((problem,), {})
    places = {name: (k, loops) for k, (name, loops) in enumerate(leaves(tree))}
    carried: dict[str, list[Carried]] = {}
    violations = [
        violation
        for d in dependences.all
        if (violation := _violation(d, places, dependences, carried))
    ]
    return Proof(tuple(violations), {v: tuple(c) for v, c in carried.items()})


Places = Mapping[str, tuple[int, tuple[TreeLoop, ...]]]


def _shape_problem(tree: Tree, scop: Scop, dependences: Dependences) -> str:
    """Every instance runs exactly once: one leaf a statement, loops that determine the instance."""
    found = list(leaves(tree))
    names = sorted(name for name, _ in found)
    if names != sorted(s.name for s in scop.statements):
        return "the tree does not hold each statement once"
    for name, loops in found:
        s = scop.statement(name)
        values = [loop.value(name) for loop in loops]
        if set(values) >= {var(v) for v in s.iterators}:
            continue
        if not _is_injective(s, values, dependences):
            return f"the loops around {name} do not determine its instances"
    for name, loops in found:
        problem = _misfit(scop.statement(name), loops, dependences)
        if problem:
            return f"the bounds of loop {problem} are not those of its statements"
    late = _late_write(found, scop)
    if late:
        return late
    variables = [loop.variable for loop in tree_loops(tree)]
    if len(variables) != len(set(variables)):
        return "two loops have one variable"
    return ""


def _late_write(found: list[tuple[str, tuple[TreeLoop, ...]]], scop: Scop) -> str:
    """Scalars are read in front of loops: none is written inside one that the reader is in, too,
    but for loops of the program."""
    writers = defaultdict(list)
    for other, around in found:
        writers[scop.statement(other).target].append((other, {x.variable for x in around}))
    for name, loops in found:
        s = scop.statement(name)
        tensors = {r.tensor for g in s.given for r in reads(g.value)}
        own = {x.variable for x in loops} - {r.variable for r in s.outer}
        for other, variables in (w for t in sorted(tensors) for w in writers.get(t, ())):
            if shared := own & variables:
                return f"{other} writes in loop {min(shared)} what a range of {name} reads"
    return ""


def _misfit(s: ScopStatement, loops: tuple[TreeLoop, ...], dependences: Dependences) -> str:
    """The loop that does not run exactly over the range of the statement's iterator, if it is one
    of our own; what the range uses has loops around it."""
    same = dependences.relations.equal_for_all_sizes
    at: dict[str, Index] = {}
    for loop in loops:
        k = s.position(loop.value(s.name))
        if loop.lower is not None and loop.upper is not None:
            if k < 0 or not s.follows(s.iterators[k]) <= at.keys():
                return loop.variable
            if is_ragged(s, s.iterators[k]) and len(loop.members) > 1:
                return loop.variable  # one name may stand for two scalars
            r = s.range_of(s.iterators[k])
            lower, upper = substitute(r.lower, at), substitute(r.upper, at)
            if not (same(lower, loop.lower) and same(upper, loop.upper)):
                return loop.variable
        if k >= 0:
            at[s.iterators[k]] = var(loop.variable)
    return ""


def _is_injective(s: ScopStatement, values: list[Index], dependences: Dependences) -> bool:
    relations = dependences.relations
    schedule = relations.presburger.relation(s.name, s.iterators, "", values, s.domain)
    return bool(schedule.is_injective())


def _violation(
    d: Dependence, places: Places, dependences: Dependences, carried: dict[str, list[Carried]]
) -> str:
    """Text of the loop or place at which `d` is turned round; '' if none. Notes carrying loops."""
    dependences.relations.effort.step()
    (a, a_loops), (b, b_loops) = places[d.source.name], places[d.sink.name]
    walk = _Walk(d, dependences)
    for x, y in zip(a_loops, b_loops):
        if x.variable != y.variable:
            break
        outcome = walk.enter(x)
        if outcome == "carries":
            carried.setdefault(x.variable, []).append(Carried(d, walk.crossing))
        elif outcome == "reverses":
            return f"{d}: turned round by loop {x.variable}"
        if walk.is_done():
            return ""
    if a < b or walk.is_empty():
        return ""
    return f"{d}: {d.sink.name} stands before {d.source.name}"


class _Walk:
    """The pairs of one dependence that are still undecided, on the way down the common loops."""

    def __init__(self, d: Dependence, dependences: Dependences) -> None:
        self.d, self.dependences = d, dependences
        self.rest: isl.Map | None = None  # None: all pairs of `d`
        self.done = False
        self.crossing: isl.Map | None = None

    def enter(self, loop: TreeLoop) -> str:
        """What the loop does to the undecided pairs: equal, carries, reverses."""
        mine, yours = loop.value(self.d.source.name), loop.value(self.d.sink.name)
        i, j = self.d.source.position(mine), self.d.sink.position(yours)
        if i >= 0 and j >= 0:
            if self.d.carried and i == j == self.d.depth - 1 and self.rest is None:
                self.done, self.crossing = True, None
                return "carries"
            if self.dependences.equal(self.d, i, j):
                return "equal"
        return self._compare(mine, yours)

    def _compare(self, mine: Index, yours: Index) -> str:
        pairs = self._pairs()
        ahead, level, behind = _compared(self.d, mine, yours, pairs, self.dependences)
        if not behind.is_empty():
            return "reverses"
        self.rest = level
        if ahead.is_empty():
            return "equal"
        self.crossing = ahead
        return "carries"

    def _pairs(self) -> isl.Map:
        return self.dependences.relation(self.d) if self.rest is None else self.rest

    def is_done(self) -> bool:
        return self.done or (self.rest is not None and bool(self.rest.is_empty()))

    def is_empty(self) -> bool:
        return bool(self._pairs().is_empty())


def _compared(
    d: Dependence, mine: Index, yours: Index, pairs: isl.Map, dependences: Dependences
) -> tuple[isl.Map, isl.Map, isl.Map]:
    """`pairs` with the source's value less than, equal to, greater than the sink's."""
    i, j = d.source.position(mine), d.sink.position(yours)
    if i >= 0 and j >= 0:
        return (
            pairs.order_lt(IN, i, OUT, j),
            pairs.equate(IN, i, OUT, j),
            pairs.order_gt(IN, i, OUT, j),
        )
    translate = dependences.relations.presburger.pw_aff
    a = translate(mine, d.source.name, d.source.iterators)
    b = translate(yours, d.sink.name, d.sink.iterators)
    return pairs.intersect(a.lt_map(b)), pairs.intersect(a.eq_map(b)), pairs.intersect(a.gt_map(b))


# ---- orders of loops


def loop_orders(
    tree: Tree,
    scop: Scop,
    dependences: Dependences,
    proof: Proof,
    private: Mapping[str, frozenset[str]],
) -> dict[str, LoopOrder]:
    """The order of each loop; `private`: by temporary, the loops it is private to."""
    orders: dict[str, LoopOrder] = {}
    for loop in tree_loops(tree):
        carried = (
            c
            for c in proof.carried.get(loop.variable, ())
            if loop.variable not in private.get(c.dependence.tensor, frozenset())
        )
        if any(_really(c, dependences) for c in carried) or _is_scattered(loop, scop):
            orders[loop.variable] = "sequential"
        elif _reduces(loop, scop):
            orders[loop.variable] = "reduction"
        else:
            orders[loop.variable] = "parallel"
    return orders


def _really(c: Carried, dependences: Dependences) -> bool:
    if c.relation is not None:
        return not c.relation.is_empty()
    return not dependences.is_empty(c.dependence)


def _is_scattered(loop: TreeLoop, scop: Scop) -> bool:
    """It goes along a position, or its iterations may add to one position: they keep their order,
    so that results are the same in every call."""
    for m in loop.members:
        s = scop.statement(m.statement)
        names = m.value.variables()
        if names & s.positions or names & s.reduced & moving(s):
            return True
    return False


def _reduces(loop: TreeLoop, scop: Scop) -> bool:
    """Two iterations may update one element: the loop moves along a reduction iterator."""
    return any(m.value.variables() & scop.statement(m.statement).reduced for m in loop.members)
