# SPDX-License-Identifier: Apache-2.0
"""Plans that are proposed for windows: sums whose terms neighbouring results share.

Convolutions, pooling, stencils with sums. Where rows share what windows read, as channels of a
convolution do, they are contractions: over panels, or in place. Other windows have nothing to be
shared but what neighbours read: tiles of a few rows load it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Select
from tcsym.index.expr import ONE, TRUE, ZERO, var
from tcsym.index.linear import linear_coefficient
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Loop, Update
from tcsym.ir.traverse import loads, subvalues
from tcsym.mapping.contraction import Contraction, Sum
from tcsym.mapping.contractions import Contractions
from tcsym.mapping.nest import Access, Nest, runs_on, sinks
from tcsym.mapping.plan import Refused
from tcsym.mapping.proposal import FEW, UNROLL, Proposal, merged_text
from tcsym.mapping.rows import is_window
from tcsym.target.machine import Machine

COMMON = 3  # points of a side of the commonest window
MOST_WINDOW_POINTS = 32  # of all rows of a tile, that are one code
MOST_SUMS = 9  # registers for sums, beside those of operands


def has_windows(nest: Nest, c: Contraction | None) -> bool:
    """Sums along windows that slide along columns, or along any loop if no rows share these."""
    if c is not None and c.rows is not None:
        return c.is_window
    sliding = [x for x in nest.inner if x.order == "reduction" and _slides(nest, x)]
    own = (is_window(nest, s, a) for s in nest.statements for a in s.accesses[1:])
    return bool(sliding) and (len(sliding) > 1 or any(own))


def is_pooling(nest: Nest) -> bool:
    """Terms are nothing but what windows read, so that those of each side have a sum of their
    own."""
    updates = [s.node for s in nest.statements if isinstance(s.node, Update)]
    return all(len(loads(x.value)) == 1 for x in updates)


def window_facts(nest: Nest) -> Iterator[dict[str, int]]:
    """Sizes of windows as numbers: of one point, which are no windows, and of the commonest."""
    sizes = [extent(x) for x in nest.inner if _slides(nest, x)]
    names = [next(iter(e.variables())) for e in sizes if e in [var(v) for v in nest.sizes]]
    if names and len(names) == len(sizes):
        for n in (1, COMMON):
            yield dict.fromkeys(names, n)


def _slides(nest: Nest, x: Loop) -> bool:
    """A place moves with the loop and with one of the band."""
    places = (i for s in nest.statements for a in s.accesses[1:] for i in a.subscripts)
    return any(x.variable in i.variables() and i.variables() & {*nest.names} for i in places)


def slides_along(nest: Nest, v: str, *inner: str) -> bool:
    """A place moves with the loop of the band and with a sum, or with one of these."""
    sums = {*inner} or {x.variable for x in nest.inner}
    places = (i for s in nest.statements for a in s.accesses[1:] for i in a.subscripts)
    return any(v in i.variables() and i.variables() & sums for i in places)


def hang_over_edges(nest: Nest) -> bool:
    """Some elements that windows read are behind conditions."""
    sums = [s.node.value for s in nest.statements if isinstance(s.node, Update)]
    return any(isinstance(v, Select) and loads(v) for x in sums for v in subvalues(x))


def windows(nest: Nest, c: Contraction | None, machine: Machine, lanes: int) -> Iterator[Proposal]:
    """The plans of a nest that has windows."""
    if c is not None and c.rows is not None:
        yield from _Convolutions(Contractions(nest, c, machine, lanes)).proposals()
    elif lanes == 1:
        yield "as they are", TRUE, f"order {' '.join(nest.names)}"
    else:
        yield from _Windows(nest, machine, lanes).proposals()


class _Convolutions(Struct, frozen=True):
    """Rows share what columns read."""

    c: Contractions

    def proposals(self) -> Iterator[Proposal]:
        c, tile = self._in_order, self.c.machine.tile
        c.check()
        if c.has_neighbours:
            raise Refused("columns read several elements of one operand")
        place = replace(c, c=replace(c.c, joined=(c.c.columns,)))
        ordered = self._ordered(c)
        if c.lanes > 1:
            yield "rows in lanes", TRUE, "\n".join((ordered, self._rows_in_lanes(c)))
        for name, x in (("panels", c), ("panels of rows", place)):
            panels = x.panels(x.rows_of_tile, tile.vectors)
            yield name, TRUE, "\n".join((ordered, panels, self._one_sum(c)))
        if c.streamed:
            for name, n in (("in place", FEW), ("rows in place", tile.rows)):
                yield name, TRUE, "\n".join((ordered, place.in_place(n)))
        if c.lanes > 1 and not c.adds_apart:  # products take the registers of image rows
            yield from _Windows(c.nest, c.machine, c.lanes).image_rows(c.c.columns)

    def _rows_in_lanes(self, c: Contractions) -> str:
        """Windows of few columns are registers, for which a copy has rows side by side: so with
        the gradient of weights, whose sums are long."""
        nest, (rows,), registers = self.c.nest, c.rows, dict[str, int]()
        for v in (c.c.columns, *(x for x in reversed(nest.names) if slides_along(nest, x))):
            n = extent(nest.band[nest.names.index(v)]).as_int() or FEW
            if v != rows and n * prod(registers.values()) <= MOST_SUMS:
                registers.setdefault(v, n)
        tiles = (f"{v}.tile" if v in registers else v for v in nest.names if v != rows)
        outer = [v for v in nest.names if v not in (rows, *registers)]
        operands = {
            a: " ".join(v for v in (*outer, *(y.variable for y in x.loops)) if nest.moves(a, v))
            for x in c.c.sums
            for a in x.tall
            if nest.moves(a, rows)
        }
        copies = (
            f"stage {a.buffer} at {rows}.tile order {moved} {rows}.lane as turned"
            for a, moved in operands.items()
        )
        return f"""
            split {rows} tile lane:{c.lanes}
            {"; ".join(f"split {v} tile reg:{n}" for v, n in registers.items())}
            order {rows}.tile {" ".join(tiles)}
            {"; ".join(copies)}"""

    @property
    def _in_order(self) -> Contractions:
        """Terms one after the other as what rows move lies in memory."""
        sums = tuple(replace(x, loops=self._along(x)) for x in self.c.c.sums)
        return replace(self.c, c=replace(self.c.c, sums=sums))

    def _along(self, s: Sum) -> tuple[Loop, ...]:
        known = [x.variable for x in s.loops]
        ranges = frozenset[str]().union(*(extent(x).variables() for x in s.loops))
        if ranges & {*known} or not s.tall:
            return s.loops
        places = s.tall[0].subscripts

        def far(x: Loop) -> tuple[int, int, int]:
            d = next((d for d, i in enumerate(places) if x.variable in i.variables()), -1)
            step = ZERO if d < 0 else linear_coefficient(places[d], x.variable) or ZERO
            return d, -len(step.variables()), -(step.as_int() or 0)

        return tuple(sorted(s.loops, key=far))

    def _ordered(self, c: Contractions) -> str:
        pairs = zip(self.c.c.sums, c.c.sums, strict=True)
        new = (y.loops for x, y in pairs if x.loops != y.loops)
        return "; ".join(f"order {' '.join(x.variable for x in loops)}" for loops in new)

    def _one_sum(self, c: Contractions) -> str:
        """Terms of a panel are those of one loop, as far as they follow one another in rows."""
        return "; ".join(x for s in c.c.sums for x in [self._merged(s)] if x)

    def _merged(self, s: Sum) -> str:
        along = [s.loops[-1]]
        for x in reversed(s.loops[:-1]):
            if not all(self._runs_on(a, x, along[0]) for a in s.tall):
                break
            along.insert(0, x)
        names = [x.variable for x in along]
        text = f"{merged_text(names)}; split {names[0]} unroll:{UNROLL}"
        return text if len(names) > 1 else ""

    def _runs_on(self, a: Access, outer: Loop, inner: Loop) -> bool:
        b = self.c.nest.buffers[a.buffer]
        return runs_on(b, a.subscripts, outer.variable, inner.variable, extent(inner))


class _Windows(Struct, frozen=True):
    """Only neighbours share what windows read."""

    nest: Nest
    machine: Machine
    lanes: int

    def proposals(self) -> Iterator[Proposal]:
        along = [v for v in self.nest.names if self.nest.stride(self.nest.result, v) == ONE]
        if len(along) != 1:
            raise Refused("no loop moves results element by element")
        if is_pooling(self.nest):
            yield from self._sides(along[0])
        yield "vectors", TRUE, self._tiles(along[0], None, FEW, self.lanes)
        yield from self.image_rows(along[0])
        yield from self._in_lanes(along[0])

    def _in_lanes(self, columns: str) -> Iterator[Proposal]:
        """Images in lanes, whose results are turned: where rows of one fill no vector."""
        names, result = self.nest.names, self.nest.result
        still = [v for v in names if v != columns and not slides_along(self.nest, v)]
        bits = self.nest.buffers[result.buffer].dtype.bits
        moved = all(self.nest.moves(result, v) for v in names)
        if not still or not moved or bits < 32 or sinks(self.nest.body, frozenset(still[-1:])):
            return
        images, inside = still[-1], names[names.index(still[-1]) + 1 :]
        order = " ".join(f"{v}.tile" if v == images else v for v in names)
        turned = f"at {images}.tile order {' '.join(inside)} {images}.lane as turned"
        if columns in inside:
            text = f"split {images} tile lane:{self.lanes}; order {order}; {self._unrolled}"
            yield "images in lanes", TRUE, f"{text}\nstage {result.buffer} {turned}"

    def image_rows(self, v: str) -> Iterator[Proposal]:
        """Tiles of several rows and of columns `v`, if windows slide along these rows."""
        rows = self._rows(v)
        if rows is None:
            return
        yield "rows", TRUE, self._tiles(v, rows, 1, self.lanes)
        yield "rows of two vectors", TRUE, self._tiles(v, rows, 2, self.lanes)
        if self.lanes > 2:
            yield "rows of half vectors", TRUE, self._tiles(v, rows, 1, self.lanes // 2)

    def _sides(self, columns: str) -> Iterator[Proposal]:
        """Sums along one side of windows, which all windows of a row share, then along the other:
        of several rows before any needs them."""
        names, nest = self.nest.names, self.nest
        sliding = [v for v in reversed(names) if slides_along(nest, v)]
        if len(sliding) < 2 or len(nest.inner) < 2:
            return
        (row, rows, *_), lane = sliding, f"lane:{self.lanes}"
        inside = names[names.index(rows) + 1 :]
        across = [x.variable for x in nest.inner if slides_along(nest, row, x.variable)]
        if len(across) != 1 or row not in inside or columns not in inside:
            return
        parts = (f"{v}.parts.tile" if v == columns else f"{v}.parts" for v in inside)
        then = (f"{v}.tile" if v == columns else v for v in inside)
        yield (
            "one side after the other",
            TRUE,
            f"""
            split {rows} tile row:{FEW}
            combine {across[0]} at {rows}.row
            split {rows}.row.parts tile reg:{FEW}
            split {columns}.parts tile {lane}
            split {columns} tile {lane} end=peel
            {"; ".join(filter(None, (self._copies(x) for x in nest.inner)))}
            order {rows}.row.parts.tile {" ".join(parts)}
            order {rows}.row {" ".join(then)}""",
        )

    def _copies(self, x: Loop) -> str:
        """A side of few known points is one code."""
        n = extent(x).as_int() or 0
        return f"split {x.variable} tile reg:{n}" if 1 < n <= MOST_WINDOW_POINTS else ""

    def _rows(self, columns: str) -> str | None:
        """A loop of the band beside columns along which windows slide."""
        others = (v for v in reversed(self.nest.names) if v != columns)
        return next((v for v in others if slides_along(self.nest, v)), None)

    def _tiles(self, columns: str, rows: str | None, vectors: int, lanes: int) -> str:
        """Register tiles over what windows read, where it lies."""
        outer = [x for x in self.nest.names if x not in (columns, rows)]
        tall = [] if rows is None else [f"{rows}.tile"]
        registers = f"reg:{vectors}" if vectors > 1 else ""
        return f"""
            {f"split {rows} tile reg:{FEW} end=overlap" if rows else ""}
            split {columns} tile {registers} lane:{lanes} end=overlap
            {self._unrolled}
            order {" ".join((*outer, *tall, f"{columns}.tile"))}"""

    @property
    def _unrolled(self) -> str:
        """Windows of few known points are one code."""
        out, n = list[str](), 1
        for x in reversed(self.nest.inner):
            points = extent(x).as_int()
            if points is None or n * points > MOST_WINDOW_POINTS:
                break
            n *= points
            if points > 1:
                out.append(f"split {x.variable} tile reg:{points}")
        return "; ".join(out)
