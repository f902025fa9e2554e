# SPDX-License-Identifier: Apache-2.0
"""Resolved program -> Program: ranges, shapes, and what must be checked when.

Four steps, each in text order: `infer_walk` finds ranges and extents, `infer_bounds` proves
accesses, `infer_init` follows which elements are written, and this module assembles the result.
What is wrong for all sizes is raised here; what depends on sizes becomes a `Check`; what depends
on data is left to the kernel (`Read.checked`, `Read.unwritten`).
"""

from __future__ import annotations

from functools import partial
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.errors import ERROR_KINDS, InitError, TCError
from tcsym.frontend.idioms import accumulated_hint, recurrence_hint
from tcsym.frontend.infer_bounds import (
    Points,
    in_int32,
    points_of,
    points_of_given,
    product_of_sizes,
    read_bounds,
    write_checks,
)
from tcsym.frontend.infer_extents import Extents
from tcsym.frontend.infer_facts import Facts
from tcsym.frontend.infer_init import Access, Initialised, Place, Written, element_name
from tcsym.frontend.infer_messages import (
    CONVERTED,
    NARROW,
    narrowed_by_reads,
    out_of_range,
    plain,
    plain_index,
)
from tcsym.frontend.infer_paths import Path, visit_reads
from tcsym.frontend.infer_walk import Branch, Nest, Node, Placed, place, placed_statements
from tcsym.frontend.positions import adding, position_if
from tcsym.frontend.program import (
    Binary,
    Check,
    Expr,
    For,
    Given,
    If,
    IndexValue,
    Item,
    Program,
    Range,
    Read,
    SizeParameter,
    Statement,
    Tensor,
    is_fixed,
    position_name,
)
from tcsym.frontend.resolved import ResolvedProgram, ResolvedTensor
from tcsym.index.expr import FALSE, TRUE, Condition, Index, ge, var
from tcsym.index.values import condition_substitute


def infer(program: ResolvedProgram) -> Program:
    """Ranges, shapes and checks of `program`.

    Raises the first error (kinds range, init, bounds, size) that holds whatever the sizes are.
    """
    try:
        return _infer(program)
    except TCError as e:
        raise e.with_source(program.source, program.filename) from None


def _infer(program: ResolvedProgram) -> Program:
    facts = Facts(program.sizes)
    divisors = [_divisor_check(p) for p in program.size_parameters if p.divides]
    for p in program.size_parameters:
        if p.divides:
            facts.assume_positive(var(p.name))
    extents = Extents.of_program(program, facts)
    nodes, traps = place(program, extents, facts)
    _require_outputs(program, extents)
    finish = _Finish(facts, extents, Initialised.of_nodes(nodes, extents, facts))
    defined = Written.whole((t.name, t.rank) for t in program.tensors if t.role == "inout")
    body, written = finish.items(nodes, defined)
    header = _header_checks(program, extents, nodes, finish, written)
    return Program(
        program.name,
        program.sizes,
        program.free_sizes,
        tuple(_tensor(t, extents) for t in program.tensors),
        body,
        _first_of_each(_parameters_first(divisors + header + finish.checks, program)),
        program.source,
        program.filename,
        program.span,
        traps=(*program.traps, *traps),
        size_parameters=program.size_parameters,
    )


def _divisor_check(p: SizeParameter) -> Check:
    message = f"`{p.name}` must not be 0: the end of a range or a dimension is divided by it"
    return Check("size", ge(var(p.name), 1), message, span=p.span)


def _parameters_first(checks: list[Check], program: ResolvedProgram) -> list[Check]:
    """What is asked of a size parameter stands in the header."""
    places = {p.span for p in program.size_parameters}
    return sorted(checks, key=lambda c: c.span not in places)


class _Finish(Struct):
    """Second pass: placed statements to statements, collecting their checks."""

    facts: Facts
    extents: Extents
    initialised: Initialised
    checks: list[Check] = field(default_factory=list)

    def items(self, nodes: tuple[Node, ...], written: Written) -> tuple[tuple[Item, ...], Written]:
        """The items of `nodes`, and what is written after them."""
        found: list[Item] = []
        for node in nodes:
            match node:
                case Placed():
                    found.append(self.statement(node, written))
                    shape = self.extents.shape(node.statement.target)
                    written = written.after(node, shape, self.facts)
                case Nest(loop, body, span, places):
                    inner, inside = self.items(body, written)
                    found.append(For(loop.variable, loop.lower, loop.upper, inner, span, places))
                    written = written.leave(loop, inside, self.extents)
                case Branch(condition, then, orelse, span, place):
                    yes, after_yes = self.items(then, written)
                    no, after_no = self.items(orelse, written)
                    found.append(If(condition, yes, no, span, place))
                    written = after_yes.either(after_no)
                case Check():
                    self.report([node])
                case _:
                    assert_never(node)
        return tuple(found), written

    def statement(self, placed: Placed, written: Written) -> Statement:
        s = placed.statement
        one = _OneStatement(self, placed, written)
        shape = self.extents.shape(s.target)
        adds = adding(s.op, s.value, self.extents.tensors[s.target].dtype) if s.positions else None
        found = [*placed.checks, *write_checks(placed, shape, adds, self.facts)]
        if not placed.defines:
            found += one.accumulation()
        domain = tuple(one.position(r, adds) for r in placed.domain)
        value = visit_reads(s.value, Path(), one.read, one.size_arithmetic)
        exists = tuple(visit_reads(e, Path(), one.exists) for e in s.exists)
        given = tuple(
            Given(g.name, visit_reads(g.value, Path(), partial(one.read_given, g))) for g in s.given
        )
        found += one.checks
        found.sort(key=lambda c: (c.span.line, c.span.column))
        self.report([*found, *one.products])
        return Statement(
            placed.name,
            s.target,
            s.subscripts,
            s.op,
            s.initialise,
            domain,
            value,
            exists,
            s.span,
            given,
        )

    def report(self, checks: list[Check]) -> None:
        """Keep checks that depend on sizes, raise the first that fails for all."""
        for c in checks:
            raise_if_certain(c)
        self.checks += [c for c in checks if c.condition != TRUE]


def _first_of_each(checks: list[Check]) -> tuple[Check, ...]:
    """Without checks that repeat the condition of an earlier one: that one is reported."""
    first: dict[Condition, Check] = {}
    for c in checks:
        first.setdefault(c.condition, c)
    return tuple(first.values())


def raise_if_certain(c: Check) -> None:
    if c.condition == FALSE:
        raise ERROR_KINDS[c.kind](c.message, span=c.span, hint=c.hint)


class _OneStatement(Struct):
    """Annotates the reads of one statement."""

    finish: _Finish
    placed: Placed
    written: Written
    checks: list[Check] = field(default_factory=list)
    products: list[Check] = field(default_factory=list)  # inner ones first

    def exists(self, read: Read, path: Path) -> Read:
        """An `exists` read is bounds-checked but needs no written element (E5)."""
        return self._bounded(read, path, points_of(self.placed, path))

    def read(self, read: Read, path: Path) -> Read:
        return self._written(read, path, points_of(self.placed, path))

    def read_given(self, given: Given, read: Read, path: Path) -> Read:
        return self._written(read, path, points_of_given(self.placed, given))

    def _bounded(self, read: Read, path: Path, points: Points) -> Read:
        extents, facts = self.finish.extents, self.finish.facts
        shape = extents.shape(read.tensor)
        places = tuple(map(self.placed.known, read.subscripts))
        conditions, checked = read_bounds(read.tensor, places, shape, points, path, facts)
        for d, condition in conditions:
            e = places[d]
            assert e is not None
            message = out_of_range(read.tensor, d, e, shape[d], condition)
            self.checks.append(Check("bounds", condition, message, NARROW, read.span))
        return replace(read, checked=checked)

    def _written(self, read: Read, path: Path, points: Points) -> Read:
        read = self._bounded(read, path, points)
        if self.finish.extents.role(read.tensor) == "input":
            return read
        places = tuple(map(self.placed.known, read.subscripts))
        is_state = self.finish.initialised.is_state(read.tensor, self.placed.loops)
        checks, unwritten = self._init(read.tensor, places, points, None in places and is_state)
        s = self.placed.statement
        is_moved = read.tensor == s.target and read.subscripts != s.subscripts
        hint = recurrence_hint(plain(s.target)) if is_moved else ""
        self.checks += [replace(c, span=read.span, hint=c.hint or hint) for c in checks]
        if unwritten is None:
            return read
        return replace(read, unwritten=condition_substitute(unwritten, elements_read(read)))

    def size_arithmetic(self, e: Binary | IndexValue, path: Path) -> None:
        """What is computed of sizes alone in int32 fits it (E4)."""
        span = e.span if isinstance(e, Binary) else self.placed.statement.span
        value = product_of_sizes(e, self.finish.facts)
        condition = TRUE if value is None else in_int32(value, self.placed, path)
        if value is not None and condition != TRUE:
            message = f"`{plain_index(value)}` does not fit int32, the type of sizes"
            self.products.append(Check("size", condition, message, CONVERTED, span))

    def position(self, r: Range, adds: Expr | None) -> Range:
        """The range with what is to be checked of the reads in a scattered subscript, which is
        evaluated where its term adds something. A fixed one that `!` sets is everywhere."""
        if r.at is None or isinstance(r.at, Index):
            return r
        s = self.placed.statement
        names = frozenset(v.name for v in s.variables if v.at is None)
        at = r.at if s.initialise and is_fixed(r.at, names) else position_if(adds, r.at)
        return replace(r, at=visit_reads(at, Path(), self.read))

    def accumulation(self) -> list[Check]:
        """Accumulating without `!` reads the old element at every executed point (B6), and where it
        is scattered all elements that it might write (F4)."""
        s = self.placed.statement
        scattered = [var(v.name) for v in s.positions]
        places = tuple(None if e in scattered else e for e in s.subscripts)
        points = points_of(self.placed, Path())
        checks, unwritten = self._init(s.target, places, points)
        if unwritten is not None:  # no read carries it into the kernel
            checks = [Check("init", FALSE, "")]
        hint = accumulated_hint(s.op, plain(s.target))
        message = f"`{plain(s.target)}` is accumulated into before it is written"
        return [replace(c, message=message, span=s.span, hint=hint) for c in checks]

    def _init(
        self, tensor: str, places: Place, points: Points, by_position: bool = False
    ) -> tuple[list[Check], Condition | None]:
        """The check on sizes that `tensor` at `places` is written, or where it is not."""
        if self.written.covers(tensor, places):
            return [], None
        placed = self.placed
        access = Access(tensor, places, points, placed.loops, placed.number, by_position)
        missing = self.finish.initialised.missing(access)
        if missing.points is not None:
            return [], missing.points
        message = f"`{plain(tensor)}` is read before it is written"
        if missing.sizes is None:
            message = f"it cannot be decided that `{plain(tensor)}` is written before it is read"
        condition = FALSE if missing.sizes is None else missing.sizes
        return ([] if condition == TRUE else [Check("init", condition, message)]), None


def elements_read(read: Read) -> dict[str, Index]:
    """Of the names of elements: what a subscript says, or its name as a position that data know."""
    found: dict[str, Index] = {}
    for d, e in enumerate(read.subscripts):
        known = sum(not isinstance(x, Index) for x in read.subscripts[:d])
        found[element_name(d)] = e if isinstance(e, Index) else var(position_name(known))
    return found


# ---- the header


def _require_outputs(program: ResolvedProgram, extents: Extents) -> None:
    for t in program.tensors:
        if t.role == "output" and t.name not in extents.written:
            raise InitError(
                f"the output `{t.name}` is never written",
                span=t.span,
                hint=f"assign `{t.name}` in the body, or remove it from the outputs",
            )


def _header_checks(
    program: ResolvedProgram,
    extents: Extents,
    nodes: tuple[Node, ...],
    finish: _Finish,
    written: Written,
) -> list[Check]:
    """Declared dimensions are not negative, and every element of an output is written (B2, C2)."""
    found: list[Check] = []
    for t in program.tensors:
        shape = extents.shape(t.name)
        if t.shape is not None and t.role in ("output", "temporary"):
            found += _dimension_checks(t, shape, finish.facts)
        if t.role == "output" and not written.covers(t.name, (None,) * t.rank):
            found += _coverage_check(t, shape, nodes, finish)
    for c in found:
        raise_if_certain(c)
    return found


def _coverage_check(
    t: ResolvedTensor, shape: tuple[Index, ...], nodes: tuple[Node, ...], finish: _Finish
) -> list[Check]:
    """Every element of the output `t` is written, for sizes that the check names."""
    missing = finish.initialised.missing(Access(t.name, (None,) * t.rank, Points(())))
    message = f"the output `{t.name}` is not fully written"
    if missing.sizes is None:
        message = f"it cannot be decided that the output `{t.name}` is fully written"
    condition = FALSE if missing.sizes is None else missing.sizes
    if condition not in (TRUE, FALSE):
        condition = finish.facts.unless_refuted(condition)
    statements = ((x.statement, x.domain) for x in placed_statements(nodes))
    hint = narrowed_by_reads(t.name, shape, statements)
    return [] if condition == TRUE else [Check("init", condition, message, hint, t.span)]


def _dimension_checks(t: ResolvedTensor, shape: tuple[Index, ...], facts: Facts) -> list[Check]:
    found = []
    for d, extent in enumerate(shape):
        condition = facts.decide(ge(extent, 0))
        if condition != TRUE:
            span = t.dimension_spans[d] if d < len(t.dimension_spans) else t.span
            message = f"negative size: dimension {d} of `{plain(t.name)}` is {plain_index(extent)}"
            found.append(Check("size", condition, message, span=span))
    return found


def _tensor(t: ResolvedTensor, extents: Extents) -> Tensor:
    shape = extents.shape(t.name)
    return Tensor(t.name, t.dtype, shape, t.role, t.span, t.dimension_spans)
