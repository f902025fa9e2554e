# SPDX-License-Identifier: Apache-2.0
"""Plans that are proposed for contractions: panels, operands in place, dot products."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

from msgspec import Struct

from tcsym.index.expr import ONE, TRUE, Index, ceildiv, floordiv, index, maximum
from tcsym.ir.bounds import eliminate, extent
from tcsym.mapping.contraction import Contraction, Sum
from tcsym.mapping.lanes import Lanes
from tcsym.mapping.nest import Access, Nest
from tcsym.mapping.pack import adds_apart, is_run, steps_at_once
from tcsym.mapping.parts import in_parts
from tcsym.mapping.plan import Refused
from tcsym.mapping.proposal import FEW, UNROLL, Proposal, formula_text, merged_text, vectors_text
from tcsym.target.machine import Machine


def dots_at_once(machine: Machine) -> int:
    """Rows, and columns, of products along the sum whose sums and operands are registers."""
    return isqrt(machine.vector_registers + 1) - 1


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
        for x in self.c.sums:
            for a in (*x.wide, *x.tall):
                for v in (*self.nest.names, *x.names):
                    if self.nest.stride(a, v) is None:
                        raise Refused(f"{a.buffer} does not move evenly with {v}")

    @property
    def has_neighbours(self) -> bool:
        """Columns read several elements of one operand, as in windows."""
        return any(len({a.buffer for a in x.wide}) < len(x.wide) for x in self.c.sums)

    def _vectors(self) -> Iterator[Proposal]:
        """Each column is a sum by itself: of a matrix and a vector."""
        if self.along_wide and self.lanes > 1:
            yield "dots", TRUE, self.dots(0, FEW)
        yield "in place", TRUE, self.in_place(0)
        yield from self._in_parts("in place", self.in_place(0))

    def _matrices(self) -> Iterator[Proposal]:
        tile = self.machine.tile
        if self.has_neighbours and not self.streamed:
            raise Refused("columns read several elements of one operand, which lie across them")
        if self.has_neighbours:
            yield "rows in place", TRUE, self.in_place(FEW)
            yield "tiles in place", TRUE, self.in_place(tile.rows)
            return
        if self.lanes > 1:
            yield from self._in_lanes()
        if self.streamed:
            yield "rows in place", TRUE, self.in_place(FEW)
        height = max(1, self.rows_of_tile // self.c.in_registers)
        vectors = tile.vectors if self.lanes > 1 else FEW // 2
        if {a.buffer for x in self.c.sums for a in x.wide} <= self.nest.constants:
            yield "panels, made once", TRUE, self.panels(height, vectors, once=True)
            return
        panels = self.panels(height, vectors)
        yield from self._in_parts("panels", panels)
        yield "panels", TRUE, panels

    def _in_lanes(self) -> Iterator[Proposal]:
        """Terms, iterations of a batch, or rows are lanes."""
        if self.along_wide or self.along_tall:
            n = dots_at_once(self.machine)
            yield "dots", TRUE, self.dots(n, n)
        lanes = Lanes(self.nest, self.c, self.lanes, self.unrolled, self.machine)
        for name, text in lanes.texts():
            yield name, TRUE, text

    def _in_parts(self, name: str, text: str) -> Iterator[Proposal]:
        parts = in_parts(self.nest, self.c, text, self.lanes) if self.lanes > 1 else None
        if parts is not None:
            yield f"{name}, sums in parts", TRUE, parts

    @property
    def rows_of_tile(self) -> int:
        """Fewer where another instruction adds products: all of a step are in flight."""
        tile = self.machine.tile
        few = self.machine.vector_registers * 3 // (8 * tile.vectors)
        return min(tile.rows, few) if self.adds_apart else tile.rows

    @property
    def adds_apart(self) -> bool:
        return any(adds_apart(x.update, self.machine) for x in self.c.sums)

    # ---- how operands lie

    @property
    def streamed(self) -> bool:
        """Columns lie side by side in what they move."""
        return all(self._steps(a, self.c.columns) for x in self.c.sums for a in x.wide)

    @property
    def along_wide(self) -> bool:
        """Terms lie side by side in what columns move."""
        return all(self._runs_along(a, x) for x in self.c.sums for a in x.wide)

    @property
    def along_tall(self) -> bool:
        return all(self._runs_along(a, x) for x in self.c.sums for a in x.tall)

    def _runs_along(self, a: Access, x: Sum) -> bool:
        """Terms are lanes, as far as they are the same for all points."""
        last = x.loops[-1]
        return self._steps(a, last.variable) and last.end_variables.isdisjoint(self.nest.names)

    def _steps(self, a: Access, v: str) -> bool:
        return self.nest.stride(a, v) == ONE

    @property
    def rows(self) -> tuple[str, ...]:
        return () if self.c.rows is None else (self.c.rows,)

    @property
    def outer(self) -> tuple[str, ...]:
        return tuple(v for v in self.nest.names if v not in (self.c.columns, *self.rows))

    @property
    def unrolled(self) -> str:
        """The innermost sums that are longer than a term, and what is inside of them."""
        return "; ".join(x for s in self.c.sums for x in [self._unrolled(s)] if x)

    def _packed(self, s: Sum) -> tuple[str, int]:
        """A loop of which one instruction adds several terms, best one along which rows lie, or
        else columns; and how many: 1 if there is none."""
        steps = steps_at_once(s.update, s.loops, self.machine)
        known = [(x.variable, extent(x).as_int()) for x in reversed(s.loops)]
        loops = [v for v, n in known if steps > 1 and (n is None or n >= steps)]
        for side in (s.tall, s.wide, ()):
            for v in loops:
                if all(self._steps(a, v) for a in side):
                    return v, steps
        return s.loops[-1].variable, 1

    def _sums(self, s: Sum, a: Access) -> str:
        """Loops of the sum that move an operand, in the plan's names."""
        packed, steps = self._packed(s)
        moved = [x.variable for x in s.loops if self.nest.moves(a, x.variable)]
        return " ".join(f"{v}.tile" if v == packed and steps > 1 else v for v in moved)

    def _unrolled(self, s: Sum) -> str:
        packed, steps = self._packed(s)
        if steps > 1:
            return f"split {packed} tile pack:{steps}; split {packed}.tile unroll:{UNROLL}"
        for x in reversed(s.loops):
            n = extent(x).as_int()
            if n is None or n > 2 * UNROLL:
                return f"split {x.variable} unroll:{UNROLL}"
            if n != 1:
                return f"split {x.variable} unroll:{n}"
        return ""

    def panels(self, rows: int, vectors: int, once: bool = False) -> str:
        """Register tiles over panels that fit half of the second cache. Columns of several loops
        are one: a copy finds its operand by division once. once: of all columns."""
        joined, tall = self.c.joined, self.c.rows
        wide, tiles = joined[0], self._fitting(vectors * self.lanes)
        operands = [(a, x) for x in self.c.sums for a in x.apart(x.wide)]
        parts = vectors_text(vectors, self.lanes)
        outer = [v for v in self.nest.names if v not in (*joined, tall)]
        moved = [v for v in outer if any(self.nest.moves(a, v) for a, _ in operands)]
        still = [v for v in outer if v not in moved]
        at = "once" if once else f"at {wide}.panel"
        staged = dict[str, str]()
        for a, x in reversed(operands):
            around = [v for v in moved if once and self.nest.moves(a, v)]
            around += [f"{wide}.panel"] if once else []
            staged[a.buffer] = self.staged(a, x, at, around)
        return f"""
            {merged_text(joined)}
            split {tall} tile reg:{rows} end=half
            split {wide} panel tile:{formula_text(tiles)} {parts} end=half
            {self.unrolled}
            order {" ".join(moved)} {wide}.panel {" ".join(still)} {tall}.tile {wide}.tile
            {"; ".join((*staged.values(), *self._evaluated((f"{wide}.panel", *still)[-1])))}"""

    @property
    def _panel_bytes(self) -> Index:
        """Of a vector of columns in all panels."""
        packs = [(x, self._packed(x)[1]) for x in self.c.sums]
        most = [eliminate(x.terms, self.nest.band, True) or ONE for x, _ in packs]
        wide = sum((ceildiv(n * len(x.wide), k) for n, (x, k) in zip(most, packs)), Index())
        return wide * max(1, self.machine.vector_bits // 8)

    def staged(self, a: Access, x: Sum, at: str, around: list[str]) -> str:
        """A copy of vectors of columns, for each iteration of the loops around."""
        wide = self.c.joined
        along = [self._steps(a, y.variable) for y in x.loops]
        turned = any(along) and not self._steps(a, self.c.columns) and not self.c.is_window
        turned = turned and len(wide) == 1 and self.lanes > 1 and not x.is_computed(a)
        tile = f"{wide[0]}.tile {self._sums(x, a)} {wide[0]}.reg"
        lane = (f"{wide[0]}.lane",) if self.lanes > 1 else ()
        dims = " ".join((*around, tile, *lane))
        as_ = "as turned" if turned and self.nest.buffers[a.buffer].dtype.bits >= 32 else ""
        return f"stage {a.buffer} {at} order {dims} {as_}"

    def _evaluated(self, at: str) -> Iterator[str]:
        """Operands of rows that are computed, once for all columns."""
        (rows,) = self.rows
        for x in self.c.sums:
            for a in x.apart(x.tall):
                if self._is_made(x, a):
                    sums, own = self._sums(x, a), f"{rows}.reg"
                    inside = f"{sums} {own}" if self._steps(a, rows) else f"{own} {sums}"
                    dims = f"{rows}.tile {inside}"
                    yield f"stage {a.buffer} at {at} order {dims}"

    def _is_made(self, s: Sum, a: Access) -> bool:
        """More than a load each time that rows need an element, or a pack of these."""
        v, steps = self._packed(s)
        if steps == 1:
            return s.is_computed(a)
        return not (self._steps(a, v) and is_run(s.update, a.buffer, self.machine))

    def in_place(self, height: int) -> str:
        """Register tiles over operands where they lie."""
        joined, rows = self._running_on, self.rows
        wide, registers = joined[0], self.machine.vector_registers
        used = registers // 2 if self.adds_apart else FEW
        left = (registers - used) // max(1, height)
        vectors = min(FEW, max(self.machine.tile.vectors, left))
        tiles = (*(f"{v}.tile" for v in rows), f"{wide}.tile")
        end = "half" if self._has_masks else "peel"
        outer = (v for v in self.outer if v not in joined)
        order = (*outer, *(tiles if end == "peel" else reversed(tiles)))
        return f"""
            {merged_text(joined)}
            {f"split {rows[0]} tile reg:{height} end=half" if rows else ""}
            split {wide} tile {vectors_text(vectors, self.lanes)} end={end}
            {self.unrolled}
            order {" ".join(order)}"""

    @property
    def _running_on(self) -> tuple[str, ...]:
        """Columns, and loops around them, of one row of results and operands."""
        joined, row = self.c.joined, self.nest.running_on(self.c.columns)
        return joined if row[-len(joined) :] == joined else (self.c.columns,)

    @property
    def _has_masks(self) -> bool:
        """Loads of lanes that are there only are instructions."""
        reads = (a.buffer for x in self.c.sums for a in (*x.wide, *x.tall))
        bits = min(self.nest.buffers[b].dtype.bits for b in reads)
        return self.machine.has_masks or bits >= 32

    def dots(self, height: int, columns: int) -> str:
        """Products along the sum, whose terms are lanes; those of a panel of columns stay near."""
        wide, rows = self.c.columns, self.rows
        sums, copies = list[str](), list[str]()
        for x in self.c.sums:
            k = x.loops[-1].variable
            packed, steps = self._packed(x)
            pack = f"pack:{steps}" if steps > 1 and packed == k else ""
            sums.append(f"split {k} tile lane:{self.lanes} {pack} end=peel; combine {k}")
            inside = f"{k}.tile {k}.lane"
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
