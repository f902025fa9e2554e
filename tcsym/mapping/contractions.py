# SPDX-License-Identifier: Apache-2.0
"""Plans that are proposed for contractions: panels, operands in place, dot products."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tcsym.index.expr import (
    ONE,
    TRUE,
    Condition,
    Index,
    all_of,
    floordiv,
    ge,
    index,
    maximum,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.mapping.contraction import Contraction, Sum, terms
from tcsym.mapping.nest import Access, Nest
from tcsym.mapping.proposal import Proposal, formula_text
from tcsym.target.machine import Machine

FEW = 4  # rows or columns that are no tile
CHAINS = 8  # sums at once, as each addition waits for the one before it
LONG = 4  # vectors of terms that pay for adding lanes


class Contractions(Struct, frozen=True):
    nest: Nest
    c: Contraction
    machine: Machine
    lanes: int

    def proposals(self) -> Iterator[Proposal]:
        if self.c.rows is None:
            yield from self._vectors()
        elif self.c.is_window:
            rows = self.machine.tile.rows
            yield (
                "windows in place",
                ge(3 * rows - 1, self.length(self.c.rows)),
                self.in_place(rows),
            )
            yield "panels", TRUE, self.panels(rows, self.machine.tile.vectors)
        else:
            yield from self._matrices()

    def _vectors(self) -> Iterator[Proposal]:
        """Each column is a sum by itself: of a matrix and a vector."""
        if self.along_wide:
            yield "dots", TRUE, self.dots(0, FEW)
        yield "in place", TRUE, self.in_place(0)

    def _matrices(self) -> Iterator[Proposal]:
        tile = self.machine.tile
        m, n = (product_of(map(self.length, x)) for x in reversed(self.c.merged))
        long = all_of(ge(terms(x), LONG * self.lanes) for x in self.c.sums)
        if self.along_tall and self.along_wide:
            yield "dots of a row", all_of((ge(1, m), long)), self.dots(1, FEW)
            yield "dots of few rows", all_of((ge(tile.rows, m), long)), self.dots(FEW, FEW // 2)
        if self.along_tall:
            yield "dots of a column", all_of((ge(1, n), long)), self.dots(FEW, 1)
            yield "dots of few columns", all_of((ge(FEW, n), long)), self.dots(FEW // 2, FEW)
        elif self.rows_lie_along:
            yield "rows in lanes", self._few_columns(m, n), self.exchanged()
        if self.streamed:
            for height in (1, 2):
                yield f"{height} rows in place", ge(height, m), self.in_place(height)
            yield "few rows in place", ge(2 * tile.rows - 1, m), self.in_place(FEW)
        yield "panels of few columns", ge(self.lanes, n), self.panels(2 * tile.rows, 1)
        yield "panels", TRUE, self.panels(tile.rows, tile.vectors)

    def _few_columns(self, m: Index, n: Index) -> Condition:
        return all_of((ge(self.lanes // 2, n), ge(m, n + 1)))

    # ---- how operands lie

    def length(self, v: str) -> Index:
        return next(extent(x) for x in self.nest.band if x.variable == v)

    @property
    def streamed(self) -> bool:
        """Columns lie side by side in what they move."""
        return all(self._steps(a, self.c.columns) for x in self.c.sums for a in x.wide)

    @property
    def rows_lie_along(self) -> bool:
        rows = self.c.rows or ""
        return all(self._steps(a, rows) for x in self.c.sums for a in x.tall)

    @property
    def along_wide(self) -> bool:
        """Terms lie side by side in what columns move."""
        return all(self._steps(a, x.loops[-1].variable) for x in self.c.sums for a in x.wide)

    @property
    def along_tall(self) -> bool:
        return all(self._steps(a, x.loops[-1].variable) for x in self.c.sums for a in x.tall)

    def _steps(self, a: Access, v: str) -> bool:
        return self.nest.stride(a, v) == ONE

    # ---- plans

    @property
    def merges(self) -> str:
        """Columns of several loops are one, and rows are: the plan goes on with the first's name."""
        wide, tall = self.c.merged
        return "; ".join(f"merge {' '.join(x)}" for x in (tall, wide) if len(x) > 1)

    @property
    def outer(self) -> tuple[str, ...]:
        inside = {v for x in self.c.merged for v in x}
        return tuple(v for v in self.nest.names if v not in inside)

    @property
    def unrolled(self) -> str:
        """The innermost sums that are longer than a term, and what is inside of them."""
        return "; ".join(x for s in self.c.sums for x in [self._unrolled(s)] if x)

    def _unrolled(self, s: Sum) -> str:
        for x in reversed(s.loops):
            n = extent(x).as_int()
            if n is None or n > 2 * FEW:
                return f"split {x.variable} unroll:{FEW}"
            if n != 1:
                return f"split {x.variable} unroll:{n}"
        return ""

    def panels(self, rows: int, vectors: int) -> str:
        """Register tiles over panels that fit half of the second cache."""
        nest, c = self.nest, self.c
        wide, tall = (x[0] for x in c.merged)
        half = self.machine.level("l2").bytes // 2
        tiles = maximum(8, floordiv(index(half), maximum(1, self._panel_bytes * vectors)))
        operands = [(a, x) for x in c.sums for a in x.wide]
        moved = [v for v in self.outer if any(nest.moves(a, v) for a, _ in operands)]
        still = [v for v in self.outer if v not in moved]
        staged = {a.buffer: self._staged(a, x, f"{wide}.panel") for a, x in reversed(operands)}
        return f"""
            {self.merges}
            split {tall} tile reg:{rows} end=half
            split {wide} panel tile:{formula_text(tiles)} reg:{vectors} lane:{self.lanes} end=half
            {self.unrolled}
            order {" ".join(moved)} {wide}.panel {" ".join(still)} {tall}.tile {wide}.tile
            {"; ".join(staged.values())}"""

    @property
    def _panel_bytes(self) -> Index:
        """Of a vector of columns in all panels."""
        wide = sum((terms(x) * len(x.wide) for x in self.c.sums), Index())
        return wide * max(1, self.machine.vector_bits // 8)

    def _staged(self, a: Access, x: Sum, at: str) -> str:
        wide = self.c.merged[0]
        sums = [y.variable for y in x.loops if self.nest.moves(a, y.variable)]
        turned = not self._steps(a, self.c.columns) and len(wide) == 1
        turned = turned and bool(sums) and self._steps(a, sums[-1])
        dims = f"{wide[0]}.tile {' '.join(sums)} {wide[0]}.reg {wide[0]}.lane"
        as_ = "as turned" if turned and self.nest.buffers[a.buffer].dtype.bits >= 32 else ""
        return f"stage {a.buffer} at {at} order {dims} {as_}"

    def in_place(self, height: int) -> str:
        """Register tiles over operands where they lie."""
        wide, rows = self.c.merged[0][0], self.c.merged[1][:1]
        most = self.machine.vector_registers // 2
        vectors = max(self.machine.tile.vectors, min(CHAINS, most // max(1, height)))
        return f"""
            {self.merges}
            {f"split {rows[0]} tile reg:{height} end=half" if rows else ""}
            split {wide} tile reg:{vectors} lane:{self.lanes} end=half
            {self.unrolled}
            order {" ".join(self.outer)} {f"{rows[0]}.tile" if rows else ""} {wide}.tile"""

    def exchanged(self) -> str:
        """Rows in lanes where they lie, as columns are too few for these."""
        wide, rows = (x[0] for x in self.c.merged)
        return f"""
            {self.merges}
            split {wide} tile reg:{FEW} end=half
            split {rows} tile reg:2 lane:{self.lanes} end=half
            {self.unrolled}
            order {" ".join(self.outer)} {rows}.tile {wide}.tile"""

    def dots(self, height: int, columns: int) -> str:
        """Products along the sum, whose terms are lanes."""
        wide, rows = self.c.merged[0][0], self.c.merged[1][:1]
        vectors = max(1, CHAINS // (max(1, height) * columns))
        reg = f"reg:{vectors}" if vectors > 1 else ""
        sums, copies = list[str](), list[str]()
        for x in self.c.sums:
            k = x.loops[-1].variable
            sums.append(f"split {k} tile {reg} lane:{self.lanes} end=peel; combine {k}")
            others = [y.variable for y in x.loops[:-1]]
            dims = " ".join((f"{wide}.reg", *others, f"{k}.tile", f"{k}.reg" if reg else ""))
            at = f"at {wide}.tile order {dims} {k}.lane"
            copies += [f"stage {a.buffer} {at}" for a in x.wide if not self._steps(a, k)]
        return f"""
            {self.merges}
            {f"split {rows[0]} tile reg:{height}" if rows else ""}
            split {wide} tile reg:{columns}
            {"; ".join(sums)}
            order {" ".join(self.outer)} {wide}.tile {f"{rows[0]}.tile" if rows else ""}
            {"; ".join(copies)}"""
