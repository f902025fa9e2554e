# SPDX-License-Identifier: Apache-2.0
"""Mapped loops -> lines of memory that a call brings into the second cache, by what is used again.

Of each buffer, what a part of the loops touches is a box: how far each subscript goes. An iteration
of a loop finds what the one before it left, if what one iteration touches fits the cache: then the
loop brings the box of all its iterations once, else each iteration brings its own. What a whole
call touches and fits is there from the call before.

Lines that follow one another are fetched ahead by the processor, in a few rows of lines at a time;
lines that begin a row, and those after it for a while, are waited for. These are counted. Ragged
ends count as whole tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import Index
from tcsym.index.linear import linear_coefficient
from tcsym.index.straight_line import Writer, Written
from tcsym.index.values import substitute
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
)
from tcsym.ir.traverse import loads
from tcsym.target.machine import Machine

STREAMS = 32  # rows of lines that a processor fetches ahead at a time
UNTIL_AHEAD = 64  # lines of a row until it does: of a page
SLACK = 8  # lines between rows that still are one
NEAR_SPACES = "register", "stack"


class Touched(Struct, frozen=True):
    """Of a buffer in a part of the loops; numbers are parts of a program. extents: elements by
    dimension; runs: rows of lines that follow one another; brought, begun: lines that are brought
    into the cache, and rows of these."""

    subscripts: tuple[Index, ...]
    extents: tuple[int, ...]
    lines: int
    runs: int
    brought: int
    begun: int


Parts = Mapping[str, Touched]


class Traffic:
    def __init__(self, kernel: Kernel, machine: Machine, writer: Writer) -> None:
        level = machine.level("l2")
        self.writer, self.line = writer, level.line
        self.one, self.cache = writer.constant(1), writer.constant(level.bytes // level.line)
        self.buffers = {b.name: b for b in kernel.buffers if b.space not in NEAR_SPACES}
        self.pitches: dict[str, tuple[int, ...]] = {}

    def brought(self, n: Node, known: Mapping[str, int]) -> int:
        """Lines that a call brings, whether they are waited for or not."""
        found = self._node(n, Written(self.writer, known))
        return self._unless_there(found, (x.brought for x in found.values()))

    def awaited(self, n: Node, known: Mapping[str, int]) -> int:
        """Lines of a call that do not follow others."""
        w, found = self.writer, self._node(n, Written(self.writer, known))
        most = w.constant(UNTIL_AHEAD)
        parts = (w.least(x.brought, w.multiply(most, x.begun)) for x in found.values())
        return self._unless_there(found, parts)

    def _unless_there(self, found: Parts, parts: Iterable[int]) -> int:
        return self.writer.choose(self._fits(found), self.writer.constant(0), self._sum(parts))

    def _sum(self, parts: Iterable[int]) -> int:
        return reduce(self.writer.add, parts, self.writer.constant(0))

    def _is_at_most(self, a: int, b: int) -> int:
        return self.writer.non_negative(self.writer.less(b, a))

    def _fits(self, found: Parts) -> int:
        return self._is_at_most(self._sum(x.lines for x in found.values()), self.cache)

    def _node(self, n: Node, values: Written) -> Parts:
        match n:
            case Store() | Update():
                reads = ((r.tensor, r.subscripts) for r in loads(n.value))
                accesses = ((n.buffer, n.subscripts), *reads)
                return {name: self._point(s) for name, s in accesses if self._is_counted(name, s)}
            case TransposeBlock():
                source = n.source, n.source_subscripts, n.source_row
                target = n.target, n.target_subscripts, n.target_column
                return {
                    x[0]: self._square(n.block, *x, values)
                    for x in (source, target)
                    if x[0] in self.buffers
                }
            case Block(body):
                return self._together([self._node(x, values) for x in body])
            case Branch(_, body, _) | Allocate(_, body):
                return self._node(body, values)
            case Loop():
                return self._loop(n, values)
        return {}

    def _is_counted(self, name: str, subscripts: Sequence[object]) -> bool:
        return name in self.buffers and all(isinstance(s, Index) for s in subscripts)

    def _point(self, subscripts: Sequence[object]) -> Touched:
        places, one = tuple(s for s in subscripts if isinstance(s, Index)), self.one
        return Touched(places, (one,) * len(places), one, one, one, one)

    def _square(
        self, side: int, name: str, subscripts: tuple[Index, ...], row: int, values: Written
    ) -> Touched:
        extents, n = [self.one] * len(subscripts), self.writer.constant(side)
        extents[-1] = extents[row] = n
        lines, _ = self._box(self.buffers[name], extents, values)
        return Touched(subscripts, tuple(extents), lines, n, lines, n)

    def _together(self, parts: Sequence[Parts]) -> Parts:
        """One after the other. What a later one needs is there, if all fits."""
        w, found = self.writer, dict[str, list[Touched]]()
        for name, x in (y for p in parts for y in p.items()):
            found.setdefault(name, []).append(x)
        most = {name: max(own, key=self._size) for name, own in found.items()}
        if all(len(own) == 1 for own in found.values()):
            return most
        fits = self._fits(most)
        for name, own in found.items():
            if len(own) > 1:
                x = most[name]
                brought = w.choose(fits, x.brought, self._sum(y.brought for y in own))
                begun = w.choose(fits, x.begun, self._sum(y.begun for y in own))
                most[name] = replace(x, brought=brought, begun=begun)
        return most

    def _size(self, x: Touched) -> float:
        return float(self.writer.columns[x.lines].sum())

    def _loop(self, n: Loop, values: Written) -> Parts:
        w = self.writer
        if n.value is not None or n.at is not None:
            return self._node(n.body, values.with_variable(n.variable, w.constant(0)))
        start = values.index(n.lower)
        trips = w.greatest(w.less(values.index(n.upper), start), w.constant(0))
        body = self._node(n.body, values.with_variable(n.variable, start))
        fits = self.one if n.kind in ("vector", "unrolled") else self._fits(body)
        found = dict[str, Touched]()
        for name, x in body.items():
            if any(n.variable in s.variables() for s in x.subscripts):
                x = self._moved(n, self.buffers[name], x, trips, fits, values)
            else:
                brought = w.choose(fits, x.brought, w.multiply(trips, x.brought))
                begun = w.choose(fits, x.begun, w.multiply(trips, x.begun))
                x = replace(x, brought=brought, begun=begun)
            if n.lower.variables():
                at = {n.variable: n.lower}
                x = replace(x, subscripts=tuple(substitute(s, at) for s in x.subscripts))
            found[name] = x
        return found

    def _moved(
        self, n: Loop, buffer: Buffer, x: Touched, trips: int, fits: int, values: Written
    ) -> Touched:
        w, extents, follows = self.writer, list(x.extents), list[int]()
        more = w.less(trips, self.one)
        for d, s in enumerate(x.subscripts):
            if n.variable in s.variables():
                step = self._step(s, n.variable, x.extents[d], values)
                extents[d] = w.add(extents[d], w.multiply(step, more))
                follows.append(self._follows(buffer, x, d, step, values))
        runs = w.multiply(trips, x.runs)
        if len(follows) == 1:
            runs = w.choose(follows[0], x.runs, runs)
        box, _ = self._box(buffer, extents, values)
        lines = w.least(box, w.multiply(trips, x.lines))
        brought = w.choose(fits, lines, w.multiply(trips, x.brought))
        begun = w.multiply(w.quotient(runs, x.runs), x.begun)
        return Touched(x.subscripts, tuple(extents), lines, runs, brought, begun)

    def _step(self, s: Index, variable: str, extent: int, values: Written) -> int:
        """Elements from one iteration to the next; on to the next part where that is not known."""
        c = linear_coefficient(s, variable)
        if c is None or not values.know(c.variables()):
            return extent
        return self.writer.constant(abs(c.constant)) if c.is_constant else values.index(c)

    def _follows(self, buffer: Buffer, x: Touched, d: int, step: int, values: Written) -> int:
        """Whether rows of lines go on in the next iteration."""
        w = self.writer
        if d == len(x.subscripts) - 1:
            few = self._is_at_most(x.runs, w.constant(STREAMS))
            return w.multiply(few, self._is_at_most(step, x.extents[d]))
        apart = w.multiply(step, self._pitches(buffer, values)[d])
        _, span = self._box(buffer, x.extents, values)
        near = self._is_at_most(apart, w.add(span, w.constant(SLACK * self.line)))
        return w.multiply(w.is_zero(w.less(x.runs, self.one)), near)

    def _pitches(self, buffer: Buffer, values: Written) -> tuple[int, ...]:
        """Bytes from an element to the next one along each dimension."""
        if buffer.name not in self.pitches:
            each = self.writer.constant(buffer.dtype.bytes)
            strides = (values.index(e) for e in buffer.element_strides())
            self.pitches[buffer.name] = tuple(self.writer.multiply(s, each) for s in strides)
        return self.pitches[buffer.name]

    def _box(self, buffer: Buffer, extents: Sequence[int], values: Written) -> tuple[int, int]:
        """Lines of a box, and bytes from its first element to its end."""
        w, line = self.writer, self.writer.constant(self.line)
        lines, span = self.one, w.constant(buffer.dtype.bytes)
        for n, pitch in zip(reversed(extents), reversed(self._pitches(buffer, values))):
            span = w.add(span, w.multiply(w.less(n, self.one), pitch))
            whole = w.quotient(w.add(span, w.constant(self.line - 1)), line)
            lines = w.least(w.multiply(n, lines), whole)
        return lines, span
