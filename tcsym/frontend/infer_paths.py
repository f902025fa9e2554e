# SPDX-License-Identifier: Apache-2.0
"""Typed expression -> its reads, each with the guards under which it happens (LANGUAGE C7, E5).

One traversal, `visit_reads`, both finds the reads and rebuilds the expression with what the
visitor returns, so that analysis and annotation cannot disagree about guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct, field

from tcsym.frontend.affine import Meaning, Meanings
from tcsym.frontend.program import (
    Binary,
    Call,
    Expr,
    IndexValue,
    Read,
    Select,
    children,
    rewritten,
    with_children,
)
from tcsym.index.expr import TRUE, Condition, Index, IsZero, NonNegative, all_of, ge
from tcsym.index.values import Values, conjuncts, substitute
from tcsym.trees import fold


class Path(Struct, frozen=True):
    """`condition` holds wherever the read happens; `by_data`: only some such points read."""

    condition: Condition = TRUE
    by_data: bool = False

    def where(self, guard: Meaning, holds: bool) -> Path:
        """The path into the arm that is taken where a condition of this meaning is `holds`."""
        condition = all_of((self.condition, guard.known(holds)))
        return Path(condition, self.by_data or guard.whole is None)

    def implies(self, e: Index) -> bool:
        """True if a comparison among the guards differs from `e >= 0` by a constant >= 0."""
        for c in conjuncts(self.condition):
            match c:
                case NonNegative(known):
                    sides = [known]
                case IsZero(known):
                    sides = [known, -known]
                case _:
                    continue
            if any((d := (e - k).as_int()) is not None and d >= 0 for k in sides):
                return True
        return False


Visit = Callable[[Read, Path], Read]
Note = Callable[[Binary | IndexValue, Path], None]


def visit_reads(e: Expr, path: Path, visit: Visit, note: Note = lambda e, path: None) -> Expr:
    """`e` with each read, outer ones first, replaced by what `visit` makes of it. note: is told of
    arithmetic, inner operations first."""
    visits = _Visits(visit, note)
    return fold(_Visited(e, path), visits.below, visits.rebuilt)


class _Visited(Struct):
    """A part on its path; what `visit` has made of it, once its own parts are visited."""

    e: Expr
    path: Path


class _Visits(Struct):
    visit: Visit
    note: Note
    meanings: Meanings = field(default_factory=Meanings)

    def below(self, v: _Visited) -> list[_Visited]:
        if isinstance(v.e, Read):
            v.e = self.visit(v.e, v.path)
        paths = [v.path, v.path, v.path]
        match v.e:
            case Binary("and" | "or" as op, a):
                paths[1] = v.path.where(self.meanings.of(a), op == "and")
            case Select(c):
                meaning = self.meanings.of(c)
                paths[1:] = (v.path.where(meaning, holds) for holds in (True, False))
            case Read() | Call():
                return [_Visited(x, v.path) for x in children(v.e)]
        return list(map(_Visited, children(v.e), paths))

    def rebuilt(self, v: _Visited, parts: list[Expr]) -> Expr:
        if isinstance(v.e, Binary | IndexValue):
            self.note(v.e, v.path)
        return with_children(v.e, parts)


def guarded_reads(exprs: tuple[Expr, ...]) -> Iterator[tuple[Read, Path]]:
    """All reads in `exprs` with their guards, outer ones first."""
    found: list[tuple[Read, Path]] = []

    def note(read: Read, path: Path) -> Read:
        found.append((read, path))
        return read

    for e in exprs:
        visit_reads(e, Path(), note)
    return iter(found)


def substitute_expr(e: Expr, values: Values) -> Expr:
    """`e` with variables replaced in all subscripts and index values."""
    return rewritten(e, lambda x, _: x, lambda i: substitute(i, values))


def nonempty(lower: Index, upper: Index) -> Condition:
    """lower < upper"""
    return ge(upper - 1, lower)
