"""Scop and dependences -> schedule tree, by aligning iterators through dependences.

Runs of statements share a loop while every dependence between them has equal iterators there, past
others that they do not depend on; inside, the same again. Parallel columns come first. The
program's `for` loops stay where they are; maps of what a scan stores join it. Nothing here is
trusted: `prove` checks the tree.

Rules beyond legality: never share a contraction's reduction loop; no lane reduction in a
contraction's row loop; no loops over rows of others inside a contraction's columns; a contraction
joins a run only to add to the same tensor, or after a reduction of an earlier contraction
(attention); a loop that is parallel for one statement and a reduction for another is shared only
below a parallel loop; single terms of a sum and rows of them do not share its loop, nor arms of a
condition on sizes any. The init of a reduction stands just outside its outermost reduction loop.
Scattered statements share no loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import Read, subexpressions
from tcsym.index.expr import Index, condition_variables, negate, var
from tcsym.index.values import conjuncts, substitute
from tcsym.options import Fusion
from tcsym.polyhedral.classify import contracted, innermost, loop_order
from tcsym.polyhedral.dependence import Dependences
from tcsym.polyhedral.follow_scans import following_maps, statement_names
from tcsym.polyhedral.scop import Scop, ScopItem, ScopLoop, ScopStatement, is_ragged
from tcsym.polyhedral.tree import Leaf, Member, Tree, TreeLoop, sequence, unique_name


class _Unit(Struct, frozen=True):
    """A statement with its init, and the iterators for which it has no loop yet, in order."""

    statement: ScopStatement
    init: ScopStatement | None
    left: tuple[str, ...]
    loops: tuple[tuple[str, str], ...] = ()  # of the other iterators

    @property
    def parallel_left(self) -> tuple[str, ...]:
        return tuple(v for v in self.left if v not in self.statement.reduced)

    @property
    def free(self) -> tuple[str, ...]:
        """Iterators left whose ranges use none that is left."""
        return tuple(v for v in self.left if self.statement.follows(v).isdisjoint(self.left))

    def without(self, iterator: str, loop: str) -> _Unit:
        left = tuple(v for v in self.left if v != iterator)
        return replace(self, left=left, loops=(*self.loops, (iterator, loop)))

    def ends(self, iterator: str) -> tuple[Index, Index]:
        """Of its range, over loop variables. Contract: it is free."""
        r = self.statement.range_of(iterator)
        at = {v: var(loop) for v, loop in self.loops}
        return substitute(r.lower, at), substitute(r.upper, at)


class _Fusing(Struct):
    scop: Scop
    dependences: Dependences
    strategy: Fusion
    inner: Fusion
    taken: set[str] = field(default_factory=set)  # loop variable names in use
    _contracted: dict[str, frozenset[str]] = field(default_factory=dict)

    def contracted(self, u: _Unit) -> frozenset[str]:
        """Reduction iterators of a contraction, else empty."""
        name = u.statement.name
        if name not in self._contracted:
            self._contracted[name] = contracted(u.statement)
        return self._contracted[name]

    def below(self) -> _Fusing:
        """Inside of a loop; names and what was found out are shared."""
        return self if self.strategy == self.inner else replace(self, strategy=self.inner)


def fuse(
    scop: Scop, dependences: Dependences, strategy: Fusion, inner: Fusion | None = None
) -> Tree:
    """A tree with all loops `sequential`; orders come from the proof.

    inner: the strategy inside of loops that statements got; None: the same.
    """
    fusing = _Fusing(scop, dependences, strategy, inner or strategy)
    fusing.taken.update(scop.sizes, _program_variables(scop.items))
    return sequence(_items(scop.items, (), fusing))


def _program_variables(items: tuple[ScopItem, ...]) -> Iterator[str]:
    for item in items:
        if isinstance(item, ScopLoop):
            yield item.range.variable
            yield from _program_variables(item.items)


def _items(
    items: tuple[ScopItem, ...], outer: tuple[str, ...], fu: _Fusing, last: tuple[_Unit, ...] = ()
) -> list[Tree]:
    """`last`: units that joined the loop which has the items, behind them."""
    out: list[Tree] = []
    run: list[ScopStatement] = []
    joined: set[str] = set()
    for k, item in enumerate(items):
        if isinstance(item, ScopLoop):
            out.extend(_nest(_units(run), 0, fu))
            run = []
            maps = dict[str, str]()
            if fu.strategy != "min":  # it asks isl for nothing, as it is what is left then
                maps = following_maps(item, items[k + 1 :], fu.scop, fu.dependences)
            joined.update(maps)
            out.append(_program_loop(item, outer, fu, maps))
        elif item not in joined:
            run.append(fu.scop.statement(item))
    out.extend(_nest([*_units(run), *last], 0, fu))
    return out


def _program_loop(
    item: ScopLoop, outer: tuple[str, ...], fu: _Fusing, maps: Mapping[str, str]
) -> TreeLoop:
    """`maps`: statements after the loop that join it, with their iterators for it."""
    r = item.range
    last = tuple(
        u.without(maps[u.statement.name], r.variable)
        for u in _units(list(map(fu.scop.statement, maps)))
    )
    body = sequence(_items(item.items, (*outer, r.variable), fu, last))
    own = ((n, r.variable) for n in statement_names(item.items))
    members = tuple(Member(n, var(v)) for n, v in (*own, *maps.items()))
    return TreeLoop(r.variable, r.lower, r.upper, members, body)


def _units(statements: list[ScopStatement]) -> list[_Unit]:
    """Each init glued to its update, which follows it."""
    inits = {s.partner: s for s in statements if s.role == "init"}
    return [_Unit(s, inits.get(s.name), loop_order(s)) for s in statements if s.role != "init"]


# ---- one level of loops


def _nest(units: list[_Unit], depth: int, fu: _Fusing) -> list[Tree]:
    """Trees for `units` in order, sharing loops; `depth`: parallel loops around."""
    out: list[Tree] = []
    while units:
        first = units[0]
        if not first.left:
            out.extend(_leaf(first))
            units = units[1:]
            continue
        if first.statement.positions:
            out.extend(_shared([first], (first.left[0],), depth, fu))
            units = units[1:]
            continue
        run, columns, units = _run(units, depth, fu)
        out.extend(_shared(run, _best(run, columns), depth, fu))
    return out


def _run(
    units: list[_Unit], depth: int, fu: _Fusing
) -> tuple[list[_Unit], list[tuple[str, ...]], list[_Unit]]:
    """The first unit and what joins it, their columns, and the units left over, in order.

    A unit joins past others that it does not depend on.
    """
    run, skipped, passed = units[:1], list[_Unit](), set[str]()
    columns: list[tuple[str, ...]] = [(v,) for v in units[0].free]
    for k, u in enumerate(units[1:], 1):
        if fu.strategy == "min":
            return run, columns, units[1:]
        longer = (
            [] if _depends(u, passed, fu) else _joined(run, columns, u, units[k + 1 :], depth, fu)
        )
        if longer:
            run, columns = [*run, u], longer
        else:
            skipped.append(u)
            passed.update(_names(u))
    return run, columns, skipped


def _leaf(u: _Unit) -> list[Tree]:
    return [Leaf(s.name, s.condition) for s in _parts(u)]


def _shared(run: list[_Unit], column: tuple[str, ...], depth: int, fu: _Fusing) -> list[Tree]:
    """One loop over `column` around `run`, behind the inits of what it reduces."""
    out: list[Tree] = []
    units: list[_Unit] = []
    members: list[Member] = []
    reducing = False
    for u, iterator in zip(run, column):
        reduced = iterator in u.statement.reduced
        reducing |= reduced
        if u.init is not None and (reduced or iterator in u.statement.positions):
            kept = tuple(v for v in u.left if v not in u.statement.reduced)
            out.extend(_nest([_Unit(u.init, None, kept, u.loops)], depth, fu))
            u = replace(u, init=None)
        if u.init is not None:
            members.append(Member(u.init.name, var(iterator)))
        members.append(Member(u.statement.name, var(iterator)))
        units.append(u)
    lower, upper = run[0].ends(column[0])
    name = unique_name(column[0], fu.taken)
    inside = [u.without(iterator, name) for u, iterator in zip(units, column)]
    body = sequence(_nest(inside, depth + (not reducing), fu.below()))
    out.append(TreeLoop(name, lower, upper, tuple(members), body))
    return out


def _best(run: list[_Unit], columns: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The first column that is parallel for all, else the first."""
    parallel = [c for c in columns if _is_parallel(run, c)]
    return (parallel or columns)[0]


def _is_parallel(run: list[_Unit], column: tuple[str, ...]) -> bool:
    return all(v not in u.statement.reduced for u, v in zip(run, column))


# ---- may a unit join a run?


def _joined(
    run: list[_Unit],
    columns: list[tuple[str, ...]],
    u: _Unit,
    later: list[_Unit],
    depth: int,
    fu: _Fusing,
) -> list[tuple[str, ...]]:
    """The columns of `run` extended by an iterator of `u`; none if it should stay apart."""
    fu.dependences.relations.effort.step()
    linked = any(_linked(r, u, fu) for r in run) or _feed_one(run, u, later, fu)
    if not u.left or u.statement.positions or not linked or not _contraction_fits(run, u, fu):
        return []
    if any(_gives(r, u) or _gives(u, r) for r in run):
        return []
    extended: list[tuple[str, ...]] = []
    for column in columns:
        for v in u.free:
            if _column_fits(run, column, u, v, depth, fu):
                extended.append((*column, v))
                break
    return extended


def _gives(a: _Unit, b: _Unit) -> bool:
    """Ends of ranges of `b` read what `a` writes: they are read before the loops around `b`."""
    return a.statement.target in {
        r.tensor for g in b.statement.given for r in subexpressions(g.value) if isinstance(r, Read)
    }


def _linked(a: _Unit, b: _Unit, fu: _Fusing) -> bool:
    """Sharing a loop can pay: a dependence, one tensor written by both, or read by both."""
    s, t = a.statement, b.statement
    if _exclude(s, t, fu) or _exclude(t, s, fu):
        return False
    if s.target and s.target == t.target:
        return True
    if s.role == "check" or t.role == "check":
        return t.name.startswith(f"{s.name}.exists") or s.name.startswith(f"{t.name}.exists")
    if any(fu.dependences.between(x.name, y.name) for x in _parts(a) for y in _parts(b)):
        return True
    if any(fu.contracted(x) or _slides(x.statement) for x in (a, b)):
        return False
    return bool({x.tensor for x in s.reads} & {x.tensor for x in t.reads})


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


def _exclude(s: ScopStatement, t: ScopStatement, fu: _Fusing) -> bool:
    """Sizes that `t` asks for are none for `s`: no call runs both."""
    ours = set(conjuncts(s.condition))
    return any(
        condition_variables(x) <= set(fu.scop.sizes) and set(conjuncts(negate(x))) <= ours
        for x in conjuncts(t.condition)
    )


def _feed_one(run: list[_Unit], u: _Unit, later: list[_Unit], fu: _Fusing) -> bool:
    """A later unit needs `u` and the run, perhaps through others: nothing between is stored."""
    if any(fu.contracted(x) for x in (*run, u)):
        return False
    ours, others = {name for x in run for name in _names(x)}, set(_names(u))
    for x in later:
        if fu.contracted(x):
            continue
        after_us, after_it = _depends(x, ours, fu), _depends(x, others, fu)
        if after_us and after_it:
            return True
        ours.update(_names(x) if after_us else ())
        others.update(_names(x) if after_it else ())
    return False


def _depends(u: _Unit, earlier: set[str], fu: _Fusing) -> bool:
    """`u` on some of these statements."""
    return any(not fu.dependences.sources(name).isdisjoint(earlier) for name in _names(u))


def _names(u: _Unit) -> list[str]:
    return [s.name for s in _parts(u)]


def _parts(u: _Unit) -> tuple[ScopStatement, ...]:
    return (u.statement,) if u.init is None else (u.init, u.statement)


def _contraction_fits(run: list[_Unit], u: _Unit, fu: _Fusing) -> bool:
    """A contraction adds to the tensor of the run, or follows a reduction of an earlier one."""
    if not fu.contracted(u):
        return True
    if all(r.statement.target == u.statement.target for r in run):
        return True
    seen = False
    reduced_since = False
    for r in run:
        if fu.contracted(r):
            seen, reduced_since = True, False
        elif seen and r.statement.reduced:
            reduced_since = True
    return seen and reduced_since


def _column_fits(
    run: list[_Unit], column: tuple[str, ...], u: _Unit, v: str, depth: int, fu: _Fusing
) -> bool:
    joined = [*zip(run, column), (u, v)]
    reduces = [x in m.statement.reduced for m, x in joined]
    if any(reduces):
        if fu.strategy != "max" and not all(reduces):
            return False
        if any(x in fu.contracted(m) for m, x in joined):
            return False
        if any(fu.contracted(m) for m, _ in joined):
            return False
        if not all(reduces) and depth == 0:
            return False
        rows = [_has_rows(m, x) if all(reduces) else len(m.left) > 1 for m, x in joined]
        if any(rows) and not all(rows):
            return False
    else:
        rows = [_has_rows(m, x) for m, x in joined]
        if any(x == innermost(m.statement) and r for (m, x), r in zip(joined, rows)):
            return False
        if any(rows) and any(fu.contracted(m) and not r for (m, _), r in zip(joined, rows)):
            return False
    return all(_aligned(a, x, u, v, fu) for a, x in zip(run, column))


def _has_rows(u: _Unit, shared: str) -> bool:
    """Parallel loops are left inside the shared one: vectors of their own."""
    return any(v != shared for v in u.parallel_left)


def _aligned(a: _Unit, x: str, b: _Unit, y: str, fu: _Fusing) -> bool:
    """Equal ranges, and every dependence from `a` to `b` is equal at iterators x and y."""
    edges = ((source, sink) for source in _parts(a) for sink in _parts(b))
    same = fu.dependences.relations.equal_for_all_sizes
    return (
        all(_edge_aligned(source, x, sink, y, fu) for source, sink in edges)
        and not (is_ragged(a.statement, x) or is_ragged(b.statement, y))
        and all(same(p, q) for p, q in zip(a.ends(x), b.ends(y)))
    )


def _edge_aligned(source: ScopStatement, x: str, sink: ScopStatement, y: str, fu: _Fusing) -> bool:
    edges = [d for d in fu.dependences.between(source.name, sink.name) if not d.carried]
    if not edges or x not in source.iterators:  # an init that stands before the loop
        return True
    if y not in sink.iterators:  # an init that would move before the loop
        return False
    i, j = source.iterators.index(x), sink.iterators.index(y)
    return all(fu.dependences.equal(d, i, j) for d in edges)
