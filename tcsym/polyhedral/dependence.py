"""Scop -> dependences: which instances must stay in order, through which tensor.

Memory-based: every pair of accesses to one element of which one writes, in the order of the program. A
`for` loop splits a pair into pieces: those within one iteration of all common loops, and for each
common loop those it carries. Instances of one statement within one iteration are unordered (statements
are simultaneous after `normalise`), updates of one reduction may be reordered: neither is a dependence
here; that updates may not run concurrently follows from `ScopStatement.reduced`.

Equal iterators are read off the subscripts; isl is asked only where they do not tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import islpy as isl

from tcsym.index import TRUE, Index, substitute, var
from tcsym.polyhedral.relations import IN, OUT, Relations
from tcsym.polyhedral.scop import Access, Scop, ScopStatement, read_accesses

Kind = Literal["flow", "anti", "output"]


@dataclass(frozen=True, slots=True)
class Dependence:
    """`source` before `sink`, through elements that both access.

    The first `depth` iterators are common `for` variables: equal on both sides, or, if `carried`, equal
    but for the last of them, which is greater at the sink.
    """

    source: ScopStatement
    sink: ScopStatement
    kind: Kind
    source_access: Access
    sink_access: Access
    depth: int
    carried: bool

    @property
    def tensor(self) -> str:
        return self.source_access.tensor

    def __str__(self) -> str:
        how = f" carried by {self.source.iterators[self.depth - 1]}" if self.carried else ""
        ends = f"{self.source.name} -> {self.sink.name}"
        return f"{ends}: {self.kind} through {self.source_access} / {self.sink_access}{how}"


@dataclass(slots=True)
class Dependences:
    """All dependences of a scop, and what is known about them."""

    all: tuple[Dependence, ...]
    relations: Relations
    _maps: dict[Dependence, isl.Map] = field(default_factory=dict)
    _equal: dict[tuple[Dependence, int, int], bool] = field(default_factory=dict)
    _solved: dict[Dependence, tuple[frozenset[tuple[int, int]], bool]] = field(default_factory=dict)
    _empty: dict[Dependence, bool] = field(default_factory=dict)
    _edges: dict[tuple[str, str], tuple[Dependence, ...]] = field(default_factory=dict)

    def relation(self, d: Dependence) -> isl.Map:
        """{ source[iterators] -> sink[iterators] }"""
        if d not in self._maps:
            self._maps[d] = _relation(d, self.relations)
        self.relations.deadline.check()
        return self._maps[d]

    def is_empty(self, d: Dependence) -> bool:
        if d not in self._empty:
            self._empty[d] = bool(self.relation(d).is_empty())
        return self._empty[d]

    def equal(self, d: Dependence, i: int, j: int) -> bool:
        """True if iterator i of the source equals iterator j of the sink at every pair, for all sizes."""
        pairs, complete = self.solved(d)
        if (i, j) in pairs:
            return True
        if complete:
            return False
        key = (d, i, j)
        if key not in self._equal:
            hull = self.relation(d).affine_hull()
            self._equal[key] = bool(hull.is_subset(hull.equate(IN, i, OUT, j)))
        return self._equal[key]

    def solved(self, d: Dependence) -> tuple[frozenset[tuple[int, int]], bool]:
        """Pairs of equal iterators that the subscripts show, and whether these are all."""
        if d not in self._solved:
            self._solved[d] = _solve(d)
        return self._solved[d]

    def between(self, source: str, sink: str) -> tuple[Dependence, ...]:
        if not self._edges:
            for d in self.all:
                key = (d.source.name, d.sink.name)
                self._edges[key] = (*self._edges.get(key, ()), d)
        return self._edges.get((source, sink), ())

    def __str__(self) -> str:
        return "\n".join(map(str, self.all)) or "none"


def scop_dependences(scop: Scop, relations: Relations) -> Dependences:
    """All pairs of accesses that may touch one element; those that isl shows empty are left out."""
    found = Dependences((), relations)
    kept: dict[tuple[str, str, Access, Access, int, bool], Dependence] = {}
    touching = [(s, _touched(s, scop.written)) for s in scop.statements]
    for a, (first, accesses) in enumerate(touching):
        for second, others in touching[a:]:
            for d in _pairs(first, accesses, second, others):
                key = (d.source.name, d.sink.name, *_ends(d), d.depth, d.carried)
                if key not in kept and (not _may_be_empty(d, found) or not found.is_empty(d)):
                    kept[key] = d
    found.all = tuple(kept.values())
    return found


def _ends(d: Dependence) -> tuple[Access, Access]:
    return d.source_access, d.sink_access


def _touched(s: ScopStatement, written: frozenset[str]) -> tuple[tuple[Access, bool], ...]:
    """Accesses to tensors that some statement writes, and whether each writes."""
    own = () if s.write is None else ((s.write, True),)
    return (*own, *((a, False) for a in read_accesses(s) if a.tensor in written))


def _pairs(
    first: ScopStatement,
    accesses: tuple[tuple[Access, bool], ...],
    second: ScopStatement,
    others: tuple[tuple[Access, bool], ...],
) -> Iterator[Dependence]:
    """Pieces between two statements (`first` earlier in the text, or the same)."""
    common = 0
    for x, y in zip(first.outer, second.outer):
        if x.variable != y.variable:
            break
        common += 1
    for a, a_writes in accesses:
        for b, b_writes in others:
            if a.tensor != b.tensor or not (a_writes or b_writes):
                continue
            if first is not second:
                yield Dependence(first, second, _kind(a_writes, b_writes), a, b, common, False)
                for depth in range(1, common + 1):
                    yield Dependence(second, first, _kind(b_writes, a_writes), b, a, depth, True)
            for depth in range(1, common + 1):
                yield Dependence(first, second, _kind(a_writes, b_writes), a, b, depth, True)


def _kind(source_writes: bool, sink_writes: bool) -> Kind:
    if source_writes:
        return "output" if sink_writes else "flow"
    return "anti"


def _may_be_empty(d: Dependence, known: Dependences) -> bool:
    """False if the pair certainly exists for some sizes, so that isl need not be asked."""
    simple = d.source.condition == TRUE and d.sink.condition == TRUE and not d.carried
    return not (simple and known.solved(d)[1])


def _relation(d: Dependence, relations: Relations) -> isl.Map:
    source = relations.access(d.source, d.source_access)
    sink = relations.access(d.sink, d.sink_access)
    pairs = source.apply_range(sink.reverse())
    last = d.depth - 1
    for k in range(last if d.carried else d.depth):
        pairs = pairs.equate(IN, k, OUT, k)
    if d.carried:
        pairs = pairs.order_lt(IN, last, OUT, last)
    return pairs if relations.scop.context == TRUE else pairs.intersect_params(relations.context)


# ---- equal iterators, from the subscripts


def _solve(d: Dependence) -> tuple[frozenset[tuple[int, int]], bool]:
    """Positions (i, j) with source iterator i == sink iterator j, and whether there can be no more.

    Two subscripts c*x + r and c*y + r with one index variable each and the same rest r over sizes and
    equal loop variables force x == y.
    """
    equal_outer = d.depth - 1 if d.carried else d.depth
    fixed = frozenset(d.source.iterators[:equal_outer])
    pairs = {(k, k) for k in range(equal_outer)}
    complete = True
    for a, b in zip(d.source_access.subscripts, d.sink_access.subscripts):
        found = None if a is None or b is None else _forced(d, a, b, fixed)
        if found is None:
            complete = False
        else:
            pairs.update(found)
    return frozenset(pairs), complete


def _forced(
    d: Dependence, a: Index, b: Index, fixed: frozenset[str]
) -> tuple[tuple[int, int], ...] | None:
    """Equal iterators implied by a == b; None if more could be implied than this can see."""
    mine = [v for v in d.source.iterators if v in a.variables() and v not in fixed]
    yours = [v for v in d.sink.iterators if v in b.variables() and v not in fixed]
    if not mine and not yours:
        return () if a == b else None
    if len(mine) != 1 or len(yours) != 1:
        return None
    x, y = mine[0], yours[0]
    c = a.coefficient(x)
    if c == 0 or substitute(a, {x: var(y)}) != b or a - var(x) * c != b - var(y) * c:
        return None
    if x in (a - var(x) * c).variables():
        return None
    return ((d.source.iterators.index(x), d.sink.iterators.index(y)),)
