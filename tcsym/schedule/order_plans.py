# SPDX-License-Identifier: Apache-2.0
"""In which order loops whose iterations differ run, as data: asked before their nests get plans.

As the plans of nests (`plan`), these print in one line and rewrite nothing.
"""

from __future__ import annotations

from msgspec import Struct


class GroupedRows(Struct, frozen=True):
    """Rows that find an operand by an index, sorted by it: a contraction for each index."""

    rows: tuple[str, ...]
    operands: tuple[str, ...]

    def __str__(self) -> str:
        which = f"rows {', '.join(self.rows)} that read the same of {', '.join(self.operands)}"
        return f"inspector/executor: {which} grouped"


class RowsInOrder(Struct, frozen=True):
    """Every row by itself, in the order of the text."""

    def __str__(self) -> str:
        return "each row finds its operands by itself"


RowOrderPlan = GroupedRows | RowsInOrder


class ScatterCopies(Struct, frozen=True):
    """Each thread adds some of the terms of a scatter into a copy, of `most` at most."""

    most: int

    def __str__(self) -> str:
        return f"terms among threads, each with one of at most {self.most} copies of the result"


class ScatterColumns(Struct, frozen=True):
    """Each thread adds all terms of a scatter to columns of its own, `least` of them or more."""

    columns: str
    least: int

    def __str__(self) -> str:
        return f"columns {self.columns} among threads, each goes through all terms"


class ScatterOrder(Struct, frozen=True):
    """One thread adds all terms, in their order."""

    def __str__(self) -> str:
        return "terms in their order, on one thread"


ScatterPlan = ScatterCopies | ScatterColumns | ScatterOrder


class Waves(Struct, frozen=True):
    """Loops in order, with what feeds them, beside each other in tiles of steps; all at once if
    none needs another."""

    scans: tuple[str, ...]
    all_at_once: bool

    def __str__(self) -> str:
        how = "at once" if self.all_at_once else "in waves of tiles of steps"
        return f"steps of {', '.join(self.scans)} side by side, {how}"
