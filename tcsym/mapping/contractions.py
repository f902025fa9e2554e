# SPDX-License-Identifier: Apache-2.0
"""Plans that are proposed for contractions: panels, operands in place, dot products."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tcsym.index.expr import ONE, TRUE, floordiv, index, maximum
from tcsym.ir.bounds import extent
from tcsym.mapping.nest import Access, Contraction, Nest, runs_on
from tcsym.mapping.proposal import Proposal, formula_text
from tcsym.target.machine import Machine

FEW = 4  # rows or columns that are no tile


class Contractions(Struct, frozen=True):
    nest: Nest
    c: Contraction
    machine: Machine
    lanes: int

    def proposals(self) -> Iterator[Proposal]:
        c, tile = self.c, self.machine.tile
        if c.rows is None:
            yield "in place", TRUE, self.in_place(1)
            return
        if c.is_window:
            yield "windows in place", TRUE, self.in_place(tile.rows)
        elif self.along(c.tall):
            if self.along(c.wide):
                yield "dots of a row", TRUE, self.dots(1, FEW)
                yield "dots of few rows", TRUE, self.dots(FEW, FEW // 2)
            if self.along(c.wide) or self.streamed:
                yield "dots of a column", TRUE, self.dots(FEW, 1)
                yield "dots of few columns", TRUE, self.dots(FEW // 2, FEW)
        if self.streamed and not c.is_window:
            for height in (1, 2):
                yield f"{height} rows in place", TRUE, self.in_place(height)
            yield "few rows in place", TRUE, self.in_place(min(4, tile.rows))
        yield "panels of few columns", TRUE, self.panels(2 * tile.rows, 1)
        yield "panels", TRUE, self.panels(tile.rows, tile.vectors)

    @property
    def streamed(self) -> bool:
        return self.nest.stride(self.c.wide, self.c.columns) == ONE

    @property
    def unrolled(self) -> str:
        """The innermost sum that is longer than one term, and what is inside of it."""
        known = {x.variable: extent(x).as_int() for x in self.nest.inner}
        times = 4
        for v in reversed(self.c.sums):
            if known[v] is None or known[v] > 8:  # type: ignore[operator]
                return f"split {v} unroll:{times}"
            if known[v] != 1:
                return f"split {v} unroll:{known[v]}"
        return ""

    def along(self, operand: Access) -> bool:
        return self.nest.stride(operand, self.c.sums[-1]) == ONE

    @property
    def outer(self) -> tuple[str, ...]:
        return tuple(v for v in self.nest.names if v not in (self.c.rows, self.c.columns))

    def panels(self, rows: int, vectors: int) -> str:
        """Register tiles over panels that fit half of the second cache. Loops around columns, or
        rows, that move the same operand are one with them."""
        c, nest = self.c, self.nest
        terms = index(nest.buffers[c.wide.buffer].dtype.bytes)
        for x in nest.inner:
            terms = terms * extent(x)
        half = self.machine.level("l2").bytes // 2
        tiles = maximum(8, floordiv(index(half), maximum(1, terms * (vectors * self.lanes))))
        wide, tall = self.around(c.columns), self.around(c.rows or "")
        outer = [v for v in self.outer if v not in (wide, tall)]
        moved = " ".join(v for v in outer if nest.moves(c.wide, v))
        still = " ".join(v for v in outer if not nest.moves(c.wide, v))
        as_ = "as turned" if not self.streamed and self.along(c.wide) and not wide else ""
        end = "end=half" if vectors % 2 == 0 else ""
        m, n = tall or c.rows, wide or c.columns
        dims = f"{n}.tile {' '.join(c.sums)} {n}.reg {n}.lane"
        return f"""
            {f"merge {tall} {c.rows}" if tall else ""}
            {f"merge {wide} {c.columns}" if wide else ""}
            split {m} tile reg:{rows} end=half
            split {n} panel tile:{formula_text(tiles)} reg:{vectors} lane:{self.lanes} {end}
            {self.unrolled}
            order {moved} {n}.panel {still} {m}.tile {n}.tile
            stage {c.wide.buffer} at {n}.panel order {dims} {as_}"""

    def around(self, v: str) -> str | None:
        """The loop right around one of rows or columns that is one with it in the result."""
        c, nest, k = self.c, self.nest, self.nest.names.index(v)
        other = nest.names[k - 1] if k else None
        if other is None or other in (c.rows, c.columns):
            return None
        moving, still = (c.wide, c.tall) if v == c.columns else (c.tall, c.wide)
        own = nest.moves(moving, other) and not nest.moves(still, other)
        b = nest.buffers[nest.result.buffer]
        goes_on = runs_on(b, nest.result.subscripts, other, v, extent(nest.band[k]))
        return other if own and goes_on else None

    def in_place(self, height: int) -> str:
        """Register tiles over operands where they lie."""
        c = self.c
        vectors = max(self.machine.tile.vectors, self.machine.vector_registers // 2 // height)
        rows = "" if c.rows is None else f"split {c.rows} tile reg:{height}"
        return f"""
            {rows}
            split {c.columns} tile reg:{vectors} lane:{self.lanes} end=half
            {self.unrolled}
            order {" ".join(self.outer)} {f"{c.rows}.tile" if c.rows else ""} {c.columns}.tile"""

    def dots(self, rows: int, columns: int) -> str:
        """Products along the sum, whose terms are lanes; eight sums at once, as each waits for the
        one before it."""
        c, k = self.c, self.c.sums[-1]
        others = " ".join(c.sums[:-1])
        vectors = 8 // (rows * columns)
        dims = f"{c.columns}.reg {others} {k}.tile" + (f" {k}.reg" if vectors > 1 else "")
        copy = f"stage {c.wide.buffer} at {c.columns}.tile order {dims} {k}.lane"
        return f"""
            split {c.rows} tile reg:{rows}
            split {c.columns} tile reg:{columns}
            split {k} tile {f"reg:{vectors}" if vectors > 1 else ""} lane:{self.lanes} end=peel
            combine {k}
            order {" ".join(self.outer)} {c.columns}.tile {c.rows}.tile
            {"" if self.along(c.wide) else copy}"""
