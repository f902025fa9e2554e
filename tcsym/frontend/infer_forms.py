"""Index expressions as affine forms: worst cases over ranges, and quick proofs of `e >= 0`.

Sizes are never negative, so a sum of sizes with coefficients >= 0 is >= 0, and for an affine `e` over
independent sizes that test is also complete. Quotients, minima and maxima are relaxed soundly; what is
left over goes to isl (`infer_facts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcsym.index import (
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
    of_atom,
)


@dataclass(frozen=True, slots=True)
class Interval:
    """`lower <= variable < upper`; the bounds may use variables that enclose this one."""

    variable: str
    lower: Index
    upper: Index


Scope = Sequence[Interval]
"""Intervals in order of elimination: a variable stands before those that its bounds mention."""


def split(e: Index, variable: str) -> tuple[Index, Index] | None:
    """(coefficient, rest) with e == coefficient*variable + rest, or None if there is no such form."""
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
    """Greatest (or least) value of `e` over `scope`, None if `e` is not affine in it.

    Exact for non-empty boxes; empty intervals are taken literally (LANGUAGE B5).
    """
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


# ---- proofs

_DEPTH = 8  # relaxations along one path; each removes one atom, so this bounds work, not reach


def is_nonnegative(e: Index, positive: frozenset[str] = frozenset()) -> bool:
    """True if a quick proof shows e >= 0 for all sizes >= 0; sizes in `positive` are >= 1."""
    slack = sum(c for a, c in e.terms if isinstance(a, str) and a in positive and c > 0)
    return _nonnegative(e, positive, slack, _DEPTH)


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
        case FloorDiv(a, b) if c > 0:
            yield [a, b, rest]
        case Mod(_, b):
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
            # size*floor(a/size) lies in (a - size, a] if the size is positive
            if size in positive and b == of_atom(size):
                yield [rest + (a if c < 0 else a - b + 1) * c]
        case _:
            return

