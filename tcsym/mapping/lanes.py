# SPDX-License-Identifier: Apache-2.0
"""Plans of contractions whose lanes are no columns: iterations of a batch, or rows, side by side.

What does not lie along that loop is turned by blocks in registers: operands, each into a copy that
has a vector for each of its elements, and the result out of such a copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tcsym.index.expr import ONE
from tcsym.ir.bounds import extent
from tcsym.mapping.contraction import Contraction
from tcsym.mapping.nest import Access, Nest, runs_on
from tcsym.mapping.proposal import FEW, PANEL
from tcsym.target.machine import Machine


class Lanes(Struct, frozen=True):
    nest: Nest
    c: Contraction
    lanes: int
    unrolled: str
    machine: Machine

    def texts(self) -> Iterator[tuple[str, str]]:
        """For one loop: along which all lies that it moves, or that moves all, or that of rows."""
        if self._steps(self.nest.result, self.c.columns):
            for v in self._loops():
                yield f"{v} in lanes", self._text(v)
                return

    def _loops(self) -> Iterator[str]:
        other = [v for v in reversed(self.nest.names) if v not in self.c.joined]
        moved = {v: [a for a in self._reads if self.nest.moves(a, v)] for v in other}
        for v, reads in moved.items():
            if 0 < len(reads) < len(self._reads) and not self._copied(v):
                yield v
        yield from (v for v, reads in moved.items() if len(reads) == len(self._reads))

    @property
    def _reads(self) -> tuple[Access, ...]:
        return tuple(a for x in self.c.sums for a in x.reads)

    def _copied(self, v: str) -> list[Access]:
        """Operands that the loop moves, but not along memory."""
        moved = {a.buffer: a for a in self._reads if self.nest.moves(a, v)}
        return [a for a in moved.values() if not self._steps(a, v)]

    def _steps(self, a: Access, v: str) -> bool:
        return self.nest.stride(a, v) == ONE

    def _text(self, v: str) -> str:
        near = self._near(v)
        others = [x for x in self.nest.names if x != v and x not in near]
        if self._copied(v):
            return self._batch(v)
        return self._rows_of_result(v, near, others) if others else self._columns(v)

    # ---- operands where they lie

    def _columns(self, v: str) -> str:
        """Columns are in registers."""
        wide, name = self.c.columns, self.nest.result.buffer
        outer = " ".join(x for x in self.nest.names if x not in (wide, v))
        return f"""
            split {wide} tile reg:{FEW} end=half
            split {v} tile reg:2 lane:{self.lanes} end=half
            {self.unrolled}
            order {outer} {v}.tile {wide}.tile
            stage {name} at {v}.tile order {v}.reg {wide}.tile {wide}.reg {v}.lane as turned"""

    def _rows_of_result(self, v: str, near: tuple[str, ...], others: list[str]) -> str:
        """Other rows are in registers; long rows of the result are turned at once, for as
        many lanes as a line has float32."""
        (*outer, tall), wide, name = others, near[0], self.nest.result.buffer
        vectors = max(1, self.machine.line_bytes * 8 // 32 // self.lanes)
        parts = (f"reg:{vectors}", f"{v}.reg") if vectors > 1 else ("", "")
        dims = f"{tall}.reg {parts[1]} {wide}.tile {v}.lane"
        return f"""
            {f"merge {' '.join(near)}" if len(near) > 1 else ""}
            split {tall} tile reg:{FEW} end=half
            split {wide} panel tile:{PANEL}
            split {v} tile {parts[0]} lane:{self.lanes} end=half
            {self.unrolled}
            order {" ".join(outer)} {tall}.tile {wide}.panel {v}.tile {wide}.tile
            stage {name} at {v}.tile order {dims} as turned"""

    def _near(self, v: str) -> tuple[str, ...]:
        """Columns with loops right around them, along all of which the result runs on."""
        nest, a = self.nest, self.nest.result
        b, first = nest.buffers[a.buffer], nest.names.index(self.c.columns)
        last = first
        while first and nest.names[first - 1] != v:
            x, y = nest.band[first - 1 : first + 1]
            if not runs_on(b, a.subscripts, x.variable, y.variable, extent(y)):
                break
            first -= 1
        return nest.names[first : last + 1]

    # ---- copies of operands

    def _batch(self, v: str) -> str:
        """Copies for all loops inside; those outside move all that is copied."""
        nest, wide, copied = self.nest, self.c.columns, self._copied(v)
        others = [x for x in nest.names if x not in (v, wide)]
        outer = [x for x in others if all(nest.moves(a, x) for a in copied)]
        inner = [*(x for x in others if x not in outer), wide]
        sums = [x.variable for s in self.c.sums for x in s.loops]
        turned = ((a, self._inside(a, [*inner, *sums])) for a in (*copied, nest.result))
        copies = [f"stage {a.buffer} at {v}.tile order {x} {v}.lane as turned" for a, x in turned]
        return f"""
            split {v} tile lane:{self.lanes}
            order {" ".join(outer)} {v}.tile {" ".join(inner)}
            {"; ".join(copies)}
            split {wide} tile reg:{FEW} end=half
            order {" ".join(inner[:-1])} {wide}.tile"""

    def _inside(self, a: Access, loops: list[str]) -> str:
        """Those of the loops that move it, as it lies in memory."""
        moved = [v for v in dict.fromkeys(loops) if self.nest.moves(a, v)]
        place = {v: d for d, s in enumerate(a.subscripts) for v in moved if v in s.variables()}
        return " ".join(sorted(moved, key=lambda v: place[v]))
