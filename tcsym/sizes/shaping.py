# SPDX-License-Identifier: Apache-2.0
"""Which size parameters code is better for as numbers: those that isl knows nothing of as symbols.

A size that multiplies an index, or divides one, makes an access that is not affine; a number in its
place does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.frontend.program import Program, indices_in
from tcsym.index.expr import Atom, FloorDiv, Index, Mod, Product, atom_parts


def shaping_sizes(program: Program) -> tuple[str, ...]:
    """Size parameters that stand in a product, or under a quotient, in the body."""
    given = [p.name for p in program.size_parameters]
    if not given:
        return ()
    found = {name for e in indices_in(program.body) for name in _shaping(e)}
    return tuple(name for name in given if name in found)


def _shaping(e: Index) -> Iterator[str]:
    for atom, _ in e.terms:
        yield from _of_atom(atom)


def _of_atom(atom: Atom) -> Iterator[str]:
    match atom:
        case str():
            return
        case Product(factors):
            yield from (f for f in factors if isinstance(f, str))
            for f in factors:
                yield from _of_atom(f)
        case FloorDiv(_, divisor) | Mod(_, divisor):
            yield from divisor.variables()
            yield from (name for part in atom_parts(atom) for name in _shaping(part))
        case _:
            yield from (name for part in atom_parts(atom) for name in _shaping(part))
