"""Parts of index expressions that are the same in all of a loop: what a task is told, not computes.

Tile sizes and chunk lengths are formulas in sizes that occur inside others again and again. Each is
computed once, where the tasks are launched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from tcsym.codegen.index_code import atom_variables
from tcsym.index import (
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
)

_LEAST_LINES = 4  # to pass a number takes as many


def shared_formulas(expressions: Iterable[Index], outside: frozenset[str]) -> tuple[Atom, ...]:
    """Largest atoms that use variables of `outside` only and take several lines to compute."""
    found: dict[Atom, None] = {}
    for e in dict.fromkeys(expressions):
        _collect(e, outside, found)
    return tuple(found)


def _collect(e: Index, outside: frozenset[str], found: dict[Atom, None]) -> None:
    for atom, _ in e.terms:
        if isinstance(atom, str) or atom in found:
            continue
        if atom_variables(atom) <= outside:
            if _lines(atom) >= _LEAST_LINES:
                found[atom] = None
        elif isinstance(atom, Product):
            _collect(Index(tuple([(f, 1) for f in atom.factors])), outside, found)
        else:
            for part in _parts(atom):
                _collect(part, outside, found)


def _lines(atom: Atom) -> int:
    """About as many lines of code as it takes."""
    if isinstance(atom, str):
        return 0
    if isinstance(atom, Product):
        return len(atom.factors) - 1 + sum(map(_lines, atom.factors))
    parts = _parts(atom)
    terms = [t for part in parts for t in part.terms]
    return (
        len(parts)
        - 1
        + sum(bool(p.terms and p.constant) for p in parts)
        + sum(_lines(a) + (c != 1) for a, c in terms)
    )


def _parts(atom: FloorDiv | Mod | Min | Max | Choose) -> tuple[Index, ...]:
    match atom:
        case FloorDiv(a, b) | Mod(a, b):
            return a, b
        case Min(args) | Max(args):
            return args
        case Choose(c, a, b):
            return (*_compared(c), a, b)
        case _:
            assert_never(atom)


def _compared(c: Condition) -> tuple[Index, ...]:
    match c:
        case NonNegative(i) | IsZero(i):
            return (i,)
        case Not(inner):
            return _compared(inner)
        case All(cs) | Any_(cs):
            return tuple(i for x in cs for i in _compared(x))
        case _:
            assert_never(c)
