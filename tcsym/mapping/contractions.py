# SPDX-License-Identifier: Apache-2.0
"""Plans that are proposed for contractions: panels, operands in place, dot products."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tcsym.index.expr import (
    ONE,
    TRUE,
    Index,
    floordiv,
    index,
    maximum,
)
from tcsym.ir.bounds import extent
from tcsym.mapping.contraction import Contraction, Sum, packs
from tcsym.mapping.nest import Access, Nest
from tcsym.mapping.plan import Refused
from tcsym.mapping.proposal import Proposal, formula_text
from tcsym.target.machine import Machine

FEW = 4  # rows or columns that are no tile
CHAINS = 8  # sums at once, as each addition waits for the one before it


class Contractions(Struct, frozen=True):
    nest: Nest
    c: Contraction
    machine: Machine
    lanes: int

    def proposals(self) -> Iterator[Proposal]:
        self.check()
        if self.c.rows is None:
            yield from self._vectors()
        else:
            yield from self._matrices()

    def check(self) -> None:
        if packs(self.c, self.machine):
            raise Refused("short numbers are packed")
        if not self.machine.vector_bits:
            raise Refused("the target has no vectors")
        for x in self.c.sums:
            for a in (*x.wide, *x.tall):
                self._require_even(a, (*self.nest.names, *(y.variable for y in x.loops)))

    def _require_even(self, a: Access, loops: tuple[str, ...]) -> None:
        for v in loops:
            if self.nest.moves(a, v) and self.nest.stride(a, v) is None:
                raise Refused(f"{a.buffer} does not move evenly with {v}")

    def _vectors(self) -> Iterator[Proposal]:
        """Each column is a sum by itself: of a matrix and a vector."""
        if self.along_wide:
            yield "dots", TRUE, self.dots(0, FEW)
        yield "in place", TRUE, self.in_place(0)

    def _matrices(self) -> Iterator[Proposal]:
        tile, across = self.machine.tile, self._across
        if self.along_wide or self.along_tall:
            jam = max(1, self.machine.vector_registers // (2 * FEW))
            yield "dots", TRUE, self.dots(FEW, jam)
        if across is not None:
            yield f"{across} in lanes", TRUE, self.across(across)
        if self.streamed:
            yield "rows in place", TRUE, self.in_place(FEW)
        yield "panels", TRUE, self.panels(max(1, tile.rows // len(self.c.sums)), tile.vectors)

    # ---- how operands lie

    @property
    def streamed(self) -> bool:
        """Columns lie side by side in what they move."""
        return all(self._steps(a, self.c.columns) for x in self.c.sums for a in x.wide)

    @property
    def _across(self) -> str | None:
        """Another loop of the band than columns along which all lies that it moves."""
        reads = [a for x in self.c.sums for a in (*x.wide, *x.tall)]
        for v in reversed(self.nest.names):
            moved = [a for a in reads if self.nest.moves(a, v)]
            along = all(self._steps(a, v) for a in moved)
            if v not in self.c.merged[0] and along and 0 < len(moved) < len(reads):
                return v
        return None

    @property
    def along_wide(self) -> bool:
        """Terms lie side by side in what columns move."""
        return all(self._steps(a, x.loops[-1].variable) for x in self.c.sums for a in x.wide)

    @property
    def along_tall(self) -> bool:
        return all(self._steps(a, x.loops[-1].variable) for x in self.c.sums for a in x.tall)

    def _steps(self, a: Access, v: str) -> bool:
        return self.nest.stride(a, v) == ONE

    @property
    def merges(self) -> str:
        """Columns of several loops are one, and rows are: of the first's name from there on."""
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
        wide, tall = (x[0] for x in self.c.merged)
        tiles = maximum(8, self._fitting(vectors * self.lanes))
        operands = [(a, x) for x in self.c.sums for a in x.wide]
        moves = [any(self.nest.moves(a, v) for a, _ in operands) for v in self.outer]
        moved, still = ([v for v, x in zip(self.outer, moves) if x is y] for y in (True, False))
        staged = {a.buffer: self._staged(a, x, f"{wide}.panel") for a, x in reversed(operands)}
        return f"""
            {self.merges}
            split {tall} tile reg:{rows} end=half
            split {wide} panel tile:{formula_text(tiles)} reg:{vectors} lane:{self.lanes} end=half
            {self.unrolled}
            order {" ".join(moved)} {wide}.panel {" ".join(still)} {tall}.tile {wide}.tile
            {"; ".join((*staged.values(), *self._evaluated(f"{wide}.panel")))}"""

    @property
    def _panel_bytes(self) -> Index:
        """Of a vector of columns in all panels."""
        wide = sum((x.terms * len(x.wide) for x in self.c.sums), Index())
        return wide * max(1, self.machine.vector_bits // 8)

    def _staged(self, a: Access, x: Sum, at: str) -> str:
        wide = self.c.merged[0]
        turned = not self._steps(a, self.c.columns) and len(wide) == 1
        turned = turned and self._steps(a, x.loops[-1].variable) and not x.is_computed(a)
        sums = [v for v in (y.variable for y in x.loops) if self.nest.moves(a, v)]
        dims = f"{wide[0]}.tile {' '.join(sums)} {wide[0]}.reg {wide[0]}.lane"
        as_ = "as turned" if turned and self.nest.buffers[a.buffer].dtype.bits >= 32 else ""
        return f"stage {a.buffer} at {at} order {dims} {as_}"

    def _evaluated(self, at: str) -> Iterator[str]:
        """Operands of rows that are computed, once for all columns."""
        rows = self.c.merged[1][0]
        for x in self.c.sums:
            for a in x.tall:
                if x.is_computed(a):
                    sums = [v for v in (y.variable for y in x.loops) if self.nest.moves(a, v)]
                    yield f"stage {a.buffer} at {at} order {rows}.tile {rows}.reg {' '.join(sums)}"

    def in_place(self, height: int) -> str:
        """Register tiles over operands where they lie."""
        wide, rows = self.c.merged[0][0], self.c.merged[1][:1]
        left = (self.machine.vector_registers - FEW) // max(1, height)
        vectors = min(FEW if rows else CHAINS, max(self.machine.tile.vectors, left))
        tiles = (f"{wide}.tile", *(f"{v}.tile" for v in rows))
        order = (*self.outer, *tiles)
        return f"""
            {self.merges}
            {f"split {rows[0]} tile reg:{height} end=half" if rows else ""}
            split {wide} tile reg:{vectors} lane:{self.lanes} end=half
            {self.unrolled}
            order {" ".join(order)}"""

    def across(self, v: str) -> str:
        """The loop in lanes, as columns are too few for these; they and rows are in registers."""
        wide, rows = self.c.merged
        tall = "" if v in rows else f"{rows[0]}.tile"
        merged = f"merge {' '.join(wide)}" if len(wide) > 1 else ""
        others = [x for x in self.nest.names if x not in (*wide, v, *(() if v in rows else rows))]
        return f"""
            {merged}
            {f"merge {' '.join(rows)}" if tall and len(rows) > 1 else ""}
            split {wide[0]} tile reg:{FEW} end=half
            {f"split {rows[0]} tile reg:{FEW} end=half" if tall else ""}
            split {v} tile {"" if tall else "reg:2 "}lane:{self.lanes} end=half
            {self.unrolled}
            order {" ".join(others)} {v}.tile {tall} {wide[0]}.tile"""

    def dots(self, height: int, columns: int) -> str:
        """Products along the sum, whose terms are lanes; those of a panel of columns stay near."""
        wide, rows = self.c.merged[0][0], self.c.merged[1][:1]
        vectors = max(1, CHAINS // (max(1, height) * columns))
        sums, copies = list[str](), list[str]()
        for x in self.c.sums:
            k, reg = x.loops[-1].variable, f"reg:{vectors}" if vectors > 1 else ""
            sums.append(f"split {k} tile {reg} lane:{self.lanes} end=peel; combine {k}")
            inside = f"{k}.tile {f'{k}.reg' if reg else ''} {k}.lane"
            copies += self._along(
                x, x.wide, f"at {wide}.panel order {wide}.tile {wide}.reg", inside
            )
            if rows:
                at = f"at {rows[0]}.tile order {rows[0]}.reg"
                copies += self._along(x, x.tall, at, inside)
        order = [f"{wide}.panel", *(f"{v}.tile" for v in rows), f"{wide}.tile"]
        if rows and not self.along_tall:
            order = [order[1], order[0], order[2]]
        return f"""
            {self.merges}
            {f"split {rows[0]} tile reg:{height} end=half" if rows else ""}
            split {wide} panel tile:{formula_text(self._fitting(columns))} reg:{columns} end=half
            {"; ".join(sums)}
            order {" ".join((*self.outer, *order))}
            {"; ".join(copies)}"""

    def _along(self, x: Sum, side: tuple[Access, ...], at: str, inside: str) -> Iterator[str]:
        """Copies of what does not lie along the sum."""
        for a in side:
            if not self._steps(a, x.loops[-1].variable):
                moved = " ".join(y.variable for y in x.loops[:-1] if self.nest.moves(a, y.variable))
                yield f"stage {a.buffer} {at} {moved} {inside}"

    def _fitting(self, columns: int) -> Index:
        """Tiles of so many columns whose operands take half of the second cache."""
        half = index(self.machine.level("l2").bytes // 2)
        one = floordiv(self._panel_bytes * columns, self.lanes)
        return maximum(1, floordiv(half, maximum(1, one)))
