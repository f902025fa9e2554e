# SPDX-License-Identifier: Apache-2.0
"""Statements that write a tensor -> which of them made what a read finds, and which ones last.

Array dataflow analysis (Feautrier, 1991) by isl: an instance of a statement is a point of its loops
and left index variables; it runs at the place that the text and the loops give it, reads before
writes, and finds what was written last before. Everything holds for all sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import islpy as isl
from msgspec import Struct

from tcsym.frontend.infer_paths import guarded_reads
from tcsym.frontend.program import For, If, Item, Range, Read, Statement
from tcsym.index.effort import Effort, Exhausted
from tcsym.index.expr import (
    FALSE,
    TRUE,
    ZERO,
    Condition,
    Index,
    all_of,
    any_of,
    condition_variables,
    ge,
    index,
    lt,
    negate,
    var,
)
from tcsym.index.presburger import Presburger
from tcsym.index.quasi_affine import is_quasi_affine

Subscripts = tuple[Index, ...]
MOST_OPERATIONS = 2_000_000  # of isl, for a tensor


class Undecided(Exception):
    """isl cannot express where a tensor is written or read, or it takes too much to find out."""


class Placed(Struct, frozen=True):
    """A statement with what is around it, and its place among all statements."""

    statement: Statement
    loops: tuple[For, ...]
    conditions: tuple[Condition, ...]
    time: tuple[Index, ...]


def placed_statements(
    items: tuple[Item, ...],
    loops: tuple[For, ...] = (),
    conditions: tuple[Condition, ...] = (),
    time: tuple[Index, ...] = (),
) -> Iterator[Placed]:
    for k, item in enumerate(items):
        here = (*time, index(k))
        match item:
            case Statement():
                yield Placed(item, loops, conditions, here)
            case For(variable, _, _, body):
                inside = (*loops, item)
                yield from placed_statements(body, inside, conditions, (*here, var(variable)))
            case If(condition, then, orelse):
                yes, no = (*conditions, condition), (*conditions, negate(condition))
                yield from placed_statements(then, loops, yes, (*here, ZERO))
                yield from placed_statements(orelse, loops, no, (*here, index(1)))


class Point(Struct, frozen=True):
    """Instances of an access: their variables, where they are, and the element there."""

    name: str
    variables: tuple[str, ...]
    where: Condition
    subscripts: Subscripts
    time: tuple[Index, ...]


class Source(Struct, frozen=True):
    """Of a read: `where` it finds what a write made and another replaces later.

    always: whatever it finds is of this write.
    """

    write: int
    where: Condition
    always: bool


class Found(Struct, frozen=True):
    """What reads find, by statement and read, if that is replaced later. lasting: where what a
    write makes is not."""

    sources: Mapping[tuple[int, Read], tuple[Source, ...]]
    lasting: tuple[Condition, ...]


def left_ranges(s: Statement) -> tuple[Range, ...]:
    return tuple(r for r in s.domain if not r.reduced)


class LastWrites(Struct, frozen=True):
    """The writes of one tensor among `placed`, in the order of the text."""

    tensor: str
    placed: tuple[Placed, ...]
    sizes: tuple[str, ...]

    @property
    def writes(self) -> tuple[Placed, ...]:
        return tuple(p for p in self.placed if p.statement.target == self.tensor)

    def found(self) -> Found:
        """Raises Undecided, also where a statement writes an element twice."""
        p = Presburger(self.sizes)
        try:
            with Effort(p.context, MOST_OPERATIONS).bounded():
                return self._found(p)
        except Exhausted:
            raise Undecided from None

    def _found(self, p: Presburger) -> Found:
        writes = [self._write(k, w) for k, w in enumerate(self.writes)]
        reads = dict(self._reads())
        points = [*writes, *reads.values()]
        length = max(len(x.time) for x in points)
        written = _union(_elements(p, x) for x in writes)
        order = _union(_times(p, x, length) for x in points)
        replaced = written.apply_range(written.reverse())
        replaced = replaced.intersect(order.lex_lt_union_map(order))
        if any((x.name, x.name) in _maps(replaced) for x in writes):
            raise Undecided
        early = _sets(replaced.domain())
        flow: dict[tuple[str, str], isl.Map] = {}
        if reads:
            used = _union(_elements(p, x) for x in reads.values())
            access = isl.UnionAccessInfo.from_sink(used).set_must_source(written)
            flow = _maps(access.set_schedule_map(order).compute_flow().get_must_dependence())
        sources = {key: tuple(_sources(p, r, writes, flow, early)) for key, r in reads.items()}
        lasting = [_lasting(p, x, early.get(x.name)) for x in writes]
        return Found({k: x for k, x in sources.items() if x}, tuple(lasting))

    # ---- points

    def _write(self, k: int, w: Placed) -> Point:
        s = w.statement
        if s.scattered or not (s.op == "=" or s.initialise):
            raise Undecided
        ranges = left_ranges(s)
        variables = (*(f.variable for f in w.loops), *(r.variable for r in ranges))
        where = all_of((*_bounds(w), *_inside(ranges)))
        point = Point(f"W{k}", variables, where, s.subscripts, (*w.time, index(1)))
        if not self._is_exact(point):
            raise Undecided
        return point

    def _reads(self) -> Iterator[tuple[tuple[int, Read], Point]]:
        n = 0
        for w in self.placed:
            s = w.statement
            found: dict[Read, list[Condition]] = {}
            for r, path in guarded_reads(s.expressions):
                if r.tensor == self.tensor:
                    found.setdefault(r, []).append(path.condition)
            for r, guards in found.items():
                yield (id(s), r), self._read(f"R{n}", w, r, any_of(guards))
                n += 1

    def _read(self, name: str, w: Placed, r: Read, guard: Condition) -> Point:
        s = w.statement
        loops = tuple(f.variable for f in w.loops)
        own = tuple(x.variable for x in s.walked)
        free = free_positions(r, self.sizes, (*loops, *own))
        variables = (*loops, *own, *free)
        subscripts = tuple(
            e if isinstance(e, Index) and position_name(d) not in free else var(position_name(d))
            for d, e in enumerate(r.subscripts)
        )
        known = {*variables, *self.sizes}
        parts = [*_bounds(w), *_inside(s.walked), guard]
        parts = [c for c in parts if condition_variables(c) <= known]
        where = all_of(c for c in parts if is_quasi_affine(c, self.sizes))
        return Point(name, variables, where, subscripts, (*w.time, ZERO))

    def _is_exact(self, x: Point) -> bool:
        parts = (x.where, *x.subscripts)
        return all(is_quasi_affine(e, self.sizes) for e in parts)


def position_name(d: int) -> str:
    """Stands for the position in a dimension that only data know."""
    return f"{d}'"


def free_positions(r: Read, sizes: Sequence[str], variables: Sequence[str]) -> tuple[str, ...]:
    """Of the dimensions that a read subscripts with what isl cannot express."""
    known = {*sizes, *variables}
    return tuple(
        position_name(d)
        for d, e in enumerate(r.subscripts)
        if not isinstance(e, Index) or not e.variables() <= known or not is_quasi_affine(e, sizes)
    )


def _bounds(w: Placed) -> list[Condition]:
    found = [
        c for f in w.loops for c in (ge(var(f.variable), f.lower), lt(var(f.variable), f.upper))
    ]
    return [*found, *w.conditions]


def _inside(ranges: Sequence[Range]) -> list[Condition]:
    return [c for r in ranges for c in (ge(var(r.variable), r.lower), lt(var(r.variable), r.upper))]


# ---- isl


def _union(maps: Iterator[isl.UnionMap]) -> isl.UnionMap:
    return reduce(isl.UnionMap.union, maps)


def _elements(p: Presburger, x: Point) -> isl.UnionMap:
    return isl.UnionMap.from_map(p.relation(x.name, x.variables, "T", x.subscripts, x.where))


def _times(p: Presburger, x: Point, length: int) -> isl.UnionMap:
    padded = (*x.time[:-1], *[ZERO] * (length - len(x.time)), x.time[-1])
    return isl.UnionMap.from_map(p.relation(x.name, x.variables, "t", padded, x.where))


def _sets(u: isl.UnionSet) -> dict[str, isl.Set]:
    found: list[isl.Set] = []
    u.foreach_set(found.append)
    return {s.get_tuple_name(): s for s in found if not s.is_empty()}


def _maps(u: isl.UnionMap) -> dict[tuple[str, str], isl.Map]:
    found: list[isl.Map] = []
    u.foreach_map(found.append)
    kinds = isl.dim_type.in_, isl.dim_type.out
    return {
        (m.get_tuple_name(kinds[0]), m.get_tuple_name(kinds[1])): m
        for m in found
        if not m.is_empty()
    }


def _sources(
    p: Presburger,
    r: Point,
    writes: Sequence[Point],
    flow: Mapping[tuple[str, str], isl.Map],
    early: Mapping[str, isl.Set],
) -> Iterator[Source]:
    found = {k: m for k, w in enumerate(writes) if (m := flow.get((w.name, r.name))) is not None}
    if not found:
        return
    everywhere = reduce(isl.Set.union, [m.range() for m in found.values()])
    for k, m in found.items():
        replaced = early.get(writes[k].name)
        where = None if replaced is None else m.intersect_domain(replaced).range()
        if where is not None and not where.is_empty():
            said = p.condition_of(where.gist(everywhere), r.variables)
            yield Source(k, said, everywhere.is_subset(m.range()))


def _lasting(p: Presburger, x: Point, early: isl.Set | None) -> Condition:
    if early is None:
        return TRUE
    everywhere = p.set(x.name, x.variables, x.where)
    left = everywhere.subtract(early)
    return FALSE if left.is_empty() else p.condition_of(left.gist(everywhere), x.variables)
