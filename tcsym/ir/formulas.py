# SPDX-License-Identifier: Apache-2.0
"""Parts of index expressions that are the same in all of a region: it is told them.

Tile sizes and chunk lengths are formulas in sizes that occur inside others again and again. Each is
computed once, where the region is launched.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tcsym.index.expr import Atom, Index, Product, atom_parts, of_atom

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
        if of_atom(atom).variables() <= outside:
            if _lines(atom) >= _LEAST_LINES:
                found[atom] = None
        else:
            for part in atom_parts(atom):
                _collect(part, outside, found)


@lru_cache(maxsize=4096)
def _lines(atom: Atom) -> int:
    """About as many lines of code as it takes."""
    if isinstance(atom, str):
        return 0
    if isinstance(atom, Product):
        return len(atom.factors) - 1 + sum(map(_lines, atom.factors))
    parts = atom_parts(atom)
    terms = [t for part in parts for t in part.terms]
    return (
        len(parts)
        - 1
        + sum(bool(p.terms and p.constant) for p in parts)
        + sum(_lines(a) + (c != 1) for a, c in terms)
    )
