# SPDX-License-Identifier: Apache-2.0
"""Program, arguments, elements of a tensor -> the elements that are read for them.

The interpreter runs, and says of each point of a statement which element it writes; its expressions
are then evaluated there once more, as the interpreter does, with a note of every read. So gathers,
ragged ranges and guards are what they are for these arguments.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.errors import SizeError, TCError
from tcsym.frontend.interpret import Bindings, interpret
from tcsym.frontend.interpret_expressions import Memory, evaluate
from tcsym.frontend.interpret_points import Array, Points, index_at
from tcsym.frontend.positions import position_parts
from tcsym.frontend.program import (
    Binary,
    Expr,
    Program,
    Read,
    Select,
    Statement,
    children,
    reads,
    statements,
    subexpressions,
)
from tcsym.index.expr import Index

MOST_POINTS = 1 << 22  # of a run that is looked at: seconds, and hundreds of megabytes
_INTO = 'into"'  # a variable of points, beside those of the text


class Uses(Struct, frozen=True):
    """Reads of a tensor: for element `into[i]` of a target, element `of[i]`; both row-major."""

    tensor: str
    into: Array
    of: Array


class Misses(Struct, frozen=True):
    """Reads outside of a tensor in arms that are not taken, with a row of subscripts for each."""

    tensor: str
    into: Array
    at: Array


class Event(Struct, frozen=True):
    """One run of a statement. written: all elements that it writes, row-major."""

    statement: Statement
    written: Array
    uses: list[Uses]
    misses: list[Misses]


class Accesses(Struct, frozen=True):
    """What was read for the elements of `target` that `written` marks.

    reads: how often, an array of each tensor's shape; tensors that are not read are not in it.
    outside: subscripts beyond the tensor that arms would read which are not taken, and how often.
    statements: those that wrote the elements, and what they are made of, as they first ran.
    """

    target: str
    written: Array
    shapes: Mapping[str, tuple[int, ...]]
    reads: Mapping[str, Array]
    outside: Mapping[str, Mapping[tuple[int, ...], int]]
    statements: tuple[Statement, ...]


class Run(Struct, frozen=True):
    """What a run of `program` wrote and read, in its order."""

    program: Program
    shapes: Mapping[str, tuple[int, ...]]
    events: Sequence[Event]

    def read_for(self, target: str, mask: Array, only: Collection[str] | None = None) -> Accesses:
        """What statements read that write the elements of `target` which a mask of its shape
        marks. only: names of those that count."""
        marked = np.flatnonzero(mask)
        events = [
            _of_elements(e, marked)
            for e in self.events
            if e.statement.target == target
            and (only is None or e.statement.name in only)
            and np.isin(e.written, marked).any()
        ]
        return _summed(events, self.shapes, target, mask)

    def made_of(self, target: str, mask: Array) -> Accesses:
        """What such elements are made of, through temporaries, results and earlier values: reads of
        parameters."""
        events = _through(self.events, target, mask, self.program)
        return _summed(events, self.shapes, target, mask)


def watched(
    program: Program,
    inputs: Mapping[str, Array],
    sizes: Bindings,
    wanted: tuple[str, Array] | None = None,
) -> Run:
    """Run the program. wanted: a tensor, and a mask of those of its elements for which reads are
    kept; default: of all tensors.

    Errors: those of the run; SizeError if it has more than MOST_POINTS points.
    """
    kept = None if wanted is None else (wanted[0], wanted[1].reshape(-1))
    recorder = _Recorder(program, kept)
    interpret(program, inputs, sizes, recorder)
    return Run(program, recorder.shapes, recorder.events)


class _Recorder(Struct):
    """A `Watch` that keeps what the run of `program` reads, for `wanted` elements or all."""

    program: Program
    wanted: tuple[str, Array] | None
    events: list[Event] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    count: int = 0

    def statement(self, s: Statement, place: tuple[slice | int, ...], memory: Memory) -> None:
        self.shapes = self.shapes or {n: x.shape for n, x in memory.values.items()}
        shape = self.shapes[s.target]
        numbers = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
        written = np.ravel(numbers[place])
        starts = s.op == "=" or s.initialise  # else it adds to what was there
        self.events.append(
            Event(s, written, [] if starts else [Uses(s.target, written, written)], [])
        )

    def points(
        self, s: Statement, target: tuple[Array, ...], points: Points, memory: Memory
    ) -> None:
        self.count += points.count
        if self.count > MOST_POINTS:
            message = f"`{self.program.name}` has more than {MOST_POINTS} points at these sizes"
            raise SizeError(message, hint="give smaller arrays: a picture shows tens of elements")
        into = _numbers(target, self.shapes[s.target], points.count)
        points = replace(points, variables={**points.variables, _INTO: into})
        if self.wanted is not None:
            name, mask = self.wanted
            if s.target != name:
                return
            points = points.where(mask[into])
        if points.count:
            self._evaluate(s, points, replace(memory, log=self))

    def _evaluate(self, s: Statement, points: Points, memory: Memory) -> None:
        evaluate(s.value, points, memory)
        for r in s.scattered:
            assert r.at is not None
            _, place = position_parts(r.at)
            if not isinstance(place, Index):
                evaluate(place, points, memory)
        uses = self.events[-1].uses
        before = len(uses)
        for g in s.given:
            evaluate(g.value, points, memory)
        # an end is read once for all points of its range
        uses[before:] = [_once(u) for u in uses[before:]]

    def read(self, e: Read, points: Points, position: tuple[Array, ...]) -> None:
        if points.count:
            of = _numbers(position, self.shapes[e.tensor], points.count)
            self.events[-1].uses.append(Uses(e.tensor, points.variables[_INTO], of))

    def left_out(self, e: Expr, points: Points, memory: Memory) -> None:
        if not points.count:
            return
        silent = replace(memory, log=None)
        for r in reads(e):
            try:
                at = np.stack([_subscript(x, points, silent) for x in r.subscripts], axis=-1)
            except (TCError, ValueError):  # what it would read by is itself outside; a scalar
                continue
            outside = ((at < 0) | (at >= np.array(self.shapes[r.tensor]))).any(axis=1)
            if outside.any():
                into = points.variables[_INTO][outside]
                self.events[-1].misses.append(Misses(r.tensor, into, at[outside]))


def _subscript(s: Index | Expr, points: Points, memory: Memory) -> Array:
    found = index_at(s, points) if isinstance(s, Index) else evaluate(s, points, memory)
    return found.astype(np.int64)


def _numbers(position: Sequence[Array], shape: tuple[int, ...], count: int) -> Array:
    """Row-major numbers of elements."""
    number: Array = np.zeros(count, dtype=np.int64)
    for x, extent in zip(position, shape):
        number = number * extent + x
    return number


def _once(uses: Uses) -> Uses:
    pairs = np.unique(np.stack([uses.into, uses.of]), axis=1)
    return Uses(uses.tensor, pairs[0], pairs[1])


# ---- through temporaries


def _through(events: Iterable[Event], target: str, mask: Array, program: Program) -> list[Event]:
    """Events that make the wanted elements, backwards, with what they read of parameters."""
    wanted: dict[str, set[int]] = {target: set(np.flatnonzero(mask).tolist())}
    found = []
    for event in reversed(list(events)):
        needed = np.array(sorted(wanted.get(event.statement.target, ())), dtype=np.int64)
        needed = needed[np.isin(needed, event.written)]
        if not len(needed):
            continue
        if event.statement.op == "=" or event.statement.initialise:
            wanted[event.statement.target] -= set(needed.tolist())
        found.append(_of_elements(event, needed))
        for u in found[-1].uses:
            wanted.setdefault(u.tensor, set()).update(u.of.tolist())
    # of what is updated in place, the values that were there before
    kept = {
        t.name: np.array(sorted(wanted.get(t.name, ())), dtype=np.int64) for t in program.inputs
    }
    return [_of_parameters(e, kept) for e in reversed(found)]


def _of_elements(event: Event, needed: Array) -> Event:
    """What it does for these elements of its target."""
    uses, misses = [], []
    for u in event.uses:
        chosen = np.isin(u.into, needed)
        uses.append(Uses(u.tensor, u.into[chosen], u.of[chosen]))
    for m in event.misses:
        chosen = np.isin(m.into, needed)
        misses.append(Misses(m.tensor, m.into[chosen], m.at[chosen]))
    return Event(event.statement, needed, uses, misses)


def _of_parameters(event: Event, kept: Mapping[str, Array]) -> Event:
    uses = []
    for u in event.uses:
        if u.tensor in kept:
            chosen = np.isin(u.of, kept[u.tensor])
            uses.append(Uses(u.tensor, u.into[chosen], u.of[chosen]))
    return Event(
        event.statement, event.written, uses, [m for m in event.misses if m.tensor in kept]
    )


def _summed(
    events: Iterable[Event], shapes: Mapping[str, tuple[int, ...]], target: str, mask: Array
) -> Accesses:
    counts: dict[str, Array] = {}
    outside: dict[str, dict[tuple[int, ...], int]] = {}
    found: dict[str, Statement] = {}
    for event in events:
        found[event.statement.name] = event.statement
        for u in event.uses:
            if len(u.of):
                n = counts.setdefault(u.tensor, np.zeros(math.prod(shapes[u.tensor]), np.int64))
                np.add.at(n, u.of, 1)
        for m in event.misses:
            if len(m.at):
                of_tensor = outside.setdefault(m.tensor, {})
                places, times = np.unique(m.at, axis=0, return_counts=True)
                for place, n in zip(places.tolist(), times.tolist()):
                    of_tensor[tuple(place)] = of_tensor.get(tuple(place), 0) + n
    shaped = {name: n.reshape(shapes[name]) for name, n in counts.items()}
    return Accesses(target, mask, shapes, shaped, outside, tuple(found.values()))


# ---- whether data decide


def deciding(program: Program, chosen: Iterable[Statement]) -> frozenset[str]:
    """The parameters whose values say what the chosen statements read and write."""
    found = {r.tensor for s in chosen for r in _deciding_reads(s)}
    before = -1
    while len(found) > before:
        before = len(found)
        for s in statements(program.body):
            if s.target in found:
                found |= {r.tensor for e in s.expressions for r in reads(e)}
    return frozenset(found) & {t.name for t in program.inputs}


def _deciding_reads(s: Statement) -> Iterator[Read]:
    """Reads whose values choose elements, ranges or arms."""
    for e in (*s.read_positions, *(g.value for g in s.given)):
        yield from reads(e)
    for e in subexpressions(s.value):
        match e:
            case Read():
                for x in children(e):
                    yield from reads(x)
            case Select(condition):
                yield from reads(condition)
            case Binary("and" | "or", left):
                yield from reads(left)
            case _:
                pass
