# SPDX-License-Identifier: Apache-2.0
"""The resolved program: after `check` (names, types, calls), before `infer` (ranges, shapes).

Same expressions as `frontend.program`; statements do not have their ranges yet, tensors not their
shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, assert_never

from tcsym.errors import NOWHERE, Span
from tcsym.frontend.program import AssignOp, Expr, Given, Role, SizeParameter, Trap, is_fixed
from tcsym.index.expr import Condition, Index
from tcsym.keyed import Keyed
from tcsym.types import DType

LATER: dict[str, object] = {"at": None, "given": (), "size_parameters": ()}
"""Fields that came later. Their defaults mean what programs meant without: they are not hashed."""


class Variable(Keyed, frozen=True):
    """An index variable of a statement, in order of first occurrence: left, clauses, right.

    `where`: its given range as (lower, upper), half open, or None; of a left index variable over
    sizes, else as in `program.Range`. `at`: it stands for a scattered left subscript, as there.
    `places`: spans of the ends, or of the position.
    """

    aside: ClassVar[tuple[str, ...]] = ("span", "where_span", "places")

    name: str
    reduced: bool
    where: tuple[Index, Index] | None = None
    span: Span = NOWHERE
    where_span: Span = NOWHERE
    at: Index | Expr | None = None
    places: tuple[Span, ...] = ()


class ResolvedStatement(Keyed, frozen=True):
    """As `program.Statement`, with `variables` in place of the domain; reads carry no flags yet.

    A variable stands behind those that the ends of its range use.
    """

    aside: ClassVar[tuple[str, ...]] = ("span", "subscript_spans")

    target: str
    subscripts: tuple[Index, ...]
    op: AssignOp
    initialise: bool
    variables: tuple[Variable, ...]
    value: Expr
    exists: tuple[Expr, ...] = ()
    span: Span = NOWHERE
    subscript_spans: tuple[Span, ...] = ()
    given: tuple[Given, ...] = ()

    @property
    def positions(self) -> tuple[Variable, ...]:
        """The variables that stand for scattered left subscripts."""
        return tuple(v for v in self.variables if v.at is not None)

    @property
    def writes_known_elements(self) -> bool:
        """True if no element that it defines is known at run time only: a `!` sets whole scattered
        dimensions, at fixed positions only these."""
        if self.initialise:
            moving = frozenset(v.name for v in self.variables if v.at is None)
            return not any(v.at is not None and is_fixed(v.at, moving) for v in self.variables)
        return not self.positions


class Unify(Keyed, frozen=True):
    """Dimensions of `tensor` against a callee's parameter, at the place of a call in text order.

    Each entry of `dimensions` is the name of a size of the callee (renamed fresh; its first
    occurrence defines it as that extent, later ones must agree) or an integer. `span`: the callee's
    name.
    """

    tensor: str
    dimensions: tuple[str | int, ...]
    span: Span = NOWHERE


class SizeArgument(Keyed, frozen=True):
    """At the place of a call, a callee's size parameter (renamed fresh) is the size `value`, which
    is at least 1 if the callee `divides` by it. `span`: the argument."""

    name: str
    value: Index
    divides: bool
    span: Span = NOWHERE


class ResolvedFor(Keyed, frozen=True):
    aside: ClassVar[tuple[str, ...]] = ("span", "places")

    variable: str
    lower: Index
    upper: Index
    body: tuple[ResolvedItem, ...]
    span: Span = NOWHERE
    places: tuple[Span, ...] = ()


class ResolvedIf(Keyed, frozen=True):
    aside: ClassVar[tuple[str, ...]] = ("span", "place")

    condition: Condition
    then: tuple[ResolvedItem, ...]
    orelse: tuple[ResolvedItem, ...] = ()
    span: Span = NOWHERE
    place: Span = NOWHERE


ResolvedItem = ResolvedStatement | Unify | SizeArgument | ResolvedFor | ResolvedIf


def statements_of(items: tuple[ResolvedItem, ...]) -> Iterator[ResolvedStatement]:
    """All statements in text order."""
    for item in items:
        match item:
            case ResolvedStatement():
                yield item
            case Unify() | SizeArgument():
                continue
            case ResolvedFor(_, _, _, body):
                yield from statements_of(body)
            case ResolvedIf(_, then, orelse):
                yield from statements_of((*then, *orelse))
            case _:
                assert_never(item)


def inner_sizes(items: tuple[ResolvedItem, ...]) -> tuple[str, ...]:
    """Sizes of inlined callees, in order of definition."""
    found: list[str] = []
    for i in items:
        match i:
            case Unify(_, dimensions):
                found += [d for d in dimensions if isinstance(d, str)]
            case SizeArgument(name):
                found.append(name)
            case _:
                pass
    return tuple(found)


class ResolvedTensor(Keyed, frozen=True):
    """`shape`: dimensions of an input or of a declared output, else None (to be inferred)."""

    aside: ClassVar[tuple[str, ...]] = ("span", "dimension_spans")

    name: str
    dtype: DType
    rank: int
    shape: tuple[Index, ...] | None
    role: Role
    span: Span = NOWHERE
    dimension_spans: tuple[Span, ...] = ()


class ResolvedProgram(Keyed, frozen=True):
    """One def with all calls inlined. `sizes`: those of its own header (not of inlined callees)."""

    aside: ClassVar[tuple[str, ...]] = ("source", "filename", "span", "traps")

    name: str
    sizes: tuple[str, ...]
    free_sizes: tuple[str, ...]
    tensors: tuple[ResolvedTensor, ...]
    body: tuple[ResolvedItem, ...]
    source: str = ""
    filename: str = "<tc>"
    span: Span = NOWHERE
    traps: tuple[Trap, ...] = ()
    size_parameters: tuple[SizeParameter, ...] = ()
