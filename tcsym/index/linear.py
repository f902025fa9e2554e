# SPDX-License-Identifier: Apache-2.0
"""What an index expression is in one of its variables."""

from __future__ import annotations

from tcsym.index.expr import ONE, ZERO, Index, Product, of_atom


def linear_coefficient(e: Index, variable: str) -> Index | None:
    """c with e = c * variable + rest, neither c nor rest using it; None if there is none."""
    total = ZERO
    for atom, c in e.terms:
        single = of_atom(atom)
        if variable not in single.variables():
            continue
        if atom == variable:
            total = total + c
        elif isinstance(atom, Product) and atom.factors.count(variable) == 1:
            rest = ONE
            for f in atom.factors:
                rest = rest if f == variable else rest * of_atom(f)
            if variable in rest.variables():
                return None
            total = total + rest * c
        else:
            return None
    return total
