# SPDX-License-Identifier: Apache-2.0
"""Program + chunked dimensions of its inputs -> axes: what can be cut into blocks, together.

An axis has a coordinate that a block takes part of. In each statement one index variable moves with
it, in tensors the dimensions that this variable subscripts. Of a block `start <= x < start + count`
a dimension has a `Window`; sliding subscripts make it wider than the block. A variable that a
statement reduces over can be cut if the results of blocks can be combined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from tcsym.frontend.program import (
    For,
    If,
    Item,
    Program,
    Read,
    Statement,
    reads,
)
from tcsym.index.expr import ONE, ZERO, Index, index, maximum, minimum, var

Place = tuple[str, int]  # a tensor and one of its dimensions
Ends = tuple[Index, Index]  # the first and the last value
UNKNOWN = "?"  # an end of a range that is not plain
_MOST_PASSES = 4


class Window(Struct, frozen=True):
    """From `scale*start + low` to `scale*(start + count - 1) + high`, both in it."""

    scale: int = 1
    low: Index = ZERO
    high: Index = ZERO

    @property
    def is_block(self) -> bool:
        return self.scale == 1 and self.low == self.high

    def wider(self, other: Window | None) -> Window:
        """Of both reads. Raises NoAxis where they move at different speeds."""
        if other is None:
            return self
        if other.scale != self.scale:
            raise NoAxis
        return Window(self.scale, minimum(self.low, other.low), maximum(self.high, other.high))


class Axis(Struct, frozen=True):
    """`variables`: by statement. `sums`: the statements that reduce over theirs, with its ends."""

    variables: Mapping[str, str]
    windows: Mapping[Place, Window]
    sums: Mapping[str, Ends]


class NoAxis(Exception):
    """There is no axis through what was asked for."""


def axes_of(program: Program, chunked: Collection[Place]) -> list[Axis]:
    """The axes through chunked dimensions of inputs; no two share a dimension or a variable.

    Results come first: a dimension that both slides and is reduced over makes blocks of them.
    """
    found: list[Axis] = []
    seeds: list[tuple[Place | None, tuple[Statement, str] | None]] = []
    seeds += [((t.name, d), None) for t in program.outputs for d in range(len(t.shape))]
    top = [s for s in program.body if isinstance(s, Statement)]
    seeds += [(None, (s, r.variable)) for s in top for r in s.domain if r.reduced]
    for place, reduced in seeds:
        growing = _Growing(program, found)
        try:
            made = growing.grown(place, reduced)
        except NoAxis:
            continue
        if any(p in made.windows for p in chunked):
            found.append(made)
    return found


def ends(e: Index, ranges: Mapping[str, Ends]) -> Ends:
    """Least and greatest value over variables with these ranges. NoAxis where that is not plain."""
    low = high = index(e.constant)
    for atom, c in e.terms:
        if isinstance(atom, str) and atom in ranges:
            first, last = ranges[atom] if c > 0 else ranges[atom][::-1]
            low, high = low + first * c, high + last * c
            continue
        term = Index(((atom, c),))
        if not term.variables().isdisjoint(ranges):
            raise NoAxis
        low, high = low + term, high + term
    return low, high


class _Scoped(Struct, frozen=True):
    """A statement, and the ends of all variables that its subscripts may have."""

    statement: Statement
    ranges: Mapping[str, Ends]
    is_top: bool

    def step(self, e: object, variable: str) -> tuple[int, Ends] | None:
        """How far a subscript moves with the variable, and the ends of the rest; None if it does
        not slide with it."""
        if not isinstance(e, Index):
            return None
        c = e.coefficient(variable)
        rest = e - var(variable) * c
        if c <= 0 or variable in rest.variables():
            return None
        try:
            low, high = ends(rest, self.ranges)
        except NoAxis:
            return None
        return None if UNKNOWN in low.variables() | high.variables() else (c, (low, high))


def _scoped(items: tuple[Item, ...], outer: Mapping[str, Ends], top: bool) -> Iterator[_Scoped]:
    for item in items:
        match item:
            case Statement():
                ranges = dict(outer)
                for r in item.domain:
                    _add_range(ranges, r.variable, r.lower, r.upper)
                ranges |= dict.fromkeys((g.name for g in item.given), (var(UNKNOWN), var(UNKNOWN)))
                yield _Scoped(item, ranges, top)
            case For(variable, lower, upper, body):
                inner = dict(outer)
                _add_range(inner, variable, lower, upper)
                yield from _scoped(body, inner, False)
            case If(_, then, orelse):
                yield from _scoped((*then, *orelse), outer, False)


def _add_range(ranges: dict[str, Ends], variable: str, lower: Index, upper: Index) -> None:
    """A range of which the ends are not plain has none: nothing slides with it."""
    try:
        ranges[variable] = ends(lower, ranges)[0], ends(upper - ONE, ranges)[1]
    except NoAxis:
        ranges[variable] = var(UNKNOWN), var(UNKNOWN)


def all_reads(s: Statement) -> list[Read]:
    return [r for e in s.expressions for r in reads(e)]


class _Growing:
    """An axis that grows: a variable brings dimensions, a dimension the variables of others."""

    def __init__(self, program: Program, others: Collection[Axis]) -> None:
        self.program = program
        self.scoped = {s.statement.name: s for s in _scoped(program.body, {}, True)}
        self.inputs = {t.name for t in program.inputs}
        self.outputs = {t.name for t in program.outputs}
        self.variables: dict[str, str] = {}
        self.places: set[Place] = set()
        self.barred = {p for a in others for p in a.windows}
        self.taken = {item for a in others for item in a.variables.items()}
        self.sums: dict[str, Ends] = {}

    def grown(self, place: Place | None, reduced: tuple[Statement, str] | None) -> Axis:
        """Raises NoAxis."""
        if place is not None:
            self.add_place(place)
        if reduced is not None:
            self.add_variable(*reduced)
        if len(self.variables) < len(self.scoped):
            raise NoAxis  # a statement would be run for every block
        return Axis(self.variables, self._windows(), self.sums)

    def add_place(self, place: Place) -> None:
        tensor, d = place
        if place in self.places:
            return
        is_diagonal = tensor in self.inputs and any(p[0] == tensor for p in self.places)
        if place in self.barred or is_diagonal:
            self.bar(place)
            return
        self.places.add(place)
        for scoped in self.scoped.values():
            if scoped.statement.target == tensor:
                self.add_variable(scoped.statement, _left_variable(scoped.statement, d))
        for scoped in self.scoped.values():
            for read in all_reads(scoped.statement):
                if read.tensor == tensor and place in self.places:
                    self._follow(scoped, read, place)

    def bar(self, place: Place) -> None:
        """Of an input, all of the dimension is read; of another tensor, it cannot be there."""
        if place[0] not in self.inputs:
            raise NoAxis
        self.places.discard(place)
        self.barred.add(place)

    def _follow(self, scoped: _Scoped, read: Read, place: Place) -> None:
        s, subscript = scoped.statement, read.subscripts[place[1]]
        is_checked = bool(read.checked) and read.checked[place[1]]
        known = self.variables.get(s.name)
        usable = [
            r.variable
            for r in sorted(s.domain, key=lambda r: r.reduced)
            if r.at is None and known in (None, r.variable)
            and scoped.step(subscript, r.variable) is not None
        ]  # fmt: skip
        if is_checked or not usable:
            self.bar(place)
        else:
            self.add_variable(s, usable[0])

    def add_variable(self, s: Statement, variable: str) -> None:
        known = self.variables.setdefault(s.name, variable)
        if known != variable or (s.name, variable) in self.taken:
            raise NoAxis
        r = next(r for r in s.domain if r.variable == variable)
        scoped = self.scoped[s.name]
        if r.reduced and s.name not in self.sums:
            self.sums[s.name] = self._sum(scoped, variable)
        elif not r.reduced:
            at = [d for d, e in enumerate(s.subscripts) if e == var(variable)]
            if r.at is not None or len(at) != 1:
                raise NoAxis
            self.add_place((s.target, at[0]))
        for read in all_reads(s):
            for d, e in enumerate(read.subscripts):
                if (read.tensor, d) not in self.barred and scoped.step(e, variable) is not None:
                    self.add_place((read.tensor, d))

    def _sum(self, scoped: _Scoped, variable: str) -> Ends:
        """The ends of a variable that is reduced over, if parts can be combined after all."""
        s = scoped.statement
        others = [x.statement for x in self.scoped.values() if x.statement is not s]
        touched = {x.target for x in others} | {r.tensor for x in others for r in all_reads(x)}
        is_alone = s.target in self.outputs and s.target not in touched
        found = scoped.ranges[variable]
        is_plain = all(UNKNOWN not in e.variables() for e in found)
        if not (scoped.is_top and s.initialise and is_alone and is_plain):
            raise NoAxis
        return found

    def _windows(self) -> dict[Place, Window]:
        """What is read of each dimension, from results back to inputs."""
        found = {p: Window() for p in self.places if p[0] in self.outputs}
        for _ in range(_MOST_PASSES):
            before = dict(found)
            for scoped in reversed(list(self.scoped.values())):
                self._read_windows(scoped, found)
            if found == before:
                if any(found[p] != Window() for p in self.places if p[0] in self.outputs):
                    raise NoAxis  # of a result, more than the block would be made
                return found
        raise NoAxis  # each iteration reads beyond what the one before made

    def _read_windows(self, scoped: _Scoped, found: dict[Place, Window]) -> None:
        s = scoped.statement
        variable = self.variables[s.name]
        own = Window()
        if s.name not in self.sums:
            d = s.subscripts.index(var(variable))
            own = found.setdefault((s.target, d), own)
        for read in all_reads(s):
            for d, e in enumerate(read.subscripts):
                place = read.tensor, d
                if place not in self.places:
                    continue
                step = scoped.step(e, variable)
                assert step is not None
                c, (low, high) = step
                window = Window(own.scale * c, own.low * c + low, own.high * c + high)
                found[place] = window.wider(found.get(place))


def _left_variable(s: Statement, d: int) -> str:
    e = s.subscripts[d]
    name = next((r.variable for r in s.domain if e == var(r.variable) and not r.reduced), None)
    if name is None:
        raise NoAxis
    return name
