# SPDX-License-Identifier: Apache-2.0
"""Extents of tensors as statements make them known, in text order (LANGUAGE B13).

Per dimension: the declared size; else the upper bound of the first statement with an index
variable there; else 1 + the largest fixed position over all statements, known once one of them was
met.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from tcsym.errors import InitError, RangeError, Span
from tcsym.frontend.infer_dependent import loop_hulls
from tcsym.frontend.infer_facts import Facts
from tcsym.frontend.infer_forms import Interval, extreme
from tcsym.frontend.infer_messages import plain
from tcsym.frontend.program import Role
from tcsym.frontend.resolved import (
    ResolvedFor,
    ResolvedIf,
    ResolvedItem,
    ResolvedProgram,
    ResolvedStatement,
    ResolvedTensor,
)
from tcsym.index.expr import Index
from tcsym.index.values import substitute


def index_variable_at(s: ResolvedStatement, d: int) -> str | None:
    """The index variable that stands alone as left subscript `d`, None for a fixed position."""
    e = s.subscripts[d]
    if len(e.terms) == 1 and not e.constant and e.terms[0][1] == 1:
        name = e.terms[0][0]
        if any(v.name == name for v in s.variables):
            assert isinstance(name, str)
            return name
    return None


class Extents(Struct):
    """Shapes so far. `sizes` maps a callee's sizes to expressions over the program's own."""

    tensors: dict[str, ResolvedTensor]
    known: dict[str, list[Index | None]]
    positions: dict[tuple[str, int], list[Index]]
    sizes: dict[str, Index]
    written: set[str]
    facts: Facts

    @staticmethod
    def of_program(program: ResolvedProgram, facts: Facts) -> Extents:
        known: dict[str, list[Index | None]] = {
            t.name: list(t.shape) if t.shape is not None else [None] * t.rank
            for t in program.tensors
        }
        tensors = {t.name: t for t in program.tensors}
        return Extents(tensors, known, _positions(program.body), {}, set(), facts)

    def role(self, name: str) -> Role:
        return self.tensors[name].role

    def is_declared(self, name: str) -> bool:
        return self.tensors[name].shape is not None

    def dimension(self, name: str, d: int) -> Index | None:
        e = self.known[name][d]
        return None if e is None else substitute(e, self.sizes)

    def shape(self, name: str) -> tuple[Index, ...]:
        """The whole shape; all of it must be known."""
        dims = (self.dimension(name, d) for d in range(len(self.known[name])))
        return tuple(e for e in dims if e is not None)

    def shape_for_read(self, name: str, span: Span) -> tuple[Index, ...]:
        """The shape at a read; InitError if no statement before it made it known (C4, E6)."""
        dims = [self.dimension(name, d) for d in range(len(self.known[name]))]
        defined = self.is_declared(name) or name in self.written
        if not defined or None in dims:
            raise InitError(
                f"`{plain(name)}` is read before it is written"
                + ("" if not defined else " in a way that makes its extent known"),
                span=span,
                hint=f"write `{plain(name)}` earlier in the text, or declare it as an output",
            )
        return tuple(e for e in dims if e is not None)

    def meet_write(self, s: ResolvedStatement, intervals: Sequence[Interval]) -> list[int]:
        """Record the extents that this statement makes known; returns its new fixed dimensions."""
        self.written.add(s.target)
        upper = {i.variable: i.upper for i in intervals}
        new = []
        for d, e in enumerate(self.known[s.target]):
            if e is not None:
                continue
            name = index_variable_at(s, d)
            if name is not None:
                self.known[s.target][d] = upper[name]
            elif (s.target, d) in self.positions:
                places = [substitute(p, self.sizes) for p in self.positions[s.target, d]]
                if not places:
                    raise _unknown_extent(s, d)
                self.known[s.target][d] = self.facts.greatest(places) + 1
                new.append(d)
        return new


def _positions(body: tuple[ResolvedItem, ...]) -> dict[tuple[str, int], list[Index]]:
    """Greatest fixed positions of each dimension that no index variable ever spans.

    Empty if one of them has no greatest value that an expression could say.
    """
    fixed: dict[tuple[str, int], list[Index | None]] = {}
    spanned: set[tuple[str, int]] = set()
    for s, loops in _statements(body, ()):
        positions = {v.name for v in s.positions}
        for d, e in enumerate(s.subscripts):
            if index_variable_at(s, d) in positions:
                continue
            if index_variable_at(s, d) is not None:
                spanned.add((s.target, d))
                continue
            around = loop_hulls(loops, frozenset())
            top = extreme(e, tuple(reversed(around)), greatest=True)
            fixed.setdefault((s.target, d), []).append(top)
    known = {k: [p for p in places if p is not None] for k, places in fixed.items()}
    return {
        key: known[key] if len(known[key]) == len(places) else []
        for key, places in fixed.items()
        if key not in spanned
    }


def _unknown_extent(s: ResolvedStatement, d: int) -> RangeError:
    name = plain(s.target)
    message = f"the extent of `{name}` in dimension {d} cannot be inferred from fixed positions"
    return RangeError(message, span=s.span, hint=f"declare the shape of `{name}` as an output")


def unknown_extent(s: ResolvedStatement, d: int, span: Span) -> RangeError:
    """A scattered subscript says nothing about its dimension (LANGUAGE F4)."""
    name = plain(s.target)
    return RangeError(
        f"the extent of `{name}` in dimension {d} is not known: this position does not bound it",
        span=span,
        hint=f"declare the shape of `{name}` as an output, or write all of it before",
    )


def _statements(
    items: tuple[ResolvedItem, ...], loops: tuple[Interval, ...]
) -> Iterator[tuple[ResolvedStatement, tuple[Interval, ...]]]:
    for item in items:
        match item:
            case ResolvedStatement():
                yield item, loops
            case ResolvedFor(name, lower, upper, body):
                yield from _statements(body, (*loops, Interval(name, lower, upper)))
            case ResolvedIf(_, then, orelse):
                yield from _statements(then, loops)
                yield from _statements(orelse, loops)
            case _:
                pass
