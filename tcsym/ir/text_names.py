# SPDX-License-Identifier: Apache-2.0
"""Names for the formulas in sizes that a kernel's text repeats: `$1 = (N + 15)/16`.

Tile sizes and chunk lengths are formulas that occur inside each other; written out, a loop's bound
would take a page. Only texts have such names: the loop IR shares equal expressions anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from tcsym.index.expr import Atom, Index, atom_parts, of_atom, var
from tcsym.index.values import map_atoms, map_condition
from tcsym.ir.loops import Buffer, Kernel
from tcsym.ir.traverse import map_node

_SHORT = 16  # characters: a name would say less


def name_formulas(kernel: Kernel) -> tuple[dict[str, Index], Kernel]:
    """What each name stands for, in terms of sizes and earlier names; and the kernel with names."""
    outside = frozenset((*kernel.sizes, *kernel.launched))
    uses: Counter[Atom] = Counter()  # what is inside an atom comes before it
    _map_expressions(kernel, lambda e: _count(e, uses))
    names: dict[Atom, Index] = {}
    formulas: dict[str, Index] = {}
    for atom, n in uses.items():
        if n < 2 or isinstance(atom, str) or not of_atom(atom).variables() <= outside:
            continue
        formula = map_atoms(of_atom(atom), names.get)
        if len(str(formula)) > _SHORT:
            name = f"${len(formulas) + 1}"
            names[atom], formulas[name] = var(name), formula
    return formulas, _map_expressions(kernel, lambda e: map_atoms(e, names.get))


def _count(e: Index, uses: Counter[Atom]) -> Index:
    for atom, _ in e.terms:
        if atom not in uses and not isinstance(atom, str):
            for part in atom_parts(atom):
                _count(part, uses)
        uses[atom] += 1
    return e


def _map_expressions(kernel: Kernel, f: Callable[[Index], Index]) -> Kernel:
    return replace(
        kernel,
        buffers=tuple(_map_buffer(b, f) for b in kernel.buffers),
        body=map_node(kernel.body, on_index=f),
        left_out=map_condition(kernel.left_out, f),
    )


def _map_buffer(b: Buffer, f: Callable[[Index], Index]) -> Buffer:
    strides = None if b.strides is None else tuple(map(f, b.strides))
    return replace(b, shape=tuple(map(f, b.shape)), strides=strides)
