# SPDX-License-Identifier: Apache-2.0
"""Sums and differences in a reduction -> one reduction a product; guards on a loop -> ranges.

A gated or dilated convolution adds several products at each point, some only where its operand
exists: `a*b + (t >= d ? c*e : 0)`. Each product is a contraction by itself, if it is added by
itself and its guard is no longer asked for at every point. Products of one element of the rows,
`a*b + a*d`, have loops of their own.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import Binary, Expr, Select, Unary, dtype_of
from tcsym.index.expr import (
    Condition,
    Index,
    NonNegative,
    maximum,
    minimum,
)
from tcsym.index.values import conjuncts
from tcsym.ir.loops import Block, Kernel, Loop, Node, Update, block
from tcsym.ir.traverse import loads, map_node
from tcsym.schedule.analysis.access import subscript_variables
from tcsym.schedule.analysis.band import Band, Roles, band_of, reductions
from tcsym.schedule.analysis.casts import is_zero
from tcsym.schedule.analysis.loops import Statement, find_loop, replace_loop, statements_in
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.version.versioning import Copies, duplicate
from tcsym.trees import leaves

MOST_TERMS = 4


def split_terms(kernel: Kernel, nest: str) -> Kernel:
    """Sums that are added to an element of their own type are added term by term."""

    def split(x: Node) -> Node:
        if not isinstance(x, Update) or x.op != "add":
            return x
        terms = _terms(kernel, x, x.value)  # type: ignore[arg-type]
        if terms == (x.value,) or len(terms) > MOST_TERMS:
            return x
        return block(*(replace(x, value=t) for t in terms))

    body = replace_loop(kernel.body, nest, lambda loop: map_node(loop, split))
    return replace(kernel, body=body)


def _terms(kernel: Kernel, x: Update, value: Expr) -> tuple[Expr, ...]:
    dtype = kernel.buffer(x.buffer).dtype

    def below(v: tuple[Expr, bool]) -> list[tuple[Expr, bool]]:
        match v:
            case Binary("add", a, b, of), negated if of is dtype:
                return [(a, negated), (b, negated)]
            case Binary("sub", a, b, of), negated if of is dtype:
                first = [] if is_zero(a) else [(a, negated)]
                return [*first, (b, not negated)]
        return []

    found = leaves((value, False), below)
    return tuple([_negated(term) if negated else term for term, negated in found])


def _negated(term: Expr) -> Expr:
    """The sign goes to the first factor: a product stays one."""
    match term:
        case Binary("mul", a, b, dtype, exact) if not exact:
            return Binary("mul", _negated(a), b, dtype)
        case Unary("neg", a):
            return a
        case Select() if is_zero(term.orelse):
            return replace(term, then=_negated(term.then))
        case _:
            return Unary("neg", term, dtype_of(term))


def part_terms(kernel: Kernel, nest: str, roles: Roles, names: Names) -> Kernel:
    """Terms of one sum that share what the rows load -> a reduction loop for each of them.

    In one loop LLVM loads what is shared once, for all terms and rows: that takes a register a row
    beside the accumulators of the tile, which then go through memory. Sums are free in their order.
    """
    copies = Copies(kernel, names)

    def part(x: Node) -> Node:
        if not (isinstance(x, Loop) and x.order == "reduction" and isinstance(x.body, Block)):
            return x
        updates = [y for y, _ in statements_in(x)]
        if not _share_rows(updates, roles.columns):
            return x
        first, *others = (replace(x, body=y) for y in x.body.body)
        return block(first, *map(copies.of, others))

    body = replace_loop(kernel.body, nest, lambda loop: map_node(loop, part))
    return replace(copies.kernel, body=body)


def _share_rows(updates: list[Statement], columns: str) -> bool:
    """All add to one element, some of them products of one that the columns do not move."""
    if not all(isinstance(x, Update) and x.op == "add" for x in updates):
        return False
    if len({(x.buffer, x.subscripts) for x in updates if isinstance(x, Update)}) > 1:
        return False
    rows = [
        r
        for x in updates
        for r in dict.fromkeys(loads(x.value))
        if columns not in subscript_variables(r.subscripts)
    ]
    return len(set(rows)) < len(rows)


# ---- guards


class Guard(Struct, frozen=True):
    """Terms `value` are added where `variable` is in lower <= variable < upper, else nothing."""

    value: Select
    variable: str
    lower: Index
    upper: Index


def find_guard(kernel: Kernel, nest: str) -> Guard | None:
    """A term of the nest's reductions under a condition on one loop of the band and on sizes."""
    band = band_of(find_loop(kernel.body, nest))
    for x, _ in reductions(band.body):
        if x.op == "add" and isinstance(x.value, Select) and is_zero(x.value.orelse):
            guard = _range_of(kernel, band, x.value)
            if guard is not None:
                return guard
    return None


def _range_of(kernel: Kernel, band: Band, value: Select) -> Guard | None:
    condition = as_condition(value.condition)
    if condition is None:
        return None
    parts = conjuncts(condition)
    moving = {v for c in parts for v in _variables(c) - set(kernel.sizes)}
    if len(moving) != 1 or not moving <= set(band.variables):
        return None
    (variable,) = moving
    loop = band.loop(variable)
    lower, upper = loop.lower, loop.upper
    if (lower.variables() | upper.variables()) & set(band.variables):
        return None
    for c in parts:
        if not isinstance(c, NonNegative) or abs(c.index.coefficient(variable)) != 1:
            return None
        step = c.index.coefficient(variable)
        rest = c.index - Index(((variable, step),))
        if variable in rest.variables():
            return None
        lower, upper = (
            (maximum(lower, -rest), upper) if step > 0 else (lower, minimum(upper, rest + 1))
        )
    return Guard(value, variable, lower, upper)


def _variables(c: Condition) -> frozenset[str]:
    return c.index.variables() if isinstance(c, NonNegative) else frozenset(("",))


class Ranges(Struct, frozen=True):
    """`inside`: the nest where the guard holds; `outside`: its copies where it does not."""

    kernel: Kernel
    inside: str
    outside: tuple[str, ...]


def split_ranges(kernel: Kernel, nest: str, guard: Guard, names: Names) -> Ranges:
    """The nest once for each part of the guarded loop's range, without the guard."""
    loop = find_loop(kernel.body, guard.variable)
    first = minimum(maximum(guard.lower, loop.lower), loop.upper)
    first = loop.lower if guard.lower == loop.lower else first
    last = maximum(minimum(guard.upper, loop.upper), first)
    last = loop.upper if guard.upper == loop.upper else last
    top = find_loop(kernel.body, nest)
    pieces: list[Node] = []
    outside: list[str] = []
    for lower, upper in ((loop.lower, first), (last, loop.upper)):
        if lower == upper:
            continue
        kernel, copy, new = duplicate(kernel, _resolved(top, guard, False), names)
        part = new[guard.variable]
        pieces.append(_limited(copy, part, lower, upper))
        outside.append(new[nest])
    main = _limited(_resolved(top, guard, True), guard.variable, first, last)
    body = replace_loop(kernel.body, nest, lambda _: block(main, *pieces))
    return Ranges(replace(kernel, body=body), nest, tuple(outside))


def _limited(node: Node, variable: str, lower: Index, upper: Index) -> Node:
    return replace_loop(node, variable, lambda x: replace(x, lower=lower, upper=upper))


def _resolved(node: Node, guard: Guard, holds: bool) -> Node:
    """The guarded terms added without asking, or not at all."""

    def term(x: Node) -> Node | None:
        if isinstance(x, Update) and x.value == guard.value:
            return replace(x, value=guard.value.then) if holds else None
        return _without_gaps(x)

    return map_node(node, term)


def _without_gaps(x: Node) -> Node | None:
    """Nothing in the place of loops and sequences that hold nothing."""
    if isinstance(x, Block):
        kept = tuple(y for y in x.body if y != Block(()))
        return block(*kept) if kept else None
    return None if isinstance(x, Loop) and x.body == Block(()) else x
