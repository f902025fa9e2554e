# SPDX-License-Identifier: Apache-2.0
"""Program -> its integers of mathematics, and how large they may be (LANGUAGE E4).

Subscripts, ranges, dimensions, conditions and comparisons of affine sides are computed without
wrapping: a call whose sizes make one of them reach 2**63 is refused before it reads or writes.
`largest` bounds the magnitude of a formula, and of all parts of it, by an expression over sizes: a
sum over its terms, with an index variable at the end of its range that is farther from 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import assert_never

from msgspec import Struct, field

from tcsym.errors import NOWHERE, Span
from tcsym.frontend.affine import as_condition
from tcsym.frontend.infer_dependent import inside_out, ragged
from tcsym.frontend.infer_forms import Interval, bound
from tcsym.frontend.infer_paths import Path, guarded_reads
from tcsym.frontend.program import (
    MOST_GIVEN,
    Compare,
    Expr,
    For,
    If,
    IndexValue,
    Item,
    Program,
    Read,
    Statement,
    subexpressions,
)
from tcsym.index.expr import (
    ONE,
    ZERO,
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Product,
    condition_parts,
    floordiv,
    index,
    maximum,
    var,
)
from tcsym.index.values import product_of
from tcsym.types import DType


class Formula(Struct, frozen=True):
    """`index` and its parts have at most the magnitude `most`, over sizes."""

    index: Index
    most: Index
    span: Span = NOWHERE


class Reach(Struct, frozen=True):
    """A guarded read: elements of the hull of its subscripts, and of its tensor, over sizes."""

    hull: Index
    tensor: Index


def reaches(program: Program) -> tuple[Reach, ...]:
    """Of all guarded reads at affine subscripts."""
    shapes = {t.name: t.shape for t in program.tensors}
    found: dict[Reach, None] = {}
    for s, scope in _statements(program.body, ()):
        for read, path in guarded_reads(s.expressions):
            places = [i for i in read.subscripts if isinstance(i, Index)]
            if path != Path() and len(places) == len(shapes[read.tensor]):
                shape = shapes[read.tensor]
                hull = product_of(_extent(i, scope, n) for i, n in zip(places, shape))
                found[Reach(hull, product_of(shapes[read.tensor]))] = None
    return tuple(r for r in found if r.hull != r.tensor)


def _statements(
    items: tuple[Item, ...], loops: tuple[Interval, ...]
) -> Iterator[tuple[Statement, tuple[Interval, ...]]]:
    """All statements, with their ranges in order of elimination."""
    for item in items:
        match item:
            case Statement():
                yield item, _scope(item, loops)
            case For(variable, lower, upper, body):
                yield from _statements(body, (Interval(variable, lower, upper), *loops))
            case If(_, then, orelse):
                yield from _statements((*then, *orelse), loops)
            case _:
                assert_never(item)


def _scope(s: Statement, loops: tuple[Interval, ...]) -> tuple[Interval, ...]:
    """Without what only tensors tell."""
    lost = ragged(s.domain, s.given)
    own = [Interval(r.variable, r.lower, r.upper) for r in s.domain if r.variable not in lost]
    return (*inside_out(own), *loops)


def _extent(e: Index, scope: tuple[Interval, ...], inside: Index) -> Index:
    """How many values a subscript may have; where sizes do not tell, no copy reaches beyond those
    that are inside of the tensor."""
    ends = [bound(e, scope, greatest, frozenset()) for greatest in (False, True)]
    moving = {i.variable for i in scope}
    low, high = (x if x is not None and _is_of_sizes(x, moving) else None for x in ends)
    if low is None or high is None:
        return inside
    return maximum(high - low + 1, ZERO)


def formulas(program: Program) -> tuple[Formula, ...]:
    """Those of all that a call computes, in text order; of equal ones the first."""
    found: dict[Index, Formula] = {}
    for t in program.tensors:
        for extent, span in zip(t.shape, t.dimension_spans):  # others are ends of ranges
            _note(found, extent, {}, span)
    _of_items(program.body, (), found)
    return tuple(found.values())


def _of_items(
    items: tuple[Item, ...], loops: tuple[Interval, ...], found: dict[Index, Formula]
) -> None:
    for item in items:
        match item:
            case Statement():
                _of_statement(item, loops, found)
            case For():
                hulls = _hulls(loops)
                _note_ends((item.lower, item.upper), hulls, item.places, item.span, found)
                inner = Interval(item.variable, item.lower, item.upper)
                _of_items(item.body, (inner, *loops), found)
            case If():
                place = item.span if item.place == NOWHERE else item.place
                for e in condition_parts(item.condition):
                    _note(found, e, _hulls(loops), place)
                _of_items((*item.then, *item.orelse), loops, found)
            case _:
                assert_never(item)


def _of_statement(s: Statement, loops: tuple[Interval, ...], found: dict[Index, Formula]) -> None:
    hulls = _hulls(_scope(s, loops), ragged(s.domain, s.given))
    for e in s.subscripts:
        _note(found, e, hulls, s.span)
    for r in s.domain:
        if r.at is None:
            _note_ends((r.lower, r.upper), hulls, r.places, s.span, found)
        elif isinstance(r.at, Index):
            _note(found, r.at, hulls, r.places[0] if r.places else s.span)
    for x in s.expressions:
        for i, span in _in_expression(x, s.span):
            _note(found, i, hulls, span)


def _in_expression(e: Expr, span: Span) -> Iterator[tuple[Index, Span]]:
    """Formulas in an expression, each with its place."""
    for x in subexpressions(e):
        match x:
            case Read(_, subscripts):
                places = x.places or (x.span,) * len(subscripts)
                for i, place in zip(subscripts, places):
                    if isinstance(i, Index):
                        yield i, place
            case IndexValue(i, DType.INT64):
                yield i, span
            case Compare():
                condition = as_condition(x)
                parts = () if condition is None else condition_parts(condition)
                yield from ((i, span if x.span == NOWHERE else x.span) for i in parts)
            case _:
                pass


def _note_ends(
    ends: Iterable[Index],
    hulls: Mapping[str, Index],
    places: Sequence[Span],
    span: Span,
    found: dict[Index, Formula],
) -> None:
    given = list(ends)
    for e, place in zip(given, places or (span,) * 2 if len(places) != 1 else (span, *places)):
        _note(found, e, hulls, place)


def _note(found: dict[Index, Formula], e: Index, hulls: Mapping[str, Index], span: Span) -> None:
    if any(e == var(name) for name in hulls):
        return  # its range says more
    most = largest(e, hulls)
    if most.terms and most not in found:
        found[most] = Formula(e, most, span)


# ---- magnitudes


def _hulls(scope: Sequence[Interval], lost: Iterable[str] = ()) -> dict[str, Index]:
    """The largest magnitude of each variable, given in order of elimination."""
    found = dict.fromkeys(lost, index(MOST_GIVEN))
    for k in reversed(range(len(scope))):
        i, outer = scope[k], scope[k + 1 :]
        low = bound(i.lower, outer, False, frozenset())
        high = bound(i.upper - 1, outer, True, frozenset())
        if low is None or not _is_of_sizes(low, found):
            low = -largest(i.lower, found)
        if high is None or not _is_of_sizes(high, found):
            high = largest(i.upper - 1, found)
        found[i.variable] = maximum(high, -low) if low != ZERO else maximum(high, ZERO)
    return found


def _is_of_sizes(e: Index, moving: Collection[str]) -> bool:
    return e.variables().isdisjoint(moving)


def largest(e: Index, hulls: Mapping[str, Index]) -> Index:
    """What no value of `e` or of a part of it is larger than. hulls: that of variables; others are
    sizes."""
    return _Largest(hulls).of(e)


class _Largest(Struct):
    hulls: Mapping[str, Index]
    parts: list[Index] = field(default_factory=list)

    def of(self, e: Index) -> Index:
        """With all parts that may be larger than the whole."""
        total = self.sum(e)
        return maximum(total, *self.parts) if self.parts else total

    def sum(self, e: Index) -> Index:
        total = index(abs(e.constant))
        for atom, c in e.terms:
            total = total + self.atom(atom) * abs(c)
        return total

    def atom(self, atom: Atom) -> Index:
        match atom:
            case str():
                return self.hulls.get(atom, var(atom))
            case Product(factors):
                return reduce(lambda a, b: a * b, map(self.atom, factors), ONE)
            case FloorDiv(a, b):
                top, divisor = self.part(a), self.part(b)
                n = b.as_int() or 1
                return floordiv(top + (n - 1), n) if divisor.is_constant and n > 1 else top
            case Mod(a, b):
                self.part(a)
                return self.part(b)
            case Min(args) | Max(args):
                return maximum(*map(self.sum, args))
            case Choose(c, a, b):
                self.compared(c)
                return maximum(self.sum(a), self.sum(b))
            case _:
                assert_never(atom)

    def part(self, e: Index) -> Index:
        most = self.sum(e)
        if most.terms:
            self.parts.append(most)
        return most

    def compared(self, c: Condition) -> None:
        for e in condition_parts(c):
            self.part(e)
