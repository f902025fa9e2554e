# SPDX-License-Identifier: Apache-2.0
"""Kernel of a device -> the races on shared memory that isl cannot rule out, for all sizes.

Two threads of a block race if they touch one element, not both to read it, and no barrier lies
between. All threads come to the same barriers (`verify_device`), so statements and barriers of a
block have places in one order: numbers of a path through sequences, and variables of the loops that
have barriers inside, compared lexicographically. A copy that runs beside is a write from where it
begins until its thread has waited for it, and its own thread can race with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from itertools import combinations_with_replacement
from typing import NamedTuple, assert_never

import islpy as isl
from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.index.expr import (
    ZERO,
    Condition,
    Index,
    all_of,
    condition_variables,
    ge,
    index,
    lt,
    negate,
    var,
)
from tcsym.index.presburger import Presburger
from tcsym.index.quasi_affine import is_quasi_affine
from tcsym.index.values import conjuncts
from tcsym.ir.device import (
    Barrier,
    BeginCopy,
    CommitCopies,
    DeviceNode,
    LoadMatrices,
    WaitCopies,
)
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Verify,
)
from tcsym.ir.text import node_text
from tcsym.ir.traverse import grids, loads, substitute_node, walk
from tcsym.sizes.context import context_condition

Subscripts = tuple[Index | None, ...]
_ELEMENT = "copied.element"  # the variable that counts what a copy moves


class Race(NamedTuple):
    """Two statements, or two instances of one, that threads may execute at once."""

    buffer: str
    first: Node
    second: Node

    def __str__(self) -> str:
        first, second = (node_text(n).strip() for n in (self.first, self.second))
        return f"{self.buffer} is touched by two threads at once:\n{first}\n{second}"


def races(kernel: Kernel) -> Iterator[Race]:
    """Pairs of statements whose instances are not proved to be apart; none: there are no races."""
    for region, around in grids(kernel.body):
        yield from _races_of(kernel, region, around)


def _races_of(kernel: Kernel, region: Loop, around: tuple[Loop, ...]) -> Iterator[Race]:
    shared = {b.name: b.dtype.bytes for b in kernel.buffers if b.space == "shared"}
    found = _Found(shared)
    outer, body, facts = _grid(region, around)
    found.node(body, _At())
    known = all_of((context_condition(kernel.context), *facts))
    names = (*kernel.sizes, *kernel.launched, *outer)
    order = _Order(Presburger(names), known, tuple(found.syncs), found.depth)
    for a, b in combinations_with_replacement(found.distinct(), 2):
        if a.buffer == b.buffer and (a.writes or b.writes) and order.is_race(a, b):
            yield Race(a.buffer, a.node, b.node)


def _grid(region: Loop, around: tuple[Loop, ...]) -> tuple[list[str], Node, list[Condition]]:
    """Variables that all threads of a block agree on, the code inside of their loops, and what is
    known of them: of loops of the host and of blocks, counted from 0, and of loops that run once.
    """
    names, facts = [], []
    body: Node = region
    for loop in around:
        start = loop.lower
        body = substitute_node(body, {loop.variable: var(loop.variable) + start})
        names.append(loop.variable)
        facts.append(lt(var(loop.variable) + start, loop.upper))
    while isinstance(body, Loop) and body.kind == "block":
        names.append(body.variable)
        facts.append(lt(var(body.variable), body.upper))
        body = body.body
    while isinstance(body, Allocate) or (isinstance(body, Loop) and _runs_once(body)):
        if isinstance(body, Loop):
            names.append(body.variable)
            facts += [ge(var(body.variable), body.lower), lt(var(body.variable), body.upper)]
        body = body.body
    return names, body, facts


def _runs_once(loop: Loop) -> bool:
    return loop.kind == "serial" and loop.mask is None and (loop.upper - loop.lower).as_int() == 1


# ---- what a block does


class _At(Struct, frozen=True):
    """Where a node is: loops around it and conditions of them, its place among all that orders.

    guards: conditions on more than these loops, which no barrier or wait is under.
    """

    threads: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    guards: tuple[Condition, ...] = ()
    place: tuple[Index, ...] = ()

    def inside(self, loop: Loop, orders: bool) -> _At:
        v = var(loop.variable)
        ends = [ge(v, loop.lower), lt(v, loop.upper)]
        if loop.mask is not None:
            ends.append(lt(v, loop.mask))
        if loop.kind == "thread":
            at = replace(self, threads=(*self.threads, loop.variable))
        else:
            at = replace(self, variables=(*self.variables, loop.variable))
        return at.under(orders, *ends)

    def under(self, orders: bool, *conditions: Condition) -> _At:
        """orders: other places are under them, too, those of barriers."""
        own = {*self.threads, *self.variables}
        parts = [x for c in conditions for x in conjuncts(c)]
        kept = [c for c in parts if orders or condition_variables(c) <= own]
        rest = [c for c in parts if c not in kept]
        at = replace(self, conditions=(*self.conditions, *kept))
        return replace(at, guards=(*self.guards, *rest))

    def then(self, *place: Index) -> _At:
        return replace(self, place=(*self.place, *place))


class _Touch(Struct, frozen=True):
    """A statement that reads or writes a shared buffer. `beside`: until it is waited for."""

    node: Node
    at: _At
    buffer: str
    subscripts: Subscripts
    writes: bool
    beside: bool = False


class _Sync(Struct, frozen=True):
    node: Barrier | CommitCopies | WaitCopies
    at: _At


class _Found(Struct):
    """Of a block: all touches of shared buffers, with the bytes of an element of each, and all that
    orders them."""

    shared: Mapping[str, int]
    touches: list[_Touch] = field(default_factory=list)
    syncs: list[_Sync] = field(default_factory=list)

    def distinct(self) -> tuple[_Touch, ...]:
        """Touches of one kind at one place by one subscript are one, but for two copies."""
        found = [(x if x.beside else replace(x, node=Barrier()), x) for x in self.touches]
        return tuple(dict(reversed(found)).values())[::-1]

    @property
    def depth(self) -> int:
        places = [x.at.place for x in self.touches] + [x.at.place for x in self.syncs]
        return max(map(len, places), default=0)

    def node(self, n: Node, at: _At) -> None:
        ordered = _has_sync(n)
        match n:
            case Block(body):
                for k, x in enumerate(body):
                    self.node(x, at.then(index(k)) if ordered else at)
            case Loop():
                counts = ordered and n.kind != "thread"
                around = at.then(var(n.variable)) if counts else at
                self.node(n.body, around.inside(n, ordered))
            case Branch(c, then, orelse):
                self.node(then, (at.then(ZERO) if ordered else at).under(ordered, c))
                if orelse is not None:
                    around = at.then(index(1)) if ordered else at
                    self.node(orelse, around.under(ordered, negate(c)))
            case Allocate(_, body):
                self.node(body, at)
            case Barrier() | CommitCopies() | WaitCopies():
                self.syncs.append(_Sync(n, at))
            case Store() | Update() | Verify() | TransposeBlock() | DeviceNode():
                self.touches += [x for x in _touches(n, at, self.shared) if x.buffer in self.shared]
            case _:
                assert_never(n)


def _has_sync(n: Node) -> bool:
    return any(isinstance(x, Barrier | CommitCopies | WaitCopies) for x, _ in walk(n))


def _touches(n: Node, at: _At, bytes_of: Mapping[str, int]) -> Iterator[_Touch]:
    match n:
        case Store() | Update():
            yield _Touch(n, at, n.buffer, n.subscripts, True)
        case BeginCopy():
            *rows, first = n.target_subscripts
            e = var(_ELEMENT)
            moved = replace(at, variables=(*at.variables, _ELEMENT))
            moved = moved.under(False, ge(e, 0), lt(e, n.elements))
            yield _Touch(n, moved, n.target, (*rows, first + e), True, beside=True)
        case LoadMatrices():
            for _, source in n.elements(bytes_of[n.source]):
                yield _Touch(n, at, n.source, source, False)
        case _:
            pass
    if isinstance(n, Store | Update | Verify):
        for r in loads(n.value):
            places = tuple(s if isinstance(s, Index) else None for s in r.subscripts)
            yield _Touch(n, at, r.tensor, places, False)


# ---- the proof


class _Order(Struct, frozen=True, dict=True):
    """What a block's barriers and waits say of the order of two places.

    Places are points of `depth` dimensions; shorter ones are filled up with zeros, as what is
    before a barrier in fewer dimensions is so in all.
    """

    presburger: Presburger
    known: Condition
    syncs: Sequence[_Sync]
    depth: int
    touched: dict[_Touch, isl.Set] = field(default_factory=dict)
    elements: dict[tuple[_Touch, bool], isl.Map] = field(default_factory=dict)

    def is_race(self, a: _Touch, b: _Touch) -> bool:
        """Instances at one element, neither of which is over for the other when that begins.

        Places alone rule most out, and what moves with the loops of a tile all but few others: so
        conditions on sizes come last.
        """
        others = self._unordered(a, b, *(self._done if x.beside else self._parted for x in (a, b)))
        alone = isl.Map.empty(others.get_space())
        if a.beside or b.beside:
            ends = (self._done_alone if x.beside else self._before for x in (a, b))
            alone = self._unordered(a, b, *ends)
        if others.is_empty() and alone.is_empty():
            return False
        return all(self._meet(a, b, others, alone, guarded) for guarded in (False, True))

    def _unordered(self, a: _Touch, b: _Touch, after_a: isl.Map, after_b: isl.Map) -> isl.Map:
        """{ place of a -> place of b that may come at the same time }"""
        pairs = isl.Map.from_domain_and_range(self._touched(a), self._touched(b))
        return pairs.subtract(after_a).subtract(after_b.reverse()).coalesce()

    def _touched(self, x: _Touch) -> isl.Set:
        if x not in self.touched:
            place = self._filled(x.at.place)
            self.touched[x] = self._relation(x.at, "P", place, x.at.conditions).range()
        return self.touched[x]

    def _meet(self, a: _Touch, b: _Touch, others: isl.Map, alone: isl.Map, guarded: bool) -> bool:
        """Two threads touch one element at such places, or one does at those of `alone`.

        guarded: under all conditions.
        """
        pairs = self._elements(a, guarded).apply_range(self._elements(b, guarded).reverse())
        n, points = len(a.at.threads), pairs.get_space().domain()
        same_thread = _equal(points, range(n))
        met = pairs.intersect(self._lifted(others, points, n))
        if not met.subtract(same_thread).is_empty():
            return True
        own = pairs.intersect(self._lifted(alone, points, n)).intersect(same_thread)
        if a is b:
            own = own.subtract(_equal(points, range(n + self.depth)))
        return not own.is_empty()

    def _elements(self, x: _Touch, guarded: bool) -> isl.Map:
        """{ [threads, place] -> element }, perhaps too many."""
        found = self.elements.get((x, guarded))
        if found is None:
            threads = [var(v) for v in x.at.threads]
            conditions = (*x.at.conditions, *((self.known, *x.at.guards) if guarded else ()))
            element = self._relation(x.at, "E", x.subscripts, conditions)
            place = (*threads, *self._filled(x.at.place))
            points = self._relation(x.at, "X", place, conditions)
            found = points.reverse().apply_range(element)
            self.elements[x, guarded] = found
        return found

    def _relation(
        self,
        at: _At,
        target: str,
        subscripts: Sequence[Index | None],
        conditions: Sequence[Condition],
    ) -> isl.Map:
        variables = (*at.threads, *at.variables)
        return self.presburger.relation("D", variables, target, subscripts, all_of(conditions))

    def _filled(self, place: tuple[Index, ...]) -> tuple[Index, ...]:
        return (*place, *(ZERO,) * (self.depth - len(place)))

    def _lifted(self, order: isl.Map, points: isl.Space, n: int) -> isl.Map:
        """Of places -> of points, which have `n` numbers of a thread in front."""
        found = order.insert_dims(isl.dim_type.in_, 0, n).insert_dims(isl.dim_type.out, 0, n)
        for side in (isl.dim_type.in_, isl.dim_type.out):
            found = found.set_tuple_name(side, points.get_tuple_name(isl.dim_type.set))
        return found

    # ---- { place -> place }

    @cached_property
    def _before(self) -> isl.Map:
        return isl.Map.lex_lt(self.presburger.space("P", self.depth))

    @cached_property
    def _parted(self) -> isl.Map:
        """A barrier lies between."""
        return self._by(self._at(Barrier)).apply_range(self._before).coalesce()

    @cached_property
    def _done_alone(self) -> isl.Map:
        """A copy begun there has been waited for: behind it, as many groups as may be pending and
        its own are whole when the wait comes."""
        return self._waited.apply_range(self._before).coalesce()

    @cached_property
    def _done(self) -> isl.Map:
        """It has been waited for, and after that comes a barrier."""
        return self._waited.apply_range(self._parted).coalesce()

    @cached_property
    def _waited(self) -> isl.Map:
        groups = self._by(self._at(CommitCopies))
        found = isl.Map.empty(self._before.get_space())
        for sync in self.syncs:
            if isinstance(sync.node, WaitCopies):
                whole = reduce(isl.Map.apply_range, [groups] * (sync.node.pending + 1))
                found = found.union(whole.apply_range(self._by(self._places(sync))))
        return found.coalesce()

    def _by(self, places: isl.Set) -> isl.Map:
        """{ place -> one of `places` after it }"""
        return self._before.intersect_range(places).coalesce()

    def _at(self, kind: type[Barrier | CommitCopies]) -> isl.Set:
        found = isl.Set.empty(self.presburger.space("P", self.depth))
        for sync in self.syncs:
            if isinstance(sync.node, kind):
                found = found.union(self._places(sync))
        return found

    def _places(self, sync: _Sync) -> isl.Set:
        """All places of a node that orders others; none where they are not known exactly."""
        condition = all_of((*sync.at.conditions, *sync.at.guards))
        place = self._filled(sync.at.place)
        sizes = self.presburger.sizes
        if not is_quasi_affine(condition, sizes):
            return isl.Set.empty(self.presburger.space("P", self.depth))
        return self._relation(sync.at, "P", place, (condition,)).range()


def _equal(points: isl.Space, dimensions: range) -> isl.Map:
    """{ point -> point that has the same numbers in these dimensions }"""
    found = isl.Map.universe(points.map_from_set())
    for d in dimensions:
        found = found.equate(isl.dim_type.in_, d, isl.dim_type.out, d)
    return found
