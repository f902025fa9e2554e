# SPDX-License-Identifier: Apache-2.0
"""Mapped loops -> lines of memory that a call waits for, or brings again to a cache that had them.

A processor fetches ahead what goes on line after line, in some such rows of lines at a time; it
waits for lines that begin a row, and for those after it until it knows the row. Of each argument
what the loops touch is a box: how far each subscript goes. A loop goes on with the rows of its body
where each iteration starts at the end of the one before, and begins new ones elsewhere. What fits
the second cache is there from the call before, and from the iteration before where all that an
iteration touches fits, copies of arguments too; what does not fit is brought for each iteration,
also of lines that iterations have in common, and of temporaries, which nobody waits for otherwise.
Ragged ends count as whole tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import Index, condition_variables
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

ROWS_AHEAD = 32  # that a processor fetches at a time
TO_BEGIN = 10  # lines that follow others, in the time of one that begins a row
UNTIL_AHEAD = 64  # lines of a row until it does: of a page
FAR = 1 << 20  # bytes from one row of lines to the next: no row goes on
SLACK = 8  # lines between rows that still are one


class Touched(Struct, frozen=True):
    """Of an argument or a copy, in a part of the loops, by parts of a program. extents: elements by
    dimension, from the first to the last; lines: that are touched; brought: the same, each as often
    as it is brought, as other iterations need it when it is gone; rows: of lines that follow one
    another, which are begun as often."""

    subscripts: tuple[Index, ...]
    extents: tuple[int, ...]
    lines: int
    brought: int
    rows: int


Parts = Mapping[str, Touched]


class Traffic:
    def __init__(self, kernel: Kernel, machine: Machine, writer: Writer) -> None:
        level = machine.level("l2")
        self.writer, self.one, self.line = writer, writer.constant(1), level.line
        self.cache = writer.constant(level.bytes // level.line)
        self.buffers = {b.name: b for b in kernel.buffers if b.space in ("argument", "arena")}
        self.chosen = {c.variable for c in kernel.choices}
        self.pitches: dict[str, tuple[int, ...]] = {}
        self.crowds: dict[str, int] = {}
        self.strides: dict[tuple[object, ...], Index | None] = {}

    def of_call(self, n: Node, known: Mapping[str, int]) -> tuple[int, int]:
        """Lines that a call waits for, and lines that it brings again."""
        w, values = self.writer, Written(self.writer, known)
        all_ = awaited = again = w.constant(0)
        for name, x in self._node(n, values).items():
            is_argument = self.buffers[name].space == "argument"
            stays = w.constant(1) if is_argument else self._is_at_most(x.lines, self.cache)
            again = w.add(again, w.less(x.brought, w.multiply(stays, x.lines)))
            if is_argument:
                all_ = w.add(all_, x.lines)
                until = w.least(x.brought, w.multiply(x.rows, w.constant(UNTIL_AHEAD)))
                begun = w.multiply(x.rows, w.constant(TO_BEGIN))
                awaited = w.add(awaited, w.add(until, begun))
        return w.choose(self._is_at_most(all_, self.cache), w.constant(0), awaited), again

    def _is_at_most(self, a: int, b: int) -> int:
        return self.writer.non_negative(self.writer.less(b, a))

    def _node(self, n: Node, values: Written) -> Parts:
        match n:
            case Store() | Update():
                places = [(r.tensor, r.subscripts) for r in loads(n.value)]
                places.append((n.buffer, n.subscripts))
                return {b: self._point(at) for b, at in places if b in self.buffers}
            case TransposeBlock():
                sides = (
                    (n.source, n.source_subscripts, n.source_row),
                    (n.target, n.target_subscripts, n.target_column),
                )
                squares = ((b, self._square(n.block, at, d)) for b, at, d in sides)
                return {b: x for b, x in squares if b in self.buffers}
            case Block(body):
                return self._together([self._node(x, values) for x in body], values)
            case Branch(condition, body, orelse) if condition_variables(condition) & self.chosen:
                arms = (
                    self._node(body, values),
                    {} if orelse is None else self._node(orelse, values),
                )
                return self._either(values.condition(condition), *arms)
            case Branch(_, body, _) | Allocate(_, body):
                return self._node(body, values)
            case Loop():
                return self._loop(n, values)
        return {}

    def _point(self, subscripts: Sequence[object]) -> Touched:
        """Places that only data know are where they begin."""
        places = tuple(s if isinstance(s, Index) else Index() for s in subscripts)
        return Touched(places, (self.one,) * len(places), self.one, self.one, self.one)

    def _square(self, side: int, subscripts: tuple[Index, ...], row: int) -> Touched:
        extents, n = [self.one] * len(subscripts), self.writer.constant(side)
        extents[-1] = extents[row] = n
        return Touched(subscripts, tuple(extents), n, n, n)

    def _together(self, parts: Sequence[Parts], values: Written) -> Parts:
        """Of each argument the part that touches most of it; lines that other parts bring, too, are
        there unless all that is touched does not fit."""
        w, all_ = self.writer, dict[str, list[Touched]]()
        for name, x in (y for p in parts for y in p.items()):
            all_.setdefault(name, []).append(x)
        found = {name: max(x, key=self._size) for name, x in all_.items()}
        several = [name for name, x in all_.items() if any(y.brought != y.lines for y in x[1:])]
        if several:
            stays = self._fits(found, values)
            for name in several:
                brought = reduce(w.add, (x.brought for x in all_[name]))
                brought = w.choose(stays, found[name].brought, brought)
                found[name] = replace(found[name], brought=brought)
        return found

    def _fits(self, parts: Parts, values: Written) -> int:
        w = self.writer
        lines = (self._crowded(self.buffers[name], x, values) for name, x in parts.items())
        return self._is_at_most(reduce(w.add, lines, w.constant(0)), self.cache)

    def _crowded(self, buffer: Buffer, x: Touched, values: Written) -> int:
        """Lines of a cache that are taken: rows which lie a power of two apart share few sets, so
        that there are conflict misses."""
        w = self.writer
        if len(x.extents) < 2 or x.extents[-2] == self.one:
            return x.lines
        row = w.multiply(x.extents[-1], w.constant(buffer.dtype.bytes))
        row = w.greatest(w.constant(self.line), row)
        sets = w.quotient(w.multiply(self._crowd(buffer, values), w.constant(self.line)), row)
        return w.multiply(x.lines, w.greatest(self.one, sets))

    def _crowd(self, buffer: Buffer, values: Written) -> int:
        """How many times as many lines as rows have would fit if these were no power of two apart:
        up to the lines of a page, for rows that begin pages."""
        if buffer.name not in self.crowds:
            w, page = self.writer, UNTIL_AHEAD * self.line
            pitch = self._pitches(buffer, values)[-2]
            rest = w.less(pitch, w.multiply(w.constant(page), w.quotient(pitch, w.constant(page))))
            found = w.add(self.one, w.multiply(w.is_zero(rest), w.constant(UNTIL_AHEAD - 1)))
            for part in (2, 4):
                rest = w.less(rest, w.constant(page // part))
                crowd = w.constant(UNTIL_AHEAD // part - 1)
                found = w.add(found, w.multiply(w.is_zero(rest), crowd))
                rest = w.greatest(rest, w.multiply(w.constant(-1), rest))
            self.crowds[buffer.name] = found
        return self.crowds[buffer.name]

    def _either(self, truth: int, then: Parts, orelse: Parts) -> Parts:
        """Of versions of a nest."""
        w, found = self.writer, dict[str, Touched]()
        for name in {**then, **orelse}:
            a, b = then.get(name), orelse.get(name)
            if a is None or b is None:
                found[name] = x = a or b or self._point(())
                is_read = truth if a else w.is_zero(truth)
                counts = (w.multiply(is_read, n) for n in (x.lines, x.brought, x.rows))
                found[name] = Touched(x.subscripts, x.extents, *counts)
            else:
                extents = tuple(w.choose(truth, m, n) for m, n in zip(a.extents, b.extents))
                both = ((a.lines, b.lines), (a.brought, b.brought), (a.rows, b.rows))
                counts = (w.choose(truth, m, n) for m, n in both)
                found[name] = Touched(a.subscripts, extents, *counts)
        return found

    def _size(self, x: Touched) -> float:
        return float(np.sum(prod(self.writer.columns[n] for n in x.extents)))

    def _loop(self, n: Loop, values: Written) -> Parts:
        w, is_found = self.writer, n.value is not None or n.at is not None
        start = w.constant(0) if is_found else values.index(n.lower)
        body = self._node(n.body, values.with_variable(n.variable, start))
        if is_found:
            return body
        trips = w.greatest(w.less(values.index(n.upper), start), w.constant(0))
        stays, found = self._fits(body, values), dict[str, Touched]()
        for name, x in body.items():
            is_moved = bool(_moves(x, n.variable))
            new = self._moved(n, name, x, trips, values) if is_moved else x
            brought = w.choose(stays, new.lines, w.multiply(trips, x.brought))
            rows = new.rows if is_moved else w.choose(stays, x.rows, w.multiply(trips, x.rows))
            found[name] = replace(new, brought=brought, rows=w.least(rows, brought))
        if not n.lower.variables():
            return found
        at = {n.variable: n.lower}
        return {
            name: replace(x, subscripts=tuple(substitute(s, at) for s in x.subscripts))
            for name, x in found.items()
        }

    def _moved(self, n: Loop, name: str, x: Touched, trips: int, values: Written) -> Touched:
        w, buffer, extents = self.writer, self.buffers[name], list(x.extents)
        moved = _moves(x, n.variable)
        more = w.greatest(w.less(trips, self.one), w.constant(0))
        for d in moved:
            step = self._step(x.subscripts[d], n.variable, x.extents[d], values)
            extents[d] = w.add(extents[d], w.multiply(step, more))
        rows = self._rows(buffer, x, n.variable, trips, values)
        lines = w.least(w.multiply(trips, x.lines), self._lines(buffer, extents, values))
        return Touched(x.subscripts, tuple(extents), lines, x.brought, rows)

    def _step(self, s: Index, variable: str, extent: int, values: Written) -> int:
        """Elements from one iteration to the next; on to the next part where that is not known."""
        c = linear_coefficient(s, variable)
        if c is None or not values.know(c.variables()):
            return extent
        return self.writer.constant(abs(c.constant)) if c.is_constant else values.index(c)

    def _rows(self, buffer: Buffer, x: Touched, variable: str, trips: int, values: Written) -> int:
        """Rows of lines after a loop: those of an iteration go on in the next one if they are few,
        and each is all that is touched along the dimensions from the moved one on: one row if it is
        of one page, and nothing lies between."""
        w, moved = self.writer, _moves(x, variable)
        more, last, step = w.multiply(trips, x.rows), moved[-1], self._stride(buffer, x, variable)
        if step is not None and values.know(step.variables()):
            apart = w.multiply(values.index(step), w.constant(buffer.dtype.bytes))
            apart = w.greatest(apart, w.multiply(w.constant(-1), apart))
        elif len(moved) == 1:
            apart = w.multiply(x.extents[last], self._pitches(buffer, values)[last])
        else:
            return more
        near = self._span(buffer, x.extents, values, last)
        beside = reduce(w.multiply, x.extents[:last], self.one)
        few = self._is_at_most(x.rows, w.constant(ROWS_AHEAD))
        several = reduce(w.multiply, x.extents[:-1], self.one)
        rows = w.choose(few, w.least(x.rows, several), x.rows)  # some are come to more than once
        if last < len(x.extents) - 1:
            slack, parts = w.constant(SLACK * self.line), x.extents[last:]
            side_by_side = reduce(w.multiply, parts[:-1])
            taken = w.multiply(side_by_side, w.multiply(parts[-1], w.constant(buffer.dtype.bytes)))
            is_one = self._is_at_most(w.less(near, taken), w.multiply(side_by_side, slack))
            of_page = self._is_at_most(near, w.constant(UNTIL_AHEAD * self.line))
            is_one = w.multiply(is_one, of_page)
            rows = w.choose(w.multiply(few, is_one), w.least(rows, beside), rows)
            near = w.add(near, slack)
        goes_on = w.multiply(few, self._is_at_most(rows, beside))
        return w.choose(w.multiply(goes_on, self._is_at_most(apart, near)), rows, more)

    def _stride(self, buffer: Buffer, x: Touched, variable: str) -> Index | None:
        """Elements from one iteration to the next, of all dimensions together, which may be one."""
        key = buffer.name, x.subscripts, variable
        if key not in self.strides:
            places = zip(x.subscripts, buffer.element_strides())
            moved = (s * n for s, n in places if variable in s.variables())
            self.strides[key] = linear_coefficient(sum(moved, Index()), variable)
        return self.strides[key]

    def _pitches(self, buffer: Buffer, values: Written) -> tuple[int, ...]:
        """Bytes from an element to the next one along each dimension; far where it is not known."""
        if buffer.name not in self.pitches:
            each = self.writer.constant(buffer.dtype.bytes)
            far = self.writer.constant(FAR)
            self.pitches[buffer.name] = tuple(
                self.writer.multiply(values.index(e), each) if values.know(e.variables()) else far
                for e in buffer.element_strides()
            )
        return self.pitches[buffer.name]

    def _span(self, buffer: Buffer, extents: Sequence[int], values: Written, first: int = 0) -> int:
        """Bytes to the end of the last element from the first one, along dimensions from first."""
        w, found = self.writer, self.writer.constant(buffer.dtype.bytes)
        pitches = self._pitches(buffer, values)
        for n, pitch in zip(extents[first:], pitches[first:]):
            found = w.add(found, w.multiply(w.less(n, self.one), pitch))
        return found

    def _lines(self, buffer: Buffer, extents: Sequence[int], values: Written) -> int:
        """Of all elements of a box: rows side by side have their own, or are in those of others."""
        w, line = self.writer, self.writer.constant(self.line)
        last = w.multiply(w.less(extents[-1], self.one), w.constant(buffer.dtype.bytes))
        rows = reduce(w.multiply, extents[:-1], w.add(last, line))
        span = w.add(self._span(buffer, extents, values), line)
        return w.multiply(w.least(rows, span), w.constant(1 / self.line))


def _moves(x: Touched, variable: str) -> list[int]:
    """Dimensions along which a loop goes."""
    return [d for d, s in enumerate(x.subscripts) if variable in s.variables()]
