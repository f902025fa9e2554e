# SPDX-License-Identifier: Apache-2.0
"""Index expressions as affine forms: worst cases over ranges, and quick proofs of `e >= 0`.

Sizes are never negative, so a sum of sizes with coefficients >= 0 is >= 0, and for an affine `e`
over independent sizes that test is also complete. Quotients, minima and maxima are relaxed
soundly; what is left over goes to isl (`infer_facts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from tcsym.index.expr import (
    ONE,
    ZERO,
    Atom,
    Choose,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Product,
    factors_of,
    floordiv,
    maximum,
    minimum,
    mod,
    of_atom,
)


class Interval(Struct, frozen=True):
    """`lower <= variable < upper`; the bounds may use variables that enclose this one."""

    variable: str
    lower: Index
    upper: Index


Scope = Sequence[Interval]
"""Intervals in order of elimination: a variable stands before those that its bounds mention."""


def split(e: Index, variable: str) -> tuple[Index, Index] | None:
    """(coefficient, rest) with e == coefficient*variable + rest, None if there is no such form."""
    coefficient, rest = ZERO, Index((), e.constant)
    for atom, c in e.terms:
        if atom == variable:
            coefficient = coefficient + c
        elif isinstance(atom, str) or variable not in of_atom(atom).variables():
            rest = rest + of_atom(atom) * c
        elif isinstance(atom, Product) and atom.factors.count(variable) == 1:
            others = ONE * c
            for f in atom.factors:
                others = others if f == variable else others * of_atom(f)
            if variable in others.variables():
                return None
            coefficient = coefficient + others
        else:
            return None
    return coefficient, rest


def sign(e: Index, positive: frozenset[str] = frozenset()) -> int | None:
    """1 if e >= 0 for all sizes, -1 if e <= 0, None if unknown."""
    if is_nonnegative(e, positive):
        return 1
    return -1 if is_nonnegative(-e, positive) else None


def extreme(
    e: Index, scope: Scope, greatest: bool, positive: frozenset[str] = frozenset()
) -> Index | None:
    """Greatest (or least) value of `e` over `scope`, None if `e` is not affine in it, nor in parts
    that variables of their own move: `h/(H/G)`.

    Exact for non-empty boxes; empty intervals are taken literally (LANGUAGE B5).
    """
    e = _with_extreme_quotients(e, scope, greatest, positive)
    for interval in scope:
        if interval.variable not in e.variables():
            continue
        parts = split(e, interval.variable)
        if parts is None:
            return None
        direction = sign(parts[0], positive)
        if direction is None:
            return None
        at_top = (direction > 0) == greatest
        e = parts[1] + parts[0] * (interval.upper - 1 if at_top else interval.lower)
    return e


def _with_extreme_quotients(
    e: Index, scope: Scope, greatest: bool, positive: frozenset[str]
) -> Index:
    """`e` with the greatest (or least) of each quotient whose dividend alone moves: it grows with
    that, if it does not stay 0."""
    moving = {i.variable for i in scope}
    total = e
    for atom, c in e.terms:
        if not isinstance(atom, FloorDiv) or not _mentions(atom, moving):
            continue
        rest = total - of_atom(atom) * c
        alone = moving & atom.dividend.variables()
        if alone & (rest.variables() | atom.divisor.variables()) or not is_nonnegative(
            atom.divisor, positive
        ):
            continue
        inner = extreme(atom.dividend, scope, (c > 0) == greatest, positive)
        if inner is not None and not moving & atom.divisor.variables():
            total = rest + floordiv(inner, atom.divisor) * c
    return total


def bound(e: Index, scope: Scope, greatest: bool, positive: frozenset[str]) -> Index | None:
    """An expression over sizes that `e` never exceeds (or goes below) on `scope`.

    As `extreme` where that exists; quotients, remainders, minima and choices by their own bounds,
    which is sound but need not be reached. None if some part has no such bound.
    """
    exact = extreme(e, scope, greatest, positive)
    if exact is not None:
        return exact
    moving = {i.variable for i in scope}
    hidden = [(a, c) for a, c in e.terms if not isinstance(a, str) and _mentions(a, moving)]
    total = extreme(e - sum((of_atom(a) * c for a, c in hidden), ZERO), scope, greatest, positive)
    for atom, c in hidden:
        part = _atom_bound(atom, scope, (c > 0) == greatest, positive)
        total = None if total is None or part is None else total + part * c
    return total


def _mentions(atom: Atom, names: set[str]) -> bool:
    return not names.isdisjoint(of_atom(atom).variables())


def _atom_bound(atom: Atom, scope: Scope, greatest: bool, positive: frozenset[str]) -> Index | None:
    parts: list[Index | None]
    match atom:
        case FloorDiv(a, b) if is_nonnegative(b, positive):
            inner = bound(a, scope, greatest, positive)
            return None if inner is None else floordiv(inner, b)
        case Mod(_, b) if is_nonnegative(b - 1, positive):
            return b - 1 if greatest else ZERO
        case Min(args) | Max(args):
            parts = [bound(a, scope, greatest, positive) for a in args]
            join = minimum if isinstance(atom, Min) else maximum
        case Choose(_, a, b):
            parts = [bound(a, scope, greatest, positive), bound(b, scope, greatest, positive)]
            join = maximum if greatest else minimum
        case _:
            return None
    known = [p for p in parts if p is not None]
    return join(*known) if len(known) == len(parts) else None


def positive_in(scope: Scope) -> frozenset[str]:
    """Sizes that are >= 1 wherever every interval of `scope` has a point."""
    found: set[str] = set()
    for i in scope:
        extent = i.upper - i.lower
        if len(extent.terms) == 1 and extent.constant <= 0 and extent.terms[0][1] > 0:
            atom = extent.terms[0][0]
            factors = factors_of(atom)
            found |= {f for f in factors if isinstance(f, str)}
    return frozenset(found) - {i.variable for i in scope}


# ---- proofs

_DEPTH = 8  # relaxations along one path; each removes one atom, so this bounds work, not reach


def is_nonnegative(e: Index, positive: frozenset[str] = frozenset()) -> bool:
    """True if a quick proof shows e >= 0 for all sizes >= 0; sizes in `positive` are >= 1."""
    return is_nonnegative_below(with_whole_parts(e, positive), positive, _DEPTH)


def with_whole_parts(e: Index, positive: frozenset[str]) -> Index:
    """`e` with (a + m*S)/S as a/S + m, and a remainder without m*S, for each positive size S."""
    total = e
    for atom, c in e.terms if positive else ():
        if not isinstance(atom, FloorDiv | Mod) or len(atom.divisor.terms) != 1:
            continue
        size, n = atom.divisor.terms[0]
        whole, left = divmod(atom.dividend.coefficient(size), n)
        if n > 0 and not atom.divisor.constant and size in positive and whole and not left:
            rest = with_whole_parts(atom.dividend - atom.divisor * whole, positive)
            is_quotient = isinstance(atom, FloorDiv)
            made = floordiv(rest, atom.divisor) + whole if is_quotient else mod(rest, atom.divisor)
            total = total + (made - of_atom(atom)) * c
    return total


def _nonnegative(e: Index, positive: frozenset[str], slack: int, depth: int) -> bool:
    if e.constant + slack >= 0 and all(c > 0 and _plain(a) for a, c in e.terms):
        return True
    if depth == 0:
        return False
    for atom, c in e.terms:
        if not _plain(atom):
            rest = e - of_atom(atom) * c
            return any(
                all(is_nonnegative_below(x, positive, depth - 1) for x in goals)
                for goals in _relaxations(atom, c, rest, positive)
            )
    return False


def is_nonnegative_below(e: Index, positive: frozenset[str], depth: int) -> bool:
    """`is_nonnegative` with at most `depth` further relaxations."""
    slack = sum(c for a, c in e.terms if isinstance(a, str) and a in positive and c > 0)
    return _nonnegative(e, positive, slack, depth)


def _plain(atom: Atom) -> bool:
    return isinstance(atom, str) or (
        isinstance(atom, Product) and all(isinstance(f, str) for f in atom.factors)
    )


def _relaxations(
    atom: Atom, c: int, rest: Index, positive: frozenset[str]
) -> Iterator[list[Index]]:
    """Lists of goals; if all goals of one list are >= 0, then so is rest + c*atom."""
    match atom:
        case FloorDiv(a, b) if (n := b.as_int()) is not None and n > 0:
            yield [rest * n + (a * c if c < 0 else (a - (n - 1)) * c)]
            if c > 0:
                yield [a, rest]
        case FloorDiv(a, b):
            if c > 0:
                yield [a, b, rest]
            yield from _by_division(a, b, c, rest, positive)
        case Mod(_, b):  # between 0 and b
            yield [b, rest if c > 0 else rest + b * c]
        case Min(args) | Max(args):
            goals = [rest + x * c for x in args]
            if isinstance(atom, Min) == (c > 0):
                yield goals
            else:
                yield from ([g] for g in goals)
        case Choose(_, a, b):
            yield [rest + a * c, rest + b * c]
        case Product((FloorDiv(a, b), size)) | Product((size, FloorDiv(a, b))):
            # b*floor(a/b) lies in (a - b, a] for b = n*size if the size is positive
            n = b.coefficient(size)
            if size in positive and n > 0 and b == of_atom(size) * n and c % n == 0:
                yield [rest + (a if c < 0 else a - b + 1) * (c // n)]
        case _:
            return


def _by_division(
    a: Index, b: Index, c: int, rest: Index, positive: frozenset[str]
) -> Iterator[list[Index]]:
    """With a == q*b + r: floor(a/b) is q for 0 <= r < b, and q - 1 for -b <= r < 0."""
    if len(b.terms) != 1 or b.constant or b.terms[0][0] not in positive or b.terms[0][1] != 1:
        return
    size = b.terms[0][0]
    parts = split(a, size) if isinstance(size, str) else None
    if parts is None:
        return
    q, r = parts
    if c > 0:
        yield [rest + q * c, r]
        yield [rest + (q - 1) * c, r + b]
    else:
        yield [rest + (q - 1) * c, -r - 1]
        yield [rest + q * c, b - 1 - r]
