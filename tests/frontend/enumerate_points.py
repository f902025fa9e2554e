# SPDX-License-Identifier: Apache-2.0
"""Program -> what goes wrong at given sizes, found by running through every point: infer's oracle.

Follows the text of the language literally: which elements exist, which were written before. Values
are not computed; guards and gathers that depend on data read random inputs.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from tcsym.errors import Span
from tcsym.frontend.affine import as_condition, as_index
from tcsym.frontend.program import (
    Binary,
    Cast,
    Compare,
    Expr,
    For,
    If,
    Item,
    Program,
    Read,
    Select,
    Statement,
    children,
    position_name,
    statements,
)
from tcsym.index.expr import Index
from tcsym.index.values import evaluate, holds

Values = dict[str, int]
Found = tuple[str, int, int]  # kind, line, column


class Enumeration(Struct):
    """One run of `program` at `sizes`."""

    program: Program
    sizes: Mapping[str, int]
    seed: int = 0
    static: set[Found] = field(default_factory=set)  # must be covered by a failing check
    written: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    states: frozenset[str] = frozenset()  # what the loops around write

    def run(self) -> set[Found]:
        """Failures that only `Program.checks` can report; kernel flags are asserted on the way."""
        for t in self.program.tensors:
            self.written[t.name] = set(self.box(t.name)) if t.role == "input" else set()
        self.items(self.program.body, dict(self.sizes))
        for t in self.program.outputs:
            if not set(self.box(t.name)) <= self.written[t.name]:
                self.note("init", t.span)
        return self.static

    def note(self, kind: str, span: Span) -> None:
        self.static.add((kind, span.line, span.column))

    def extents(self, name: str) -> list[int]:
        return [evaluate(e, self.sizes) for e in self.program.tensor(name).shape]

    def box(self, name: str) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, self.extents(name)))

    def items(self, items: tuple[Item, ...], at: Values) -> None:
        for item in items:
            match item:
                case For(v, lower, upper, body):
                    before = self.states
                    self.states |= {s.target for s in statements(body)}
                    for k in range(evaluate(lower, at), evaluate(upper, at)):
                        self.items(body, {**at, v: k})
                    self.states = before
                case If(condition, then, orelse):
                    self.items(then if holds(condition, at) else orelse, at)
                case Statement():
                    self.statement(item, at)

    def points(self, s: Statement, at: Values, left_only: bool) -> Iterator[Values]:
        ranges = [r for r in s.domain if not (left_only and r.reduced)]
        spans = [range(evaluate(r.lower, at), evaluate(r.upper, at)) for r in ranges]
        for point in itertools.product(*spans):
            yield {**at, **dict(zip([r.variable for r in ranges], point, strict=True))}

    def statement(self, s: Statement, at: Values) -> None:
        defines = s.op == "=" or s.initialise
        new: set[tuple[int, ...]] = set()
        extents = self.extents(s.target)
        for p in self.points(s, at, left_only=defines):
            place = tuple(evaluate(e, p) for e in s.subscripts)
            if not all(0 <= x < n for x, n in zip(place, extents, strict=True)):
                self.note("bounds", s.span)
            elif not defines and place not in self.written[s.target]:
                self.note("init", s.span)
            new.add(place)
        for p in self.points(s, at, left_only=False):
            self.expression(s.value, p, init=True)
            for e in s.exists:
                self.expression(e, p, init=False)
        if defines:
            self.written[s.target] |= new

    # ---- expressions

    def expression(self, e: Expr, p: Values, init: bool) -> None:
        match e:
            case Select(c, a, b):
                self.expression(c, p, init)
                self.expression(a if self.truth(c, p) else b, p, init)
            case Binary("and" | "or" as op, a, b):
                self.expression(a, p, init)
                if self.truth(a, p) == (op == "and"):
                    self.expression(b, p, init)
            case Read():
                self.read(e, p, init)
                for child in children(e):
                    self.expression(child, p, init)
            case _:
                for child in children(e):
                    self.expression(child, p, init)

    def read(self, r: Read, p: Values, init: bool) -> None:
        extents = self.extents(r.tensor)
        spots: list[range] = []
        inside = True
        for d, (s, n) in enumerate(zip(r.subscripts, extents, strict=True)):
            x = self.number(s, p)
            whole = not isinstance(s, Index) and r.tensor not in self.states
            spots.append(range(n) if whole else range(x, x + 1))
            if not 0 <= x < n:
                inside = inside and whole
                if not r.checked[d]:
                    self.note("bounds", r.span)
        if not (init and inside):
            return
        missing = any(x not in self.written[r.tensor] for x in itertools.product(*spots))
        if r.unwritten is not None:
            known = [self.number(s, p) for s in r.subscripts if not isinstance(s, Index)]
            there = {**p, **{position_name(k): x for k, x in enumerate(known)}}
            assert holds(r.unwritten, there) == missing, (r, there, missing)
        elif missing:
            self.note("init", r.span)

    def truth(self, e: Expr, p: Values) -> bool:
        condition = as_condition(e)
        if condition is not None:
            return holds(condition, p)
        match e:
            case Binary("and", a, b):
                return self.truth(a, p) and self.truth(b, p)
            case Binary("or", a, b):
                return self.truth(a, p) or self.truth(b, p)
            case Compare(_, Read() as r, _):
                return self.datum(r, p, 2) == 1
        raise NotImplementedError(e)

    def number(self, e: Index | Expr, p: Values) -> int:
        if isinstance(e, Index):
            return evaluate(e, p)
        known = as_index(e)
        if known is not None:
            return evaluate(known, p)
        match e:
            case Read():
                return self.datum(e, p, 5) - 1
            case Cast(x):
                return self.number(x, p)
            case Binary("add", a, b):
                return self.number(a, p) + self.number(b, p)
            case Binary("sub", a, b):
                return self.number(a, p) - self.number(b, p)
        raise NotImplementedError(e)

    def datum(self, r: Read, p: Values, n: int) -> int:
        place = tuple(self.number(s, p) for s in r.subscripts)
        return random.Random(f"{self.seed} {r.tensor} {place}").randrange(n)
