# SPDX-License-Identifier: Apache-2.0
"""What a proposal is: a name, the sizes it may run for, and a plan as a user would write it."""

from __future__ import annotations

from tcsym.index.expr import Condition, Index, floordiv, var
from tcsym.index.values import substitute
from tcsym.mapping.nest import Nest
from tcsym.target.machine import Machine

FEW = 4  # rows or columns in registers, that are no tile
Proposal = tuple[str, Condition, str]


def lanes(nest: Nest, machine: Machine) -> int:
    """Lanes of a vector of the widest elements that the nest touches."""
    bits = max(nest.buffers[a.buffer].dtype.bits for s in nest.statements for a in s.accesses)
    return machine.lanes(bits)


def vectors_text(n: int, lanes: int) -> str:
    """Parts of a split: vectors in registers, or elements where a target has no vectors."""
    parts = ("reg", n), ("lane", lanes)
    return " ".join(f"{part}:{x}" for part, x in parts if x > 1)


def formula_text(e: Index) -> str:
    """As a plan has it: one word, in sizes."""
    parts = ((q, *q.rpartition("/")) for q in e.variables() if "/" in q)
    sizes = {q: floordiv(var(size), int(step)) for q, size, _, step in parts}
    return str(substitute(e, sizes)).replace(" ", "")
