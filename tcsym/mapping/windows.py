# SPDX-License-Identifier: Apache-2.0
"""Plans that are proposed for windows: sums whose terms neighbouring results share.

Convolutions, pooling, stencils with sums. Their operands are read where they lie, as panels would
have an element for each window that it is in; rows of a tile share what they load.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Select
from tcsym.index.expr import ONE, TRUE, Index, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Loop, Update
from tcsym.ir.traverse import loads, subvalues
from tcsym.mapping.contraction import Contraction
from tcsym.mapping.contractions import FEW, Contractions
from tcsym.mapping.nest import Access, Nest, runs_on
from tcsym.mapping.plan import Refused
from tcsym.mapping.proposal import Proposal
from tcsym.target.machine import Machine

COMMON = 3  # points of a window
MOST_TERMS = 32  # that are one code


def window_facts(nest: Nest) -> Iterator[dict[str, int]]:
    """Sizes of windows as numbers: of one point, which are no windows, and of the commonest."""
    sizes = [extent(x) for x in nest.inner if _slides(nest, x)]
    names = [next(iter(e.variables())) for e in sizes if e in [var(v) for v in nest.sizes]]
    if names and len(names) == len(sizes):
        for n in (1, COMMON):
            yield dict.fromkeys(names, n)


def has_windows(nest: Nest, c: Contraction | None) -> bool:
    """Sums along windows that slide along columns, or along any loop if nothing is shared."""
    if c is not None and c.rows is not None:
        return c.is_window
    return any(_slides(nest, x) for x in nest.inner if x.order == "reduction")


def _slides(nest: Nest, x: Loop) -> bool:
    """A subscript moves with the loop and with one of the band."""
    places = (i for s in nest.statements for a in s.accesses[1:] for i in a.subscripts)
    return any(x.variable in i.variables() and i.variables() & {*nest.names} for i in places)


def windows(nest: Nest, c: Contraction | None, machine: Machine, lanes: int) -> Iterator[Proposal]:
    """The plans of a nest that has windows."""
    for s in nest.statements:
        if any(isinstance(v, Select) and loads(v) for v in subvalues(s.node.value)) and isinstance(s.node, Update):
            raise Refused("windows hang over an edge")
    along = [v for v in nest.names if nest.stride(nest.result, v) == ONE]
    if len(along) != 1 or not machine.vector_bits:
        raise Refused("no loop moves results element by element")
    if c is not None and c.rows is not None:
        yield from _Convolutions(Contractions(nest, c, machine, lanes)).proposals()
    else:
        yield from Windows(nest, machine, lanes, along[0]).proposals()


class _Convolutions(Struct, frozen=True):
    """Rows share what columns read."""

    c: Contractions

    def proposals(self) -> Iterator[Proposal]:
        c, tile = self.c, self.c.machine.tile
        yield "panels", TRUE, c.panels(tile.rows, tile.vectors) + self._terms
        own = replace(c.c, merged=((c.c.columns,), c.c.merged[1]))  # images are not one row
        place = replace(c, c=own)
        yield "in place", TRUE, place.in_place(FEW)
        yield "rows in place", TRUE, place.in_place(tile.rows)

    @property
    def _terms(self) -> str:
        """Terms of a panel are one loop: they lie one after the other in what rows read, too."""
        out = list[str]()
        for x in self.c.c.sums:
            along = [x.loops[-1].variable]
            for outer, inner in zip(x.loops[-2::-1], x.loops[:0:-1], strict=True):
                if not all(self._runs_on(a, outer, inner) for a in x.tall):
                    break
                along.insert(0, outer.variable)
            if len(along) > 1:
                out.append(f"merge {' '.join(along)}; split {along[0]} unroll:{FEW}")
        return "\n" + "; ".join(out)

    def _runs_on(self, a: Access, outer: Loop, inner: Loop) -> bool:
        b = self.c.nest.buffers[a.buffer]
        return runs_on(b, a.subscripts, outer.variable, inner.variable, extent(inner))


class Windows(Struct, frozen=True):
    """columns: the loop of the band along which results lie."""

    nest: Nest
    machine: Machine
    lanes: int
    columns: str

    def proposals(self) -> Iterator[Proposal]:
        yield "vectors", TRUE, self.tiles(None, 1, FEW, self.lanes)
        if self.rows is not None:
            yield "rows", TRUE, self.tiles(self.rows, FEW, 1, self.lanes)
            yield "wide rows", TRUE, self.tiles(self.rows, FEW, 2, self.lanes)
            if self.lanes * 32 >= 256:
                yield "narrow rows", TRUE, self.tiles(self.rows, FEW, 1, self.lanes // 2)

    @property
    def rows(self) -> str | None:
        """A loop of the band that slides as columns do, or shares weights."""
        for v in reversed(self.nest.names):
            if v != self.columns and any(
                v in i.variables() and i.variables() & {x.variable for x in self.nest.inner}
                for s in self.nest.statements
                for a in s.accesses[1:]
                for i in a.subscripts
            ):
                return v
        return None

    def tiles(self, rows: str | None, height: int, vectors: int, lanes: int) -> str:
        """Register tiles over what windows read, where it lies."""
        v, outer = self.columns, [x for x in self.nest.names if x not in (self.columns, rows)]
        tall = [] if rows is None else [f"{rows}.tile"]
        return f"""
            {f"split {rows} tile reg:{height} end=overlap" if rows else ""}
            split {v} tile {f"reg:{vectors}" if vectors > 1 else ""} lane:{lanes} end=overlap
            {self.unrolled}
            order {" ".join((*outer, *tall, f"{v}.tile"))}"""

    @property
    def unrolled(self) -> str:
        """Windows of few known points are one code."""
        out, n = list[str](), 1
        for x in reversed(self.nest.inner):
            points = extent(x).as_int()
            if points is None or n * points > MOST_TERMS:
                break
            n *= points
            if points > 1:
                out.append(f"split {x.variable} tile reg:{points}")
        return "; ".join(out)
