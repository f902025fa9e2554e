# SPDX-License-Identifier: Apache-2.0
"""Resolved program -> placed statements: ranges and extents found in text order.

A placed statement knows its domain, its enclosing loops and conditions, and its place in the text:
all that the bounds and initialisation analyses need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.errors import InitError, SizeError, Span
from tcsym.frontend.idioms import accumulated_hint
from tcsym.frontend.infer_dependent import inside_out, ragged
from tcsym.frontend.infer_extents import Extents, index_variable_at, unknown_extent
from tcsym.frontend.infer_facts import Facts
from tcsym.frontend.infer_forms import Interval, split
from tcsym.frontend.infer_messages import plain
from tcsym.frontend.infer_paths import Path, guarded_reads, substitute_expr
from tcsym.frontend.infer_ranges import Demand, demands, resolve_ranges
from tcsym.frontend.program import Check, Expr, Given, Range, SizeParameter, Trap
from tcsym.frontend.resolved import (
    ResolvedFor,
    ResolvedIf,
    ResolvedItem,
    ResolvedProgram,
    ResolvedStatement,
    SizeArgument,
    Unify,
    Variable,
)
from tcsym.frontend.trap_ranges import range_trap
from tcsym.index.expr import FALSE, TRUE, ZERO, Condition, Index, eq, ge, index, negate, var
from tcsym.index.values import condition_substitute, substitute


class Placed(Struct, frozen=True):
    """A statement with its ranges and where it stands. `number` counts statements in text order."""

    number: int
    statement: ResolvedStatement
    domain: tuple[Range, ...]
    loops: tuple[Interval, ...]
    conditions: tuple[Condition, ...]
    checks: tuple[Check, ...]

    @property
    def name(self) -> str:
        return f"S{self.number}"

    @property
    def defines(self) -> bool:
        """True if elements need not be written before this statement writes them."""
        return self.statement.op == "=" or self.statement.initialise

    @property
    def surely_writes(self) -> bool:
        """True if it defines all of its image, at positions that are known before the call runs."""
        return self.defines and self.statement.writes_known_elements

    def intervals(self, left_only: bool = False) -> tuple[Interval, ...]:
        """Index variables, then loop variables from the inside out: an order of elimination.

        Without the ragged ones, of which nothing is known (F3).
        """
        lost = self.ragged
        own = [
            r
            for r in self.domain
            if r.at is None and not (left_only and r.reduced) and r.variable not in lost
        ]
        inner = inside_out([Interval(r.variable, r.lower, r.upper) for r in own])
        return (*inner, *reversed(self.loops))

    @property
    def ragged(self) -> frozenset[str]:
        """Index variables whose ranges depend on tensors, and what these read."""
        return ragged(self.domain, self.statement.given)

    def known(self, e: Index | Expr) -> Index | None:
        """A subscript of which something is known before it runs."""
        return e if isinstance(e, Index) and self.ragged.isdisjoint(e.variables()) else None


class Nest(Struct, frozen=True):
    loop: Interval
    body: tuple[Node, ...]
    span: Span
    places: tuple[Span, ...]


class Branch(Struct, frozen=True):
    condition: Condition
    then: tuple[Node, ...]
    orelse: tuple[Node, ...]
    span: Span
    place: Span


Node = Placed | Nest | Branch | Check


def placed_statements(nodes: tuple[Node, ...]) -> Iterator[Placed]:
    """All statements in text order."""
    for node in nodes:
        match node:
            case Placed():
                yield node
            case Nest(_, body):
                yield from placed_statements(body)
            case Branch(_, then, orelse):
                yield from placed_statements(then)
                yield from placed_statements(orelse)
            case Check():
                pass
            case _:
                assert_never(node)


class Context(Struct, frozen=True):
    """Where the walk stands."""

    loops: tuple[Interval, ...] = ()
    conditions: tuple[Condition, ...] = ()
    renamed: dict[str, Index] = field(default_factory=dict)


def place(
    program: ResolvedProgram, extents: Extents, facts: Facts
) -> tuple[tuple[Node, ...], list[Trap]]:
    """The body with all ranges; `extents` is complete afterwards. Raises the first error found."""
    taken = set(program.sizes) | _index_names(program.body)
    walk = _Walk(extents, facts, taken, program.size_parameters)
    return walk.items(program.body, Context()), walk.traps


def _index_names(items: tuple[ResolvedItem, ...]) -> set[str]:
    names: set[str] = set()
    for item in items:
        match item:
            case ResolvedStatement():
                names |= {v.name for v in item.variables}
            case ResolvedFor(_, _, _, body):
                names |= _index_names(body)
            case ResolvedIf(_, then, orelse):
                names |= _index_names(then) | _index_names(orelse)
            case Unify() | SizeArgument():
                pass
            case _:
                assert_never(item)
    return names


class _Walk(Struct):
    extents: Extents
    facts: Facts
    taken: set[str]
    size_parameters: tuple[SizeParameter, ...]
    loop_names: set[str] = field(default_factory=set)
    n_statements: int = 0
    traps: list[Trap] = field(default_factory=list)

    def items(self, items: tuple[ResolvedItem, ...], at: Context) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for item in items:
            match item:
                case ResolvedStatement():
                    nodes.append(self.statement(item, at))
                case ResolvedFor():
                    nodes.append(self.loop(item, at))
                case ResolvedIf():
                    nodes.append(self.branch(item, at))
                case Unify():
                    nodes += self.unify(item)
                case SizeArgument():
                    nodes += self.size_argument(item)
                case _:
                    assert_never(item)
        return tuple(nodes)

    def values(self, at: Context) -> dict[str, Index]:
        """What names in the text stand for here."""
        return {**self.extents.sizes, **at.renamed}

    def loop(self, item: ResolvedFor, at: Context) -> Nest:
        values = self.values(at)
        name = self.fresh(item.variable)
        renamed = at.renamed if name == item.variable else {**at.renamed, item.variable: var(name)}
        loop = Interval(name, substitute(item.lower, values), substitute(item.upper, values))
        inner = replace(at, loops=(*at.loops, loop), renamed=renamed)
        return Nest(loop, self.items(item.body, inner), item.span, item.places)

    def fresh(self, name: str) -> str:
        """`name` for the first loop that uses it, then name_1, name_2, …"""
        new, k = name, 0
        while new in self.loop_names or (k and new in self.taken):
            k += 1
            new = f"{name}_{k}"
        self.loop_names.add(new)
        return new

    def branch(self, item: ResolvedIf, at: Context) -> Branch:
        condition = condition_substitute(item.condition, self.values(at))
        then = self.items(item.then, replace(at, conditions=(*at.conditions, condition)))
        other = replace(at, conditions=(*at.conditions, negate(condition)))
        return Branch(condition, then, self.items(item.orelse, other), item.span, item.place)

    # ---- calls

    def unify(self, u: Unify) -> list[Check]:
        shape = self.extents.shape_for_read(u.tensor, u.span)
        found = []
        for d, (extent, dimension) in enumerate(zip(shape, u.dimensions, strict=True)):
            if isinstance(dimension, str) and dimension not in self.extents.sizes:
                self.extents.sizes[dimension] = extent
                continue
            sizes = self.extents.sizes
            wanted = sizes[dimension] if isinstance(dimension, str) else index(dimension)
            condition = self.facts.decide(eq(extent, wanted))
            if condition == TRUE:
                continue
            message = (
                f"`{plain(u.tensor)}` has size {extent} on axis {d}, but {wanted} is needed here"
            )
            if condition == FALSE:
                raise SizeError(message, span=u.span)
            found.append(Check("size", condition, message, span=u.span))
            self.facts.assume_equal(extent, wanted)
        return found

    def size_argument(self, item: SizeArgument) -> list[Check]:
        """A callee's size parameter is a size of ours: not negative, nor 0 if it divides."""
        value = self.extents.sizes[item.name] = substitute(item.value, self.extents.sizes)
        condition = self.facts.decide(ge(value, int(item.divides)))
        wanted = "positive, as a range is divided by it" if item.divides else "at least 0"
        message, span = f"the argument {value} must be {wanted}", self.place_of(value, item.span)
        if condition == FALSE:
            raise SizeError(message, span=span)
        if item.divides:
            self.facts.assume_positive(value)
        return [] if condition == TRUE else [Check("size", condition, message, span=span)]

    def place_of(self, size: Index, otherwise: Span) -> Span:
        """Of the first size parameter in `size`."""
        return next((p.span for p in self.size_parameters if p.name in size.variables()), otherwise)

    # ---- statements

    def statement(self, item: ResolvedStatement, at: Context) -> Placed:
        s = self.with_whole_dimensions(_substituted(item, self.values(at)))
        self.require_defined(s)
        given = self.demands(s), at.loops, self.facts, s.given
        ranges = resolve_ranges(s.variables, *given)
        checks = [self.stride_check(e, s) for e in (*ranges.strides, *_symbolic_strides(s))]
        self.note_traps(s)
        fixed = self.extents.meet_write(s, ranges.intervals)
        checks += self.size_checks(s, ranges.intervals, fixed)
        domain = tuple(
            Range(i.variable, i.lower, i.upper, v.reduced, v.at, v.places)
            for i, v in zip(ranges.intervals, s.variables, strict=True)
        )
        placed = Placed(self.n_statements, s, domain, at.loops, at.conditions, tuple(checks))
        self.n_statements += 1
        return placed

    def note_traps(self, s: ResolvedStatement) -> None:
        """Extents of outputs that this statement makes known (LANGUAGE F9)."""
        if self.extents.role(s.target) != "output":
            return
        given = {v.name for v in s.variables if v.where is not None}
        for d in range(len(s.subscripts)):
            name = index_variable_at(s, d)
            known = self.extents.dimension(s.target, d) is not None
            if name is not None and not known and name not in given:
                self.traps += range_trap(
                    s, d, name, lambda r: self.extents.shape_for_read(r.tensor, r.span)
                )

    def require_defined(self, s: ResolvedStatement) -> None:
        """An undeclared tensor must be written in the text before it is accumulated into."""
        defined = self.extents.is_declared(s.target) or s.target in self.extents.written
        if not (defined or s.op == "=" or s.initialise):
            raise InitError(
                f"`{plain(s.target)}` is accumulated into before it is written",
                span=s.span,
                hint=accumulated_hint(s.op, plain(s.target)),
            )

    def with_whole_dimensions(self, s: ResolvedStatement) -> ResolvedStatement:
        """Variables of scattered subscripts range over their dimensions (LANGUAGE F4)."""
        if not s.positions:
            return s
        variables = list(s.variables)
        for d, e in enumerate(s.subscripts):
            k = next(
                (k for k, v in enumerate(variables) if v.at is not None and e == var(v.name)), -1
            )
            if k < 0:
                continue
            extent = self.extents.dimension(s.target, d)
            if extent is None:
                raise unknown_extent(s, d, variables[k].span)
            variables[k] = replace(variables[k], where=(ZERO, extent))
        return replace(s, variables=tuple(variables))

    def demands(self, s: ResolvedStatement) -> list[Demand]:
        names = frozenset(v.name for v in s.variables if v.at is None)
        found: list[Demand] = []
        places = tuple(
            v.at for v in s.positions if v.at is not None and not isinstance(v.at, Index)
        )
        given = (g.value for g in s.given)
        for read, path in guarded_reads((*places, s.value, *s.exists, *given)):
            shape = self.extents.shape_for_read(read.tensor, read.span)
            for e, extent in zip(read.subscripts, shape, strict=True):
                if isinstance(e, Index):
                    found += demands((e,), (extent,), path, names)
        for d, e in enumerate(s.subscripts):
            known = self.extents.dimension(s.target, d)
            if known is not None and index_variable_at(s, d) is not None:
                found += demands((e,), (known,), Path(), names)
        return found

    def stride_check(self, stride: Index, s: ResolvedStatement) -> Check:
        message = f"the stride {stride} must be positive, or the range of an index is not bounded"
        condition = self.facts.decide(ge(stride, 1))
        self.facts.assume_positive(stride)
        return Check("size", condition, message, span=self.place_of(stride, s.span))

    def size_checks(
        self, s: ResolvedStatement, intervals: tuple[Interval, ...], fixed: list[int]
    ) -> list[Check]:
        """Left ranges and extents from fixed positions must not come out negative (B5, E6)."""
        by_name = {i.variable: i for i in intervals}
        found = []
        for d in range(len(s.subscripts)):
            name = index_variable_at(s, d)
            if name is not None and any(v.name == name for v in s.positions):
                continue
            if name is not None:
                i = by_name[name]
                extent, what = i.upper - i.lower, f"the range of `{plain(name)}`"
            elif d in fixed:
                extent, what = (
                    self.extents.shape(s.target)[d],
                    f"dimension {d} of `{plain(s.target)}`",
                )
            else:
                continue
            condition = self.facts.decide(ge(extent, 0))
            if condition != TRUE:
                message = f"negative size: {what} has {extent} elements"
                found.append(Check("size", condition, message, span=s.span))
        return found


def _substituted(s: ResolvedStatement, values: dict[str, Index]) -> ResolvedStatement:
    if not values:
        return s
    return replace(
        s,
        subscripts=tuple(substitute(e, values) for e in s.subscripts),
        variables=tuple(_substituted_variable(v, values) for v in s.variables),
        value=substitute_expr(s.value, values),
        exists=tuple(substitute_expr(e, values) for e in s.exists),
        given=tuple(Given(g.name, substitute_expr(g.value, values)) for g in s.given),
    )


def _substituted_variable(v: Variable, values: dict[str, Index]) -> Variable:
    at, where = v.at, v.where
    if where is not None:
        where = substitute(where[0], values), substitute(where[1], values)
    if at is not None:
        at = substitute(at, values) if isinstance(at, Index) else substitute_expr(at, values)
    return replace(v, where=where, at=at)


def _symbolic_strides(s: ResolvedStatement) -> tuple[Index, ...]:
    """Sizes that multiply an index in a scattered subscript: at least 1, as in inference."""
    names = [v.name for v in s.variables if v.at is None]
    found: dict[Index, None] = {}
    for p in s.positions:
        for parts in (split(p.at, n) for n in names if isinstance(p.at, Index)):
            if parts is not None and not parts[0].is_constant:
                found[parts[0]] = None
    return tuple(found)
