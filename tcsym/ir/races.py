"""Kernel of a device -> the races on shared memory that isl cannot rule out, for all sizes.

Two threads of a block race if they touch one element, not both to read it, and no barrier lies
between. All threads come to the same barriers (`verify_device`), so statements and barriers of a
block have places in one order: numbers of a path through sequences, and variables of the loops that
have barriers inside, compared lexicographically. A copy that runs beside is a write from where it
begins until its thread has waited for it, and its own thread can race with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import combinations_with_replacement
from typing import NamedTuple, assert_never

import islpy as isl

from tcsym.index.expr import ZERO, Condition, Index, all_of, ge, index, lt, negate, var
from tcsym.index.presburger import Presburger
from tcsym.index.quasi_affine import is_quasi_affine
from tcsym.ir.device import Barrier, BeginCopy, CommitCopies, DeviceNode, WaitCopies
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Prefetch,
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
    shared = frozenset(b.name for b in kernel.buffers if b.space == "shared")
    found = _Found(shared)
    outer, body, facts = _grid(region, around)
    found.node(body, _At())
    known = all_of((context_condition(kernel.context), *facts))
    names = (*kernel.sizes, *kernel.launched, *outer)
    order = _Order(Presburger(names), known, tuple(found.syncs), found.depth)
    for a, b in combinations_with_replacement(found.touches, 2):
        if a.buffer == b.buffer and (a.writes or b.writes) and order.is_race(a, b):
            yield Race(a.buffer, a.node, b.node)


def _grid(region: Loop, around: tuple[Loop, ...]) -> tuple[list[str], Node, list[Condition]]:
    """Variables of the loops of the host and of blocks, counted from 0, the code inside of them,
    and what is known of these variables."""
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
    return names, body, facts


# ---- what a block does


@dataclass(frozen=True, slots=True)
class _At:
    """Where a node is: loops around it and conditions of them, its place among all that orders."""

    threads: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    place: tuple[Index, ...] = ()

    def inside(self, loop: Loop) -> _At:
        v = var(loop.variable)
        ends = [ge(v, loop.lower), lt(v, loop.upper)]
        if loop.mask is not None:
            ends.append(lt(v, loop.mask))
        at = self.under(*ends)
        if loop.kind == "thread":
            return replace(at, threads=(*at.threads, loop.variable))
        return replace(at, variables=(*at.variables, loop.variable))

    def under(self, *conditions: Condition) -> _At:
        return replace(self, conditions=(*self.conditions, *conditions))

    def then(self, *place: Index) -> _At:
        return replace(self, place=(*self.place, *place))


@dataclass(frozen=True, slots=True)
class _Touch:
    """A statement that reads or writes a shared buffer. `beside`: until it is waited for."""

    node: Node
    at: _At
    buffer: str
    subscripts: Subscripts
    writes: bool
    beside: bool = False


@dataclass(frozen=True, slots=True)
class _Sync:
    node: Barrier | CommitCopies | WaitCopies
    at: _At


@dataclass(slots=True)
class _Found:
    """Of a block: all touches of shared buffers, all that orders them."""

    shared: frozenset[str]
    touches: list[_Touch] = field(default_factory=list)
    syncs: list[_Sync] = field(default_factory=list)

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
                self.node(n.body, (at.then(var(n.variable)) if counts else at).inside(n))
            case Branch(c, then, orelse):
                self.node(then, (at.then(ZERO) if ordered else at).under(c))
                if orelse is not None:
                    self.node(orelse, (at.then(index(1)) if ordered else at).under(negate(c)))
            case Allocate(_, body):
                self.node(body, at)
            case Barrier() | CommitCopies() | WaitCopies():
                self.syncs.append(_Sync(n, at))
            case Store() | Update() | Verify() | Prefetch() | TransposeBlock() | DeviceNode():
                self.touches += [x for x in _touches(n, at) if x.buffer in self.shared]
            case _:
                assert_never(n)


def _has_sync(n: Node) -> bool:
    return any(isinstance(x, Barrier | CommitCopies | WaitCopies) for x, _ in walk(n))


def _touches(n: Node, at: _At) -> Iterator[_Touch]:
    match n:
        case Store() | Update():
            yield _Touch(n, at, n.buffer, n.subscripts, True)
        case BeginCopy():
            *rows, first = n.target_subscripts
            e = var(_ELEMENT)
            moved = replace(at, variables=(*at.variables, _ELEMENT))
            moved = moved.under(ge(e, 0), lt(e, n.elements))
            yield _Touch(n, moved, n.target, (*rows, first + e), True, beside=True)
        case _:
            pass
    if isinstance(n, Store | Update | Verify):
        for r in loads(n.value):
            places = tuple(s if isinstance(s, Index) else None for s in r.subscripts)
            yield _Touch(n, at, r.tensor, places, False)


# ---- the proof


@dataclass(frozen=True)
class _Order:
    """What a block's barriers and waits say of the order of two places.

    Places are points of `depth` dimensions; shorter ones are filled up with zeros, as what is
    before a barrier in fewer dimensions is so in all.
    """

    presburger: Presburger
    known: Condition
    syncs: Sequence[_Sync]
    depth: int

    def is_race(self, a: _Touch, b: _Touch) -> bool:
        """Instances at one element, neither of which is over for the other when that begins."""
        pairs = self._elements(a).apply_range(self._elements(b).reverse())
        n = len(a.at.threads)
        points = pairs.get_space().domain()
        same_thread = _equal(points, range(n))

        def unordered(found: isl.Map, after_a: isl.Map, after_b: isl.Map) -> bool:
            found = found.subtract(self._lifted(after_a, points, n))
            return not found.subtract(self._lifted(after_b, points, n).reverse()).is_empty()

        others = pairs.subtract(same_thread)
        if unordered(others, *(self._done if x.beside else self._parted for x in (a, b))):
            return True
        if not (a.beside or b.beside):
            return False
        alone = pairs.intersect(same_thread)
        if a is b:
            alone = alone.subtract(_equal(points, range(n + self.depth)))
        return unordered(alone, *(self._done_alone if x.beside else self._before for x in (a, b)))

    def _elements(self, x: _Touch) -> isl.Map:
        """{ [threads, place] -> element }, perhaps too many."""
        threads = [var(v) for v in x.at.threads]
        element = self._relation(x.at, "E", x.subscripts)
        points = self._relation(x.at, "X", (*threads, *self._filled(x.at.place)))
        return points.reverse().apply_range(element)

    def _relation(self, at: _At, target: str, subscripts: Sequence[Index | None]) -> isl.Map:
        condition = all_of((self.known, *at.conditions))
        variables = (*at.threads, *at.variables)
        return self.presburger.relation("D", variables, target, subscripts, condition)

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
        condition = all_of(sync.at.conditions)
        place = self._filled(sync.at.place)
        sizes = self.presburger.sizes
        if not is_quasi_affine(condition, sizes):
            return isl.Set.empty(self.presburger.space("P", self.depth))
        return self._relation(sync.at, "P", place).range()


def _equal(points: isl.Space, dimensions: range) -> isl.Map:
    """{ point -> point that has the same numbers in these dimensions }"""
    found = isl.Map.universe(points.map_from_set())
    for d in dimensions:
        found = found.equate(isl.dim_type.in_, d, isl.dim_type.out, d)
    return found
