# SPDX-License-Identifier: Apache-2.0
"""Which places of a tensor statements write, and whether two of them can meet.

Everything is decided for all sizes, each at least 0; what cannot be decided counts as meeting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from tcsym.frontend.program import For, If, Item, Range, Statement
from tcsym.index.expr import ZERO, Atom, Index, Product, of_atom, var
from tcsym.index.values import substitute

Bounds = Mapping[str, tuple[Index, Index]]  # of a variable: lower, upper (excluded)


def least(e: Index, bounds: Bounds) -> Index | None:
    """A lower bound of `e` over the box of `bounds`; None if a variable is not linear in it, except
    in products that are added and of which no factor is negative."""
    e = e - sum([of_atom(a) * c for a, c in e.terms if c > 0 and _is_positive(a, bounds)], ZERO)
    for _ in range(len(bounds) + 1):
        inside = [v for v in e.variables() if v in bounds]
        if not inside:
            return e
        # innermost first: bounds of inner loops use outer ones
        name = next(v for v in reversed(list(bounds)) if v in inside)
        factor = e.coefficient(name)
        rest = e - var(name) * factor
        if name in rest.variables() or factor == 0:
            return None
        lower, upper = bounds[name]
        e = rest + (lower if factor > 0 else upper - 1) * factor
    return None


def is_at_least(e: Index, minimum: int, bounds: Bounds) -> bool:
    """True if `e >= minimum` wherever the box is not empty."""
    known = least(e - minimum, bounds)
    if known is None:
        return False
    return known.constant >= 0 and all(c > 0 and isinstance(a, str) for a, c in known.terms)


def _is_positive(a: Atom, bounds: Bounds) -> bool:
    """True for a product of sizes and of variables that start at such or at 0."""
    if not isinstance(a, Product):
        return False
    names = [f for f in a.factors if isinstance(f, str)]
    starts = [bounds[f][0] for f in names if f in bounds]
    known = all(not e.variables() & bounds.keys() and is_at_least(e, 0, {}) for e in starts)
    return known and len(names) == len(a.factors)


class Write(Struct, frozen=True):
    """A statement with the loops around it, and the arms of `if` as (its number, which arm)."""

    statement: Statement
    loops: tuple[For, ...]
    arms: tuple[tuple[int, bool], ...]

    @property
    def bounds(self) -> dict[str, tuple[Index, Index]]:
        return {f.variable: (f.lower, f.upper) for f in self.loops}

    def span(self, d: int) -> tuple[Index, Index]:
        """First and last position in a dimension."""
        e = self.statement.subscripts[d]
        r = range_of(e, self.statement.domain)
        return (e, e) if r is None else (r.lower, r.upper - 1)

    def is_fixed(self, d: int) -> bool:
        return range_of(self.statement.subscripts[d], self.statement.domain) is None


def range_of(e: Index, domain: tuple[Range, ...]) -> Range | None:
    """The range of the index variable that `e` is."""
    return next((r for r in domain if e == var(r.variable)), None)


def writes(
    items: tuple[Item, ...],
    loops: tuple[For, ...] = (),
    arms: tuple[tuple[int, bool], ...] = (),
) -> Iterator[Write]:
    for item in items:
        match item:
            case Statement():
                yield Write(item, loops, arms)
            case For(_, _, _, body):
                yield from writes(body, (*loops, item), arms)
            case If(_, then, orelse):
                yield from writes(then, loops, (*arms, (id(item), True)))
                yield from writes(orelse, loops, (*arms, (id(item), False)))


def steps_once(w: Write) -> bool:
    """True if no two iterations of its loops write the same element."""
    variables = {f.variable for f in w.loops}
    for loop in w.loops:
        found = False
        for d, e in enumerate(w.statement.subscripts):
            if w.is_fixed(d) and e.coefficient(loop.variable):
                rest = e - var(loop.variable) * e.coefficient(loop.variable)
                found = found or not rest.variables() & variables
        if not found:
            return False
    return True


def are_apart(a: Write, b: Write) -> bool:
    """True if two statements never write the same element."""
    if _excluding(a, b):
        return True
    # the loops that both are in: their variables may differ between the two
    other = {f.variable: var(f"{f.variable}'") for f in b.loops}
    bounds = a.bounds | {
        f"{f.variable}'": (substitute(f.lower, other), substitute(f.upper, other)) for f in b.loops
    }
    for d in range(len(a.statement.subscripts)):
        first, last = a.span(d)
        first2, last2 = (substitute(e, other) for e in b.span(d))
        if is_at_least(first2 - last, 1, bounds) or is_at_least(first - last2, 1, bounds):
            return True
    return False


def _excluding(a: Write, b: Write) -> bool:
    """In different arms of one `if`, each at its own place in each iteration of common loops."""
    arms = dict(a.arms)
    if not any(arms.get(number, arm) is not arm for number, arm in b.arms):
        return False
    common = [f for f in a.loops if any(f is g for g in b.loops)]
    for loop in common:
        same = [
            d
            for d, e in enumerate(a.statement.subscripts)
            if a.is_fixed(d) and e == b.statement.subscripts[d] and e.coefficient(loop.variable)
        ]
        variables = {f.variable for f in (*a.loops, *b.loops)} - {loop.variable}
        if not any(not a.statement.subscripts[d].variables() & variables for d in same):
            return False
    return True


def are_single(found: list[Write]) -> bool:
    """True if each element is written at most once, and not combined with what was there."""
    for k, w in enumerate(found):
        s = w.statement
        if (s.op != "=" and not s.initialise) or not steps_once(w):
            return False
        if not all(are_apart(w, other) for other in found[:k]):
            return False
    return True
