# SPDX-License-Identifier: Apache-2.0
"""Which index expressions isl can express: quasi-affine ones, of not too many pieces.

Products, remainders and quotients by a size are odd; so are extrema and choices nested so deeply
that isl would take time exponential in the nesting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import assert_never

from tcsym.index.expr import (
    All,
    Any_,
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    IsZero,
    Max,
    Min,
    Mod,
    NonNegative,
    Not,
    Product,
    of_atom,
)

MOST_PIECES = 4  # of an atom


def odd_atoms(*given: Index | Condition) -> tuple[Atom, ...]:
    """Atoms that isl cannot express, innermost first."""
    odd: dict[Atom, None] = {}
    for e in given:
        if isinstance(e, Index):
            _collect(e, odd)
        else:
            _collect_condition(e, odd)
    return tuple(odd)


def is_quasi_affine(e: Index | Condition, sizes: Iterable[str]) -> bool:
    """True if isl represents `e` exactly (opaque size atoms count as exact)."""
    known = frozenset(sizes)
    return all(of_atom(a).variables() <= known for a in odd_atoms(e))


def _collect(e: Index, odd: dict[Atom, None]) -> None:
    for atom, _ in e.terms:
        match atom:
            case str():
                pass
            case Product():
                odd[atom] = None
            case FloorDiv(a, b) | Mod(a, b):
                n = b.as_int()
                _collect(a, odd)
                if isinstance(atom, Mod) or n is None or n <= 0:
                    _collect(b, odd)
                    odd[atom] = None
            case Min(args) | Max(args):
                for x in args:
                    _collect(x, odd)
            case Choose(c, a, b):
                _collect_condition(c, odd)
                _collect(a, odd)
                _collect(b, odd)
            case _:
                assert_never(atom)
        if _pieces(atom) > MOST_PIECES:
            odd[atom] = None


def _pieces(atom: Atom) -> int:
    """Pieces that isl's form of the atom may have: nested extrema multiply."""
    match atom:
        case str() | Product():
            return 1
        case FloorDiv(a, _) | Mod(a, _):
            return _sum_pieces(a)
        case Min(args) | Max(args):
            return sum(map(_sum_pieces, args))
        case Choose(_, a, b):
            return 2 * _sum_pieces(a) * _sum_pieces(b)
        case _:
            assert_never(atom)


def _sum_pieces(e: Index) -> int:
    return math.prod(_pieces(a) for a, _ in e.terms)


def _collect_condition(c: Condition, odd: dict[Atom, None]) -> None:
    match c:
        case NonNegative(i) | IsZero(i):
            _collect(i, odd)
        case Not(inner):
            _collect_condition(inner, odd)
        case All(cs) | Any_(cs):
            for x in cs:
                _collect_condition(x, odd)
        case _:
            assert_never(c)
