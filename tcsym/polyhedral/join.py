# SPDX-License-Identifier: Apache-2.0
"""Units of a level of loops -> runs of those that share a loop.

Loops align iterators through dependences: a unit joins a run if it has an iterator that equals
those of the run in every dependence, over an equal range. What the run is like is kept as it grows,
so that a unit is compared with those it has something to do with, and not with each of the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import Read, subexpressions
from tcsym.index.expr import Index, condition_variables, negate, var
from tcsym.index.values import conjuncts, substitute
from tcsym.options import Fusion
from tcsym.polyhedral.classify import contracted, innermost
from tcsym.polyhedral.dependence import Dependences
from tcsym.polyhedral.scop import Scop, ScopStatement, is_ragged

# Units that a run looks at behind the last one that joined it, and that a search for what two of
# them feed visits: so far apart nothing stays in a cache from the one to the other.
LOOK_AHEAD = 64
MOST_UNITS = 64  # of a run: LLVM's time for the body of a loop grows with the square of its length


class Unit(Struct, frozen=True):
    """A statement with its init, and the iterators for which it has no loop yet, in order."""

    statement: ScopStatement
    init: ScopStatement | None
    left: tuple[str, ...]
    loops: tuple[tuple[str, str], ...] = ()  # of the other iterators

    @property
    def parallel_left(self) -> tuple[str, ...]:
        reduced = self.statement.reduced
        return tuple([v for v in self.left if v not in reduced])

    @property
    def free(self) -> tuple[str, ...]:
        """Iterators left whose ranges use none that is left."""
        following = self.statement.following
        return tuple([v for v in self.left if following[v].isdisjoint(self.left)])

    @property
    def parts(self) -> tuple[ScopStatement, ...]:
        return (self.statement,) if self.init is None else (self.init, self.statement)

    def without(self, iterator: str, loop: str) -> Unit:
        left = tuple(v for v in self.left if v != iterator)
        return replace(self, left=left, loops=(*self.loops, (iterator, loop)))

    def ends(self, iterator: str) -> tuple[Index, Index]:
        """Of its range, over loop variables. Contract: it is free."""
        r, used = self.statement.range_of(iterator), self.statement.following[iterator]
        at = {v: var(loop) for v, loop in self.loops if v in used}
        return substitute(r.lower, at), substitute(r.upper, at)


class Traits(Struct, frozen=True):
    """What fusion asks of a statement. reads: tensors. given: tensors that ends of its ranges read,
    before the loops around it. alone: it shares no loop for what it reads alone."""

    contracted: frozenset[str]
    reads: frozenset[str]
    given: frozenset[str]
    alone: bool

    @staticmethod
    def of(s: ScopStatement) -> Traits:
        found = contracted(s)
        given = (r.tensor for g in s.given for r in subexpressions(g.value) if isinstance(r, Read))
        reads = frozenset([a.tensor for a in s.reads])
        alone = bool(found) or s.role == "check" or _slides(s)
        return Traits(found, reads, frozenset(given), alone)


def _slides(s: ScopStatement) -> bool:
    """A sum of products over a window, which reads elements again in tiles of its own."""
    reduced = frozenset(s.reduced)
    iterators = {r.variable for r in s.ranges}
    moving = [
        e.variables() & iterators for x in s.reads for e in x.subscripts if isinstance(e, Index)
    ]
    return len({x.tensor for x in s.reads}) > 1 and any(
        len(used) > 1 and used & reduced for used in moving
    )


class Fusing(Struct):
    """notes: where a bound fell."""

    scop: Scop
    dependences: Dependences
    strategy: Fusion
    inner: Fusion
    notes: list[str]
    taken: set[str] = field(default_factory=set)  # loop variable names in use
    _traits: dict[str, Traits] = field(default_factory=dict)

    def traits(self, s: ScopStatement) -> Traits:
        if s.name not in self._traits:
            self._traits[s.name] = Traits.of(s)
        return self._traits[s.name]

    def contracted(self, u: Unit) -> frozenset[str]:
        """Reduction iterators of a contraction, else empty."""
        return self.traits(u.statement).contracted

    def sources(self, u: Unit) -> Iterator[str]:
        """Statements that the unit depends on, in the order of the dependences."""
        for s in u.parts:
            yield from self.dependences.sources(s.name)

    def below(self) -> Fusing:
        """Inside of a loop; names and what was found out are shared."""
        return self if self.strategy == self.inner else replace(self, strategy=self.inner)


class _Column(Struct, frozen=True):
    """An iterator of each unit of a run, which may become one loop; how many of them are such.

    rows: parallel loops are left inside the shared one, vectors of their own. more: any are left.
    """

    iterators: tuple[str, ...] = ()
    ends: tuple[tuple[Index, Index], ...] = ()  # those that differ
    reduced: int = 0
    contracted: int = 0
    rows: int = 0
    more: int = 0
    innermost_rows: int = 0
    contracted_rowless: int = 0
    ragged: int = 0

    def joined(self, u: Unit, v: str, fu: Fusing) -> _Column:
        rows = u.parallel_left not in ((), (v,))
        own, ends = bool(fu.contracted(u)), u.ends(v)
        return _Column(
            (*self.iterators, v),
            self.ends if ends in self.ends else (*self.ends, ends),
            self.reduced + (v in u.statement.reduced),
            self.contracted + own,
            self.rows + rows,
            self.more + (len(u.left) > 1),
            self.innermost_rows + (rows and v == innermost(u.statement)),
            self.contracted_rowless + (own and not rows),
            self.ragged + is_ragged(u.statement, v),
        )

    @property
    def is_parallel(self) -> bool:
        return not self.reduced

    def may_be_loop(self, depth: int, strategy: Fusion) -> bool:
        """Apart from dependences and ranges; of more than one unit."""
        n = len(self.iterators)
        if self.ragged:
            return False
        if not self.reduced:
            return not self.innermost_rows and not (self.rows and self.contracted_rowless)
        if self.contracted or (self.reduced < n and (strategy != "max" or depth == 0)):
            return False
        rows = self.rows if self.reduced == n else self.more
        return rows in (0, n)


class Run(Struct):
    """Units that share a loop so far, in order, and the columns that it may be.

    targets, readers, checked: units by what they write, what they read, what they check. given: of
    all. products: contractions, and whether a reduction follows the last of them.
    """

    units: list[Unit] = field(default_factory=list)
    columns: list[_Column] = field(default_factory=list)  # none yet: of the first unit, each
    places: dict[str, int] = field(default_factory=dict)  # in `units`, by statement
    targets: dict[str, list[Unit]] = field(default_factory=lambda: defaultdict(list))
    readers: dict[str, list[Unit]] = field(default_factory=lambda: defaultdict(list))
    checked: dict[str, list[Unit]] = field(default_factory=lambda: defaultdict(list))
    given: set[str] = field(default_factory=set)
    has_product: bool = False
    has_reduction_behind: bool = False

    @staticmethod
    def of(first: Unit, fu: Fusing) -> Run:
        run = Run()
        run._add(first, fu)
        return run

    def add(self, u: Unit, columns: list[_Column], fu: Fusing) -> None:
        self.columns = columns
        self._add(u, fu)

    def _add(self, u: Unit, fu: Fusing) -> None:
        s, traits = u.statement, fu.traits(u.statement)
        self.places.update((x.name, len(self.units)) for x in u.parts)
        self.units.append(u)
        self.targets[s.target].append(u)
        self.checked[_checks_of(s)].append(u)
        self.given |= traits.given
        if not traits.alone:
            for tensor in traits.reads:
                self.readers[tensor].append(u)
        if traits.contracted:
            self.has_product, self.has_reduction_behind = True, False
        elif self.has_product and s.reduced:
            self.has_reduction_behind = True

    def best(self) -> tuple[str, ...]:
        """The first column that is parallel for all, else the first: an iterator of each unit."""
        if not self.columns:
            first = self.units[0]
            free, reduced = first.free, first.statement.reduced
            return (next((v for v in free if v not in reduced), free[0]),)
        return next((c for c in self.columns if c.is_parallel), self.columns[0]).iterators

    def extended(self, u: Unit, feeds: bool, depth: int, fu: Fusing) -> list[_Column]:
        """The columns with an iterator of `u` each; none if it should stay apart."""
        given = fu.traits(u.statement).given
        if not u.left or u.statement.positions or not (feeds or self.is_linked(u, fu)):
            return []
        if not self._contraction_fits(u, fu) or not given.isdisjoint(self.targets):
            return []
        if u.statement.target in self.given:
            return []
        found: list[_Column] = []
        first = self.units[0]
        columns = self.columns or [_Column().joined(first, v, fu) for v in first.free]
        for column in columns:
            longer = (column.joined(u, v, fu) for v in u.free)
            fitting = (c for c in longer if self._fits(u, column, c, depth, fu))
            found += [c for c in (next(fitting, None),) if c is not None]
        return found

    def is_linked(self, u: Unit, fu: Fusing) -> bool:
        """Sharing a loop can pay: a dependence, one tensor written by both, or read by both."""
        return any(not _exclude(r.statement, u.statement, fu) for r in self._linked(u, fu))

    def _linked(self, u: Unit, fu: Fusing) -> Iterator[Unit]:
        s, traits = u.statement, fu.traits(u.statement)
        if s.target:
            yield from self.targets.get(s.target, ())
        for r in self.checked.get(_checks_of(s), ()):
            if _is_check_of(s, r.statement) or _is_check_of(r.statement, s):
                yield r
        if s.role == "check":
            return
        for name in fu.sources(u):
            if name in self.places and fu.scop.statement(name).role != "check":
                yield self.units[self.places[name]]
        for tensor in () if traits.alone else sorted(traits.reads):
            yield from self.readers.get(tensor, ())

    def _contraction_fits(self, u: Unit, fu: Fusing) -> bool:
        """A contraction adds to the tensor of the run, or follows a reduction of an earlier one."""
        if not fu.contracted(u) or self.targets.keys() == {u.statement.target}:
            return True
        return self.has_product and self.has_reduction_behind

    def _fits(self, u: Unit, before: _Column, now: _Column, depth: int, fu: Fusing) -> bool:
        """The column may be one loop: equal ranges, and equal iterators in every dependence."""
        if not now.may_be_loop(depth, fu.strategy):
            return False
        same, v = fu.dependences.relations.equal_for_all_sizes, now.iterators[-1]
        return self._is_aligned(u, before, v, fu) and all(
            same(p, q) for ends in before.ends for p, q in zip(ends, u.ends(v))
        )

    def _is_aligned(self, u: Unit, column: _Column, v: str, fu: Fusing) -> bool:
        for sink in u.parts:
            for name in fu.dependences.sources(sink.name):
                if name in self.places:
                    source, x = fu.scop.statement(name), column.iterators[self.places[name]]
                    if not _edge_aligned(source, x, sink, v, fu):
                        return False
        return True


def _checks_of(s: ScopStatement) -> str:
    return s.name.partition(".exists")[0]


def _is_check_of(s: ScopStatement, t: ScopStatement) -> bool:
    return "check" in (s.role, t.role) and s.name.startswith(f"{t.name}.exists")


def _exclude(s: ScopStatement, t: ScopStatement, fu: Fusing) -> bool:
    """No call runs both: sizes that one asks for are none for the other."""
    sizes = set(fu.scop.sizes) if conjuncts(s.condition) and conjuncts(t.condition) else set[str]()
    for one, other in ((s, t), (t, s)) if sizes else ():
        ours = set(conjuncts(one.condition))
        for x in conjuncts(other.condition):
            if condition_variables(x) <= sizes and set(conjuncts(negate(x))) <= ours:
                return True
    return False


def _edge_aligned(source: ScopStatement, x: str, sink: ScopStatement, y: str, fu: Fusing) -> bool:
    """Every dependence from one to the other is equal at iterators x and y."""
    edges = [d for d in fu.dependences.between(source.name, sink.name) if not d.carried]
    if not edges or x not in source.iterators:  # an init that stands before the loop
        return True
    if y not in sink.iterators:  # an init that would move before the loop
        return False
    i, j = source.iterators.index(x), sink.iterators.index(y)
    return all(fu.dependences.equal(d, i, j) for d in edges)


# ---- all units of a level


class Level:
    """Units in order, of which one run after the other is taken."""

    def __init__(self, units: list[Unit], fu: Fusing) -> None:
        self.units, self.fu = units, fu
        self.place = {s.name: k for k, u in enumerate(units) for s in u.parts}
        self.users: dict[int, list[int]] = defaultdict(list)
        for k, u in enumerate(units):
            for at in {self.place[x] for x in fu.sources(u) if x in self.place}:
                self.users[at].append(k)
        self.group = self._groups()
        self.left: dict[int, list[int]] = defaultdict(list)  # by group
        for k in range(len(units)):
            self.left[self.group[k]].append(k)

    def _groups(self) -> list[int]:
        """Units that have nothing to do with one another are in different groups."""
        parent = list(range(len(self.units)))

        def root(k: int) -> int:
            while parent[k] != k:
                parent[k] = k = parent[parent[k]]
            return k

        first: dict[tuple[str, str], int] = {}
        for k, u in enumerate(self.units):
            s = u.statement
            keys = [("of", _checks_of(s)), *(("in", x) for x in self.fu.traits(s).reads)]
            keys += [("to", s.target)] if s.target else []
            joined = [first.setdefault(x, k) for x in keys]
            for other in (*joined, *self.users.get(k, ())):
                parent[root(other)] = root(k)
        return [root(k) for k in range(len(self.units))]

    def take(self, k: int) -> None:
        """The unit, the first of its group that is left, without others."""
        self.left[self.group[k]].pop(0)

    def run(self, k: int, depth: int) -> Run:
        """The unit, the first of its group that is left, and what joins it; these are taken.

        A unit joins past others that it does not depend on.
        """
        fu, left = self.fu, self.left[self.group[k]]
        run = Run.of(self.units[k], fu)
        skipped, passed, since = list[int](), set[int](), 0
        rest = iter(left[1:] if fu.strategy != "min" else ())
        for at in rest:
            if since == LOOK_AHEAD or len(run.units) == MOST_UNITS:
                skipped.append(at)
                self._note()
                break
            columns = self._columns(run, at, passed, depth)
            if columns:
                run.add(self.units[at], columns, fu)
                since = 0
            else:
                skipped.append(at)
                passed.add(at)
                since += 1
        if fu.strategy == "min":
            skipped = left[1:]
        self.left[self.group[k]] = [*skipped, *rest]
        return run

    def _note(self) -> None:
        note = f"a loop has {MOST_UNITS} statements at most, each not {LOOK_AHEAD} behind another"
        self.fu.notes += [note] if note not in self.fu.notes else []

    def _columns(self, run: Run, at: int, passed: set[int], depth: int) -> list[_Column]:
        u, place = self.units[at], self.place
        if any(place.get(x) in passed for x in self.fu.sources(u)):
            return []
        self.fu.dependences.relations.effort.step()
        feeds = not run.is_linked(u, self.fu) and self._feed_one(run, at)
        return run.extended(u, feeds, depth, self.fu)

    def _feed_one(self, run: Run, at: int) -> bool:
        """A later unit needs this one and the run, perhaps through others: nothing between is
        stored."""
        if run.has_product or self.fu.contracted(self.units[at]):
            return False
        reached, known = {at}, set[int]()
        todo = [at]
        for k in todo:
            for user in self.users.get(k, ()):
                if user > k and user not in reached and not self.fu.contracted(self.units[user]):
                    if self._follows(user, at, run, known):
                        return True
                    reached.add(user)
                    todo.append(user)
            if len(reached) + len(known) > LOOK_AHEAD:
                return False
        return False

    def _follows(self, k: int, at: int, run: Run, known: set[int]) -> bool:
        """It needs something of the run, perhaps through units behind `at`. known: those that do
        not."""
        todo = [k]
        while todo and len(known) <= LOOK_AHEAD:
            k = todo.pop()
            known.add(k)
            for name in self.fu.sources(self.units[k]):
                if name in run.places:
                    return True
                source = self.place.get(name, -1)
                is_new = at < source < k and source not in known
                if is_new and not self.fu.contracted(self.units[source]):
                    todo.append(source)
        return False
