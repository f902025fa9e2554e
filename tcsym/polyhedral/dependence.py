# SPDX-License-Identifier: Apache-2.0
"""Scop -> dependences: which instances must stay in order, through which tensor.

Memory-based: every pair of accesses to one element of which one writes, in the order of the
program. A `for` loop splits a pair into pieces: those within one iteration of all common loops, and
for each common loop those it carries. Instances of one statement within one iteration are unordered
(statements are simultaneous after `normalise`), updates of one reduction may be reordered: neither
is a dependence here; that updates may not run concurrently follows from `ScopStatement.reduced`.

Equal iterators are read off the subscripts; isl is asked only where they do not tell.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, KeysView
from typing import Literal

import islpy as isl
from msgspec import Struct, field

from tcsym.index.expr import TRUE, ZERO, Index, var
from tcsym.polyhedral.relations import IN, OUT, Relations
from tcsym.polyhedral.scop import Access, Scop, ScopStatement

Kind = Literal["flow", "anti", "output"]


class Dependence(Struct, frozen=True):
    """`source` before `sink`, through elements that both access.

    The first `depth` iterators are common `for` variables: equal on both sides, or, if `carried`,
    equal but for the last of them, which is greater at the sink.
    """

    source: ScopStatement
    sink: ScopStatement
    kind: Kind
    source_access: Access
    sink_access: Access
    depth: int
    carried: bool

    def __hash__(self) -> int:
        return hash((self.source.name, self.sink.name, self.source_access, self.sink_access))

    @property
    def tensor(self) -> str:
        return self.source_access.tensor

    def __str__(self) -> str:
        how = f" carried by {self.source.iterators[self.depth - 1]}" if self.carried else ""
        ends = f"{self.source.name} -> {self.sink.name}"
        return f"{ends}: {self.kind} through {self.source_access} / {self.sink_access}{how}"


class _Solved(Struct, frozen=True):
    """Positions (i, j) with source iterator i == sink iterator j; `complete`: there are no more.

    `empty`: the subscripts can never be equal.
    """

    pairs: frozenset[tuple[int, int]]
    complete: bool
    empty: bool


class Dependences(Struct):
    """All dependences of a scop, and what is known about them."""

    all: tuple[Dependence, ...]
    relations: Relations
    _maps: dict[Dependence, isl.Map] = field(default_factory=dict)
    _equal: dict[tuple[Dependence, int, int], bool] = field(default_factory=dict)
    _solved: dict[Dependence, _Solved] = field(default_factory=dict)
    _empty: dict[Dependence, bool] = field(default_factory=dict)
    _edges: dict[tuple[str, str], tuple[Dependence, ...]] = field(default_factory=dict)
    _sources: dict[str, dict[str, None]] = field(default_factory=dict)

    def relation(self, d: Dependence) -> isl.Map:
        """{ source[iterators] -> sink[iterators] }"""
        if d not in self._maps:
            self._maps[d] = _relation(d, self.relations)
        self.relations.effort.step()
        return self._maps[d]

    def is_empty(self, d: Dependence) -> bool:
        if d not in self._empty:
            self._empty[d] = bool(self.relation(d).is_empty())
        return self._empty[d]

    def equal(self, d: Dependence, i: int, j: int) -> bool:
        """True if iterator i of the source equals iterator j of the sink, for all sizes."""
        solved = self.solved(d)
        if (i, j) in solved.pairs:
            return True
        if solved.complete:
            return False
        key = (d, i, j)
        if key not in self._equal:
            hull = self.relation(d).affine_hull()
            self._equal[key] = bool(hull.is_subset(hull.equate(IN, i, OUT, j)))
        return self._equal[key]

    def solved(self, d: Dependence) -> _Solved:
        """What the subscripts tell without isl."""
        if d not in self._solved:
            self._solved[d] = _solve(d)
        return self._solved[d]

    def between(self, source: str, sink: str) -> tuple[Dependence, ...]:
        if not self._edges:
            for d in self.all:
                key = (d.source.name, d.sink.name)
                self._edges[key] = (*self._edges.get(key, ()), d)
        return self._edges.get((source, sink), ())

    def sources(self, sink: str) -> KeysView[str]:
        """Statements that `between` gives something for, with this sink, in order."""
        if not self._sources:
            for d in self.all:
                self._sources.setdefault(d.sink.name, {})[d.source.name] = None
        return self._sources.get(sink, {}).keys()

    def __str__(self) -> str:
        return "\n".join(str(d) for d in self.all if not self.is_empty(d)) or "none"


def scop_dependences(scop: Scop, relations: Relations) -> Dependences:
    """All pairs of accesses that may touch one element.

    Where subscripts leave a doubt, isl leaves out empty pairs; carried ones are only asked for when
    a loop's order depends on them.
    """
    found = Dependences((), relations)
    kept: dict[tuple[str, str, Access, Access, int, bool], Dependence] = {}
    written = scop.written
    touching = [(s, _touched(s, written)) for s in scop.statements]
    meeting = _meeting(scop, [x for _, x in touching])
    for (first, accesses), later in zip(touching, meeting):
        relations.effort.step()
        for second, others in map(touching.__getitem__, later):
            pairs = _pairs(first, accesses, second, others)
            for d in sorted(pairs, key=lambda d: d.kind != "flow"):
                key = (d.source.name, d.sink.name, *_ends(d), d.depth, d.carried)
                if key not in kept and not _is_surely_empty(d, found):
                    kept[key] = d
    found.all = tuple(kept.values())
    return found


def _ends(d: Dependence) -> tuple[Access, Access]:
    return d.source_access, d.sink_access


Touched = tuple[tuple[Access, bool], ...]


def _touched(s: ScopStatement, written: frozenset[str]) -> Touched:
    """Accesses to tensors that some statement writes, and whether each writes."""
    own = () if s.write is None else ((s.write, True),)
    return (*own, *((a, False) for a in s.reads if a.tensor in written))


def _meeting(scop: Scop, touching: list[Touched]) -> Iterator[list[int]]:
    """Of each statement those from it on that touch a tensor with it which one of them writes, in
    the order of the text, up to the next that writes all of that tensor: what is behind that one
    depends on it, and so on all before."""
    users: dict[str, list[int]] = defaultdict(list)
    writers: dict[str, list[int]] = defaultdict(list)
    whole: dict[str, list[int]] = defaultdict(list)
    shapes = {t.name: t.shape for t in scop.tensors}
    for k, (s, accesses) in enumerate(zip(scop.statements, touching)):
        for a, writes in accesses:
            users[a.tensor].append(k)
            if writes:
                writers[a.tensor].append(k)
        if s.target and _writes_all(s, shapes[s.target]):
            whole[s.target].append(k)
    for k, accesses in enumerate(touching):
        found: set[int] = set()
        for a, writes in accesses:
            others, ends = (users if writes else writers)[a.tensor], whole[a.tensor]
            end = ends[at] if (at := bisect_right(ends, k)) < len(ends) else len(touching)
            found.update(others[bisect_left(others, k) : bisect_right(others, end)])
        yield sorted(found)


def _writes_all(s: ScopStatement, shape: tuple[Index, ...]) -> bool:
    """Every element of the tensor, whenever the statement is reached, in no loop of the program."""
    if s.outer or s.given or s.reduced or s.positions or s.condition != TRUE:
        return False
    whole = [(var(r.variable), r.upper) for r in s.ranges if r.lower == ZERO]
    return len(whole) == len(s.ranges) and list(zip(s.subscripts, shape)) == whole


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


def _is_surely_empty(d: Dependence, known: Dependences) -> bool:
    solved = known.solved(d)
    return solved.empty or (not d.carried and not solved.complete and known.is_empty(d))


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


def _solve(d: Dependence) -> _Solved:
    """Subscripts c*x + r and c*y + r with one index variable each and the same rest force x == y.

    The rest r is over sizes and loop variables that are equal on both sides.
    """
    equal_outer = d.depth - 1 if d.carried else d.depth
    fixed = frozenset(d.source.iterators[:equal_outer])
    pairs = {(k, k) for k in range(equal_outer)}
    complete, empty = True, False
    for a, b in zip(d.source_access.subscripts, d.sink_access.subscripts):
        if a is None or b is None:
            complete = False
            continue
        mine = [v for v in d.source.iterators if v in a.variables() and v not in fixed]
        yours = [v for v in d.sink.iterators if v in b.variables() and v not in fixed]
        if not mine and not yours:
            complete &= a == b
            empty |= (a - b).as_int() not in (None, 0)
        elif len(mine) == len(yours) == 1 and _forces(a, mine[0], b, yours[0]):
            pairs.add((d.source.iterators.index(mine[0]), d.sink.iterators.index(yours[0])))
        else:
            complete = False
    return _Solved(frozenset(pairs), complete, empty)


def _forces(a: Index, x: str, b: Index, y: str) -> bool:
    """a == b implies x == y."""
    if a.terms == ((x, 1),) and b.terms == ((y, 1),):
        return a.constant == b.constant
    c = a.coefficient(x)
    rest = a - var(x) * c
    return c != 0 and x not in rest.variables() and rest == b - var(y) * c
