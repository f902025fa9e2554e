# SPDX-License-Identifier: Apache-2.0
"""Bounds of index expressions over the loops around them, as expressions in sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tcsym.index.expr import (
    ZERO,
    Atom,
    FloorDiv,
    Index,
    Max,
    Min,
    Product,
    factors_of,
    floordiv,
    index,
    maximum,
    minimum,
    mod,
    of_atom,
)
from tcsym.ir.loops import Loop


def extent(loop: Loop) -> Index:
    return loop.upper - loop.lower


def iteration(loops: Sequence[Loop], number: Index) -> dict[str, Index]:
    """Values of variables in the iteration of that number, the innermost loop counting fastest."""
    at: dict[str, Index] = {}
    for x in reversed(loops):
        at[x.variable] = x.lower + (number if x is loops[0] else mod(number, extent(x)))
        number = floordiv(number, extent(x))
    return at


def trip_bound(loop: Loop) -> Index:
    """An upper bound of the extent with as few loop variables as its form shows."""
    most = _constant_bound(extent(loop))
    return index(most) if most is not None else _pushed(extent(loop))


def least(e: Index, around: tuple[Loop, ...]) -> int | None:
    """A number that `e` is never below, where each of the loops around runs; None if not found."""
    lows = [eliminate(x, around, False) for x in _arms(e)]
    found = [_constant_bound(-low) for low in lows if low is not None]
    known = [-x for x in found if x is not None]
    return min(known) if len(known) == len(_arms(e)) else None


def _arms(e: Index) -> tuple[Index, ...]:
    """What a minimum is one of."""
    first = e.terms[0][0] if len(e.terms) == 1 and e.terms[0][1] == 1 else None
    return tuple(x + e.constant for x in first.args) if isinstance(first, Min) else (e,)


def _pushed(e: Index) -> Index:
    """`min(a, b) + c` as one of a + c and b + c: differences are small where their ends are not."""
    inside = [(atom, c) for atom, c in e.terms if isinstance(atom, Min | FloorDiv)]
    if len(inside) != 1 or inside[0][1] != 1:
        return e
    atom, _ = inside[0]
    rest = e - of_atom(atom)
    if isinstance(atom, Min):
        return minimum(*(a + rest for a in atom.args))
    divisor = atom.divisor.as_int() if isinstance(atom, FloorDiv) else None
    return e if divisor is None or rest.terms else floordiv(_pushed(atom.dividend), divisor) + rest


def _constant_bound(e: Index) -> int | None:
    """The most that quotients of the same number differ by: of (n + 7)/8 - 4*(n/32) it is 4."""
    divisors: dict[Atom, int] = {
        a: a.divisor.as_int() or 0 for a, _ in e.terms if isinstance(a, FloorDiv)
    }
    scale = math.lcm(*[n for n in divisors.values() if n > 0])
    sums: dict[Atom, int] = {}  # of what is not constant, times `scale`, as is `most`
    most = e.constant * scale
    for atom, c in e.terms:
        divisor = divisors.get(atom, 0)
        if not isinstance(atom, FloorDiv) or divisor <= 0:
            sums[atom] = sums.get(atom, 0) + c * scale
            continue
        part = c * (scale // divisor)
        most += part * (atom.dividend.constant - (divisor - 1 if c < 0 else 0))
        for inner, n in atom.dividend.terms:
            sums[inner] = sums.get(inner, 0) + part * n
    return None if any(sums.values()) else most // scale


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
            if loop.value is None:
                bound = _eliminate_one(bound, loop, high, names)
            else:  # whatever that is
                bound = relax(bound, bound.variables() - {loop.variable}, high)
    return bound


def _eliminate_one(e: Index, loop: Loop, high: bool, names: frozenset[str]) -> Index | None:
    e = _without_floors(e, loop.variable, high)
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


def _without_floors(e: Index, v: str, high: bool) -> Index:
    """A bound of `e` where the floor of a quotient and another term move with `v`: no two of them.

    n*floor(a/n) lies between a - n + 1 and a. Bounds of the terms one by one would be further off.
    """
    moving = [(atom, c) for atom, c in e.terms if v in of_atom(atom).variables()]
    if len(moving) < 2:
        return e
    for atom, c in moving:
        n = atom.divisor.as_int() if isinstance(atom, FloorDiv) else None
        if isinstance(atom, FloorDiv) and n and n > 0 and c % n == 0:
            slack = 0 if high == (c > 0) else n - 1
            e = e - of_atom(atom) * c + (atom.dividend - slack) * (c // n)
    return e


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


def bound_outside(e: Index, loops: tuple[Loop, ...], high: bool) -> Index | None:
    """As `eliminate`; a variable may also go with the parts of minima and maxima that use it."""
    bound: Index | None = e
    for x in reversed(loops):
        if bound is not None and x.variable in bound.variables():
            found = eliminate(bound, (x,), high)
            if found is None:
                found = eliminate(_without_inside(bound, x.variable, high), (x,), high)
            bound = relax(bound, bound.variables() - {x.variable}, high) if found is None else found
    return bound


def _without_inside(e: Index, variable: str, high: bool) -> Index:
    """A bound of `e` without the parts of minima and maxima that use the variable, if known."""
    for atom, c in e.terms:
        if variable in of_atom(atom).variables() and variable not in factors_of(atom):
            others = of_atom(atom).variables() - {variable}
            part = _relax_atom(atom, others, high == (c > 0))
            e = e if part is None else e + (part - of_atom(atom)) * c
    return e


def _extremum(atom: Min | Max, parts: list[Index]) -> Index:
    return minimum(*parts) if isinstance(atom, Min) else maximum(*parts)


def is_nonnegative(e: Index, sizes: frozenset[str]) -> bool:
    """True if `e` >= 0 is plain, given that sizes are."""
    return e.constant >= 0 and all(c >= 0 and _atom_nonnegative(a, sizes) for a, c in e.terms)


def at_least(e: Index, least: Index, sizes: frozenset[str]) -> Index:
    """The larger of both, plainly if that is plain, given that sizes are >= 0."""
    return e if is_nonnegative(e - least, sizes) else maximum(e, least)


def at_most(e: Index, most: Index, sizes: frozenset[str]) -> Index:
    """The smaller of both, as `at_least`."""
    return e if is_nonnegative(most - e, sizes) else minimum(e, most)


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
