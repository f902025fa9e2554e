# SPDX-License-Identifier: Apache-2.0
"""What a proposal is: a name, the sizes it may run for, and a plan as a user would write it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tcsym.frontend.program import Read
from tcsym.index.expr import Condition, Index, floordiv, var
from tcsym.index.values import substitute
from tcsym.ir.loops import Value
from tcsym.ir.traverse import value_children
from tcsym.mapping.nest import Nest
from tcsym.target.machine import Machine
from tcsym.trees import preorder

FEW = 4  # rows, columns or vectors in registers beside tiles: sums that an addition's cycles hide
SIDE_BY_SIDE = 8  # sums, or chains of values: about as many operations as are under way at once
UNROLL = 4  # terms that are one code: beside these, counting the loop is little
PANEL = 64  # elements of a row that blocks are turned for at a time, which stay in a near cache
Proposal = tuple[str, Condition, str]


def lanes(nest: Nest, machine: Machine) -> int:
    """Lanes of a vector of the widest elements that the nest touches."""
    names = (b for s in nest.statements for b in (s.node.buffer, *_computed(s.node.value)))
    return machine.lanes(max(nest.buffers[b].dtype.bits for b in names))


def _computed(v: Value) -> Iterator[str]:
    """What is read, but for what holds places."""
    for x in preorder(v, lambda x: () if isinstance(x, Read) else value_children(x)):
        if isinstance(x, Read):
            yield x.tensor


def vectors_text(n: int, lanes: int) -> str:
    """Parts of a split: vectors in registers, or elements where a target has no vectors."""
    parts = ("reg", n), ("lane", lanes)
    return " ".join(f"{part}:{x}" for part, x in parts if x > 1)


def merged_text(names: Sequence[str]) -> str:
    """Loops as one, by the name of the outermost."""
    return f"merge {' '.join(names)}" if len(names) > 1 else ""


def formula_text(e: Index) -> str:
    """As a plan has it: one word, in sizes."""
    parts = ((q, *q.rpartition("/")) for q in e.variables() if "/" in q)
    sizes = {q: floordiv(var(size), int(step)) for q, size, _, step in parts}
    return str(substitute(e, sizes)).replace(" ", "")
