# SPDX-License-Identifier: Apache-2.0
"""Conditions -> variables that are multiples of a number where they hold, and sums of such."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd, prod

from tcsym.index.expr import Atom, Condition, FloorDiv, Index, IsZero, Product, mod, var
from tcsym.index.values import conjuncts

Multiples = Mapping[str, int]  # others: of 1


def multiples_in(c: Condition) -> Iterator[tuple[str, int]]:
    """Variables, each with a number that it is a multiple of where `c` holds."""
    for part in conjuncts(c):
        if isinstance(part, IsZero):
            yield from _remainder(part.index)


def _remainder(e: Index) -> Iterator[tuple[str, int]]:
    """If `e` is the remainder of a variable, or that with another sign."""
    for atom, _ in e.terms:
        if isinstance(atom, FloorDiv):
            n, whole = atom.divisor.as_int(), atom.dividend.terms
            if n is not None and len(whole) == 1 and isinstance(name := whole[0][0], str):
                rest = mod(var(name), n)
                if e in (rest, -rest):
                    yield name, n


def divisor(e: Index, known: Multiples) -> int:
    """The largest number that `e` is seen to be a multiple of; 0 if it is 0."""
    return gcd(e.constant, *(c * _of_atom(atom, known) for atom, c in e.terms))


def _of_atom(atom: Atom, known: Multiples) -> int:
    if isinstance(atom, Product):
        return prod(_of_atom(x, known) for x in atom.factors)
    return known.get(atom, 1) if isinstance(atom, str) else 1
