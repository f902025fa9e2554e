# SPDX-License-Identifier: Apache-2.0
"""Where a search may start: options of this program at near sizes, and of programs like it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tcsym.frontend.program import Program, reads, statements
from tcsym.options import Options
from tcsym.tuning.distribution import distance
from tcsym.tuning.shipped import shipped
from tcsym.tuning.stores import tree_of
from tcsym.tuning.tree import Leaf, Split, Tree

if TYPE_CHECKING:
    from tcsym.tuning.database import Database
    from tcsym.tuning.rows import Tuned

MOST_KNOWN = 8
Values = tuple[int, ...]


def structure_of(program: Program) -> str:
    """Class of like programs: for each statement `parallel+reduced:reads type`, sorted."""
    parts = []
    for s in statements(program.body):
        reduced = sum(r.reduced for r in s.domain)
        n_reads = len(reads(s.value))
        dtype = program.tensor(s.target).dtype.value
        parts.append(f"{len(s.domain) - reduced}+{reduced}:{n_reads} {dtype}")
    return ", ".join(sorted(parts))


def known_options(
    database: Database | None, program: Program, machine: str, sizes: Sequence[Values]
) -> list[Options]:
    """Options worth trying first, at most `MOST_KNOWN`: the program's own, then its class's."""
    from tcsym.tuning.rows import Tuned

    rows: list[Tuned] = []
    if database is not None:
        rows += database.select(Tuned, "program = ?", (program.canonical,))
    rows += shipped(program.canonical)
    rows.sort(key=lambda row: (row.machine != machine, _nearest(row, sizes)))
    if database is not None:
        like = database.select(Tuned, "structure = ?", (structure_of(program),))
        rows += sorted(like, key=lambda row: row.machine != machine)
    found: dict[Options, None] = {}
    for row in rows:
        tree = tree_of(row, len(json.loads(row.measured)[0]))
        found |= dict.fromkeys(_options(tree) if tree is not None else ())
    return list(found)[:MOST_KNOWN]


def _nearest(row: Tuned, sizes: Sequence[Values]) -> float:
    """Distance in factors of two from the sizes to those of a row."""
    measured = json.loads(row.measured)
    return min(
        (distance(a, b) for a in measured for b in sizes),
        default=math.inf,
    )


def _options(tree: Tree) -> list[Options]:
    if isinstance(tree, Leaf):
        return [tree.options]
    assert isinstance(tree, Split)
    return [*_options(tree.then), *_options(tree.orelse)]
