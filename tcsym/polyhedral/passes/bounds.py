"""Bounds of index expressions over the loops around them, as expressions in sizes."""

from __future__ import annotations

from collections.abc import Iterable

from tcsym.index import (
    ZERO,
    Atom,
    FloorDiv,
    Index,
    Max,
    Min,
    Product,
    floordiv,
    index,
    maximum,
    minimum,
    of_atom,
)
from tcsym.loop_ir import Loop


def extent(loop: Loop) -> Index:
    return loop.upper - loop.lower


def trip_bound(loop: Loop) -> Index:
    """An upper bound of the extent with as few loop variables as its form shows."""
    only = loop.upper.terms[0] if len(loop.upper.terms) == 1 else None
    if only is None or only[1] != 1 or not isinstance(only[0], Min):
        return extent(loop)
    offset = loop.upper.constant
    choices = [a + offset - loop.lower for a in only[0].args]
    return min(choices, key=lambda e: (len(e.variables()), len(str(e))))


def eliminate(e: Index, loops: Iterable[Loop], high: bool) -> Index | None:
    """An upper (`high`) or lower bound of `e` free of the loops' variables; None if not found.

    `loops` are outermost first; each has at least one iteration where the bound is used.
    Sizes are taken to be >= 0.
    """
    bound: Index | None = e
    ordered = tuple(loops)
    names = frozenset(x.variable for x in ordered)
    for loop in reversed(ordered):
        if bound is None:
            return None
        if loop.variable in bound.variables():
            bound = _eliminate_one(bound, loop, high, names)
    return bound


def _eliminate_one(e: Index, loop: Loop, high: bool, names: frozenset[str]) -> Index | None:
    total = Index((), e.constant)
    for atom, c in e.terms:
        if loop.variable not in of_atom(atom).variables():
            total = total + of_atom(atom) * c
            continue
        part = _atom_bound(atom, loop, high == (c > 0), names)
        if part is None:
            return None
        total = total + part * c
    return total


def _last(loop: Loop) -> Index:
    last = loop.upper - 1
    return last if loop.mask is None else minimum(last, loop.mask - 1)


def _atom_bound(atom: Atom, loop: Loop, high: bool, names: frozenset[str]) -> Index | None:
    match atom:
        case str():
            return _last(loop) if high else loop.lower
        case Product(factors):
            others = [f for f in factors if f != loop.variable]
            if len(others) != len(factors) - 1 or any(
                of_atom(f).variables() & names for f in others
            ):
                return None
            out = _last(loop) if high else loop.lower
            for f in others:
                out = out * of_atom(f)
            return out
        case FloorDiv(a, b):
            divisor = b.as_int()
            inner = _eliminate_one(a, loop, high, names) if divisor and divisor > 0 else None
            return None if inner is None else floordiv(inner, b)
        case Min(args) | Max(args):
            parts = [_eliminate_one(a, loop, high, names) for a in args]
            known = [p for p in parts if p is not None]
            if len(known) < len(parts):
                return None
            return minimum(*known) if isinstance(atom, Min) else maximum(*known)
        case _:
            return None


def relax(e: Index, known: frozenset[str], high: bool) -> Index | None:
    """An upper (`high`) or lower bound of `e` in the variables `known` only; None if not found.

    Minima and maxima lose the parts that use other variables.
    """
    total = index(e.constant)
    for atom, c in e.terms:
        part = _relax_atom(atom, known, high == (c > 0))
        if part is None:
            return None
        total = total + part * c
    return total


def _relax_atom(atom: Atom, known: frozenset[str], high: bool) -> Index | None:
    if of_atom(atom).variables() <= known:
        return of_atom(atom)
    match atom:
        case Min(args) | Max(args):
            parts = [p for p in (relax(a, known, high) for a in args) if p is not None]
            if isinstance(atom, Min) == high:
                return _extremum(atom, parts) if parts else None
            return _extremum(atom, parts) if len(parts) == len(args) else None
        case FloorDiv(a, b):
            divisor = b.as_int()
            inner = relax(a, known, high) if divisor and divisor > 0 else None
            return None if inner is None else floordiv(inner, b)
        case Product(factors) if high:
            out: Index | None = index(1)
            for f in factors:
                part = _relax_atom(f, known, True)
                out = None if out is None or part is None else out * part
            return out
        case _:
            return None


def _extremum(atom: Min | Max, parts: list[Index]) -> Index:
    return minimum(*parts) if isinstance(atom, Min) else maximum(*parts)


def is_nonnegative(e: Index, sizes: frozenset[str]) -> bool:
    """True if `e` >= 0 is plain, given that sizes are."""
    return e.constant >= 0 and all(c >= 0 and _atom_nonnegative(a, sizes) for a, c in e.terms)


def extent_from(e: Index, sizes: frozenset[str]) -> Index:
    """`e` as the extent of a buffer: never negative, also where nothing is accessed."""
    return e if is_nonnegative(e, sizes) else maximum(e, ZERO)


def _atom_nonnegative(atom: Atom, sizes: frozenset[str]) -> bool:
    match atom:
        case str():
            return atom in sizes
        case Product(factors):
            return all(_atom_nonnegative(f, sizes) for f in factors)
        case FloorDiv(a, b):
            return (b.as_int() or 0) > 0 and is_nonnegative(a, sizes)
        case Min(args):
            return all(is_nonnegative(a, sizes) for a in args)
        case Max(args):
            return any(is_nonnegative(a, sizes) for a in args)
        case _:
            return False
