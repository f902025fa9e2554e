# SPDX-License-Identifier: Apache-2.0
"""Plans that are proposed for what is no contraction: maps, rows and columns of sums.

Elements that lie side by side are in the lanes of a vector: of a map, of a row that is summed, or
of all rows where these are columns. Rows of a few elements fill no vector: then several of them
are one, or each has a lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise, permutations
from math import gcd, lcm

from msgspec import Struct

from tcsym.index.expr import (
    ONE,
    TRUE,
    ZERO,
    Condition,
    FloorDiv,
    Index,
    Mod,
    floordiv,
    ge,
    index,
    maximum,
)
from tcsym.index.linear import linear_coefficient
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Loop, Update
from tcsym.mapping.nest import Access, Nest, Statement, is_position, runs_on, sinks
from tcsym.mapping.plan import Refused
from tcsym.mapping.proposal import (
    FEW,
    PANEL,
    SIDE_BY_SIDE,
    Proposal,
    formula_text,
    merged_text,
    vectors_text,
)
from tcsym.mapping.proposal import lanes as lanes_of
from tcsym.mapping.rows_apart import divided_by
from tcsym.mapping.tree import variables_of
from tcsym.target.machine import Machine

COPY_TILES = 512  # that share a copy: beside these, making it is little
FOLDED = 32  # short rows that are one, so that even of one element they fill vectors
HELD = 4  # rows that are copied may fill so great a part of the last cache: a quarter
THREAD_TERMS = 8192  # of a sum, that are work for one thread: 32 KiB of float32


def rows(nest: Nest, machine: Machine) -> Iterator[Proposal]:
    """The plans of a nest, the first that is meant for a size first."""
    p = _Proposals(nest, machine, lanes_of(nest, machine))
    if p.lanes == 1:
        yield from p.parts_of_row()
        yield "as they are", TRUE, f"order {' '.join(nest.names)}"
    elif not nest.inner:
        yield from p.maps()
    elif p.column is not None:
        yield from p.columns()
    else:
        yield from p.rows()


class _Proposals(Struct, frozen=True, dict=True):
    nest: Nest
    machine: Machine
    lanes: int

    @cached_property
    def summed(self) -> tuple[Statement, ...]:
        """Statements in loops inside of the band."""
        return tuple(s for s in self.nest.statements if len(s.around) > len(self.nest.band))

    @cached_property
    def column(self) -> str | None:
        """The innermost loop of the band that moves terms of sums, all element by element."""
        terms = [a for s in self.summed for a in s.accesses[isinstance(s.node, Update) :]]
        for v in reversed(self.nest.names):
            steps = [self.nest.stride(a, v) for a in terms if self.nest.moves(a, v)]
            if steps and all(n == ONE for n in steps) and self._sinks(v):
                return v
        return None

    def _sinks(self, *variables: str) -> bool:
        """Points of these loops may be inside of all others."""
        return sinks(self.nest.body, frozenset(variables)) is None

    def across(self, v: str, statements: tuple[Statement, ...]) -> list[Access]:
        return [
            a
            for s in statements
            for a in s.accesses
            if self.nest.moves(a, v) and self.nest.stride(a, v) != ONE
        ]

    @property
    def row(self) -> Loop:
        """The innermost loop of the band."""
        return self.nest.band[-1]

    # ---- maps

    def maps(self) -> Iterator[Proposal]:
        """Vectors along the result, or along what is read, which is turned into results; rows of
        few columns as one, with copies of what is no row."""
        v = self._along()
        folded = self._folded(v)
        if folded is not None:
            yield folded
        row = self.nest.running_on(v)
        outer = [x for x in self.nest.names if x not in row]
        registers = vectors_text(self._period(v), self.lanes)
        text = f"split {row[0]} tile {registers} end=peel; order {{}} {row[0]}.tile"
        text = "; ".join(filter(None, (merged_text(row), text)))
        if outer and self._has_neighbours(outer[-1]):
            *rest, u = outer
            rows = f"split {u} tile reg:{FEW} end=half; {text}"
            yield "rows that share neighbours", TRUE, rows.format(" ".join((*rest, f"{u}.tile")))
        else:
            yield "vectors", TRUE, text.format(" ".join(outer))
        yield from self._along_reads(v)
        yield from self._turned(v)
        yield from self._turned_once(v)
        yield from self._scattered(v)

    def _period(self, v: str) -> int:
        """Vectors after which lanes read the same places again, farther on: of X(i/3) three."""
        found, atoms = 1, list[FloorDiv | Mod]()
        for s in (s for x in self.nest.statements for a in x.accesses for s in a.subscripts):
            atoms += divided_by(s, v)
        for n in (a.divisor.as_int() for a in atoms):
            found = found if n is None else lcm(found, n // gcd(n, self.lanes))
        return found if found <= FEW else 1

    def _has_neighbours(self, u: str) -> bool:
        """An operand is read at several places that the loop moves, so that rows share elements."""
        reads = {a for s in self.nest.statements for a in s.accesses[1:] if self.nest.moves(a, u)}
        several = len(reads) > len({a.buffer for a in reads})
        return several and self._sinks(u)

    def _along_reads(self, v: str) -> Iterator[Proposal]:
        """Vectors along what lies across the results, which are scattered."""
        across = self.across(v, self.nest.statements)
        for x in reversed(self.nest.names):
            if any(self.nest.stride(a, x) == ONE for a in across) and self._sinks(x):
                order = " ".join(y for y in self.nest.names if y != x)
                text = f"split {x} tile lane:{self.lanes} end=peel; order {order} {x}.tile"
                yield f"vectors along {x}", TRUE, text
                return

    def _along(self) -> str:
        """The loop that moves most of the results element by element, then most of the rest."""
        nest = self.nest
        results = [s.accesses[0] for s in nest.statements]
        reads = [a for s in nest.statements for a in s.accesses[1:]]
        legal = [v for v in reversed(nest.names) if self._sinks(v)]
        if not legal:
            raise Refused(f"ranges move with {nest.names[-1]}")

        def near(accesses: list[Access], v: str) -> int:
            return sum(nest.stride(a, v) == ONE for a in accesses)

        return max(legal, key=lambda v: (near(results, v), near(reads, v)))

    def _turned(self, v: str) -> Iterator[Proposal]:
        """Another loop than that of what lies across it, in panels whose blocks are transposed; of
        short rows the results, too."""
        used = [a for s in self.nest.statements for a in s.accesses if self.nest.lasts(a.buffer)]
        for w, x in permutations((v, *(y for y in reversed(self.nest.names) if y != v)), 2):
            near = {a.buffer: self._side(a) for a in used if self._lies_along(a, x, w)}
            if near and self._sinks(w, x):
                n = max(near.values())
                turned = [b for b, side in near.items() if side == n]
                bits = max(self.nest.buffers[b].dtype.bits for b in turned)
                line = n if w != v else self.machine.line_bytes * 8 // bits
                for lanes in sorted({n, line}):
                    text = self._blocks(w, x, lanes, turned)
                    yield f"blocks of {x} in {lanes} lanes of {w}", TRUE, text

    def _scattered(self, v: str) -> Iterator[Proposal]:
        """Short rows in lanes, where what they read is found one by one anyway."""
        if self.nest.is_found and len(self.nest.names) > 1:
            *outer, u = (x for x in self.nest.names if x != v)
            if self._sinks(u):
                order = " ".join((*outer, f"{u}.tile", v))
                yield "rows in lanes", TRUE, f"split {u} tile lane:{self.lanes}; order {order}"

    def _lies_along(self, a: Access, x: str, w: str) -> bool:
        """It could be transposed in registers, rows of `x` for each of `w`."""
        *rows, last = a.subscripts or (ZERO,)
        moved = [s for s in rows if w in s.variables()]
        one = len(moved) == 1 and linear_coefficient(moved[0], w) == ONE == self.nest.stride(a, x)
        return one and linear_coefficient(last, x) == ONE and w not in last.variables()

    def _side(self, a: Access) -> int:
        return self.machine.block_lanes(self.nest.buffers[a.buffer].dtype.bits)

    def _turned_once(self, v: str) -> Iterator[Proposal]:
        """What other loops leave as it is gets its blocks turned in front of all of these."""
        names = self.nest.names
        for a in dict.fromkeys(a for s in self.nest.statements for a in s.accesses[1:]):
            for x in names:
                moved = {y for y in names if self.nest.moves(a, y)}
                if self._lies_along(a, x, v) and moved == {x, v} and len(names) > 2:
                    order = " ".join((*(y for y in names if y != v), f"{v}.tile"))
                    split = f"split {v} tile lane:{self._side(a)}; order {order}"
                    text = f"{split}; stage {a.buffer} once order {x} {v}.tile {v}.lane as turned"
                    few = self._may_hold(extent(self._loop(x)) * extent(self._loop(v)))
                    yield f"{a.buffer} turned once", few, text

    def _loop(self, v: str) -> Loop:
        return next(x for x in self.nest.band if x.variable == v)

    def _blocks(self, w: str, x: str, n: int, turned: list[str]) -> str:
        outer = [y for y in self.nest.names if y not in (w, x)]
        at = f"at {w}.tile order {x}.tile {w}.lane as turned"
        return "; ".join(
            (
                f"split {x} panel tile:{PANEL}",
                f"split {w} tile lane:{n}",
                f"order {' '.join(outer)} {x}.panel {w}.tile {x}.tile",
                *(f"stage {b} {at}" for b in turned),
            )
        )

    def _folded(self, v: str) -> Proposal | None:
        nest, names = self.nest, self.nest.names
        if len(names) < 2 or v != names[-1] or sinks(nest.body, frozenset(names[-2:])):
            return None
        u, n = names[-2], extent(self.row)
        if n.variables() - nest.sizes:
            return None
        used = [a for s in nest.statements for a in s.accesses]
        apart = [a for a in used if not runs_on(nest.buffers[a.buffer], a.subscripts, u, v, n)]
        if any(nest.moves(a, u) or self._is_written(a.buffer) for a in apart):
            return None
        copies = dict.fromkeys(a.buffer for a in apart if nest.moves(a, v))
        text = "; ".join(
            (
                f"split {u} block panel:{COPY_TILES} tile:{FOLDED}",
                *(f"stage {b} at {u}.block order {u}.tile {v}" for b in copies),
                f"merge {u}.tile {v}",
                f"split {u}.tile vector lane:{self.lanes} end=peel",
            )
        )
        return "short rows as one", self._may_hold(n), text

    def _may_hold(self, n: Index) -> Condition:
        """Copies and sums of several rows of so many elements take no more memory than a cache."""
        bits = max(b.dtype.bits for b in self.nest.buffers.values())
        bytes_ = self.machine.level("l3").bytes // HELD
        return ge(bytes_ // (FOLDED * max(1, bits // 8)), n)

    def _is_written(self, buffer: str) -> bool:
        return any(s.node.buffer == buffer for s in self.nest.statements)

    # ---- columns

    def columns(self) -> Iterator[Proposal]:
        """Vectors of columns, each with its sums."""
        v, names = self.column or self.row.variable, self.nest.names
        others = tuple(x for x in names if x != v)
        order = " ".join((*others, f"{v}.tile"))
        if v == names[-1]:
            yield from self._parts()
        results = [s.accesses[0] for s in self.nest.statements]
        for x in reversed(others):
            lie = {a.buffer for a in results if self._lies_along(a, x, v)}
            turned = [b for b in sorted(lie) if self.nest.lasts(b)]
            if turned and self._sinks(v, x):
                n = self.machine.block_lanes(self.nest.buffers[turned[0]].dtype.bits)
                yield f"sums turned along {x}", TRUE, self._blocks(v, x, n, turned)
        for n in dict.fromkeys((2, max(1, self._columns // 2))):
            text = f"split {v} tile reg:{n} lane:{self.lanes} end=half; order {order}"
            yield f"columns, {n} vectors", TRUE, text
        yield f"columns, {self._columns} vectors", TRUE, self._columns_of(v, others)

    @property
    def _columns(self) -> int:
        """Vectors whose sums are registers together."""
        sums = {s.node.buffer for s in self.summed}
        return max(2, SIDE_BY_SIDE // len(sums))

    def _parts(self) -> Iterator[Proposal]:
        """Sums of every so many rows, as all of these are one row in memory; of long columns for
        parts of them, which are work for threads."""
        nest, v = self.nest, self.row.variable
        if len(nest.inner) != 1 or nest.inner[0].order != "reduction":
            return
        (x,) = nest.inner
        n, length, k = extent(self.row), extent(x), x.variable
        used = [a for s in self.summed for a in s.accesses[1:]]
        whole = all(runs_on(nest.buffers[a.buffer], a.subscripts, k, v, n) for a in used)
        if (n.variables() | length.variables()) - nest.sizes:
            return
        few = self._may_hold(n)
        part = f"split {k} part row:{THREAD_TERMS}; combine {k}.part at {v}"
        last = f"split {v} tile lane:{self.lanes}; order {v}.tile"
        if whole:
            rows = self._of_rows(f"{k}.row", f"{v}.parts")
            yield "parts of few columns", few, "; ".join((part, rows, last))
            yield "columns of several rows", few, self._of_rows(k, v)
        inner = self._columns_of(f"{v}.parts", (f"{k}.part",))
        yield "parts of columns", TRUE, "; ".join((part, inner, last))

    def _of_rows(self, k: str, v: str) -> str:
        return "; ".join(
            (
                f"split {k} tile row:{FOLDED}",
                f"combine {k}.row at {v}",
                f"merge {k}.row {v}.parts",
                f"split {k}.row tile reg:{self._columns} lane:{self.lanes} end=half",
                f"split {v} tile lane:{self.lanes}",
                f"order {k}.row.tile",
                f"order {v}.tile",
            )
        )

    def _columns_of(self, v: str, outer: tuple[str, ...]) -> str:
        order = " ".join((*outer, f"{v}.tile"))
        return f"split {v} tile reg:{self._columns} lane:{self.lanes} end=half; order {order}"

    # ---- rows

    def rows(self) -> Iterator[Proposal]:
        """Vectors along each innermost loop, of several rows at once; short rows side by side."""
        nest, row = self.nest, self.row.variable
        yield from self.parts_of_row()
        if extent(self.row) != ONE and self._sinks(row):
            yield from self._in_lanes()
            order = " ".join((*nest.names[:-1], f"{row}.tile"))
            text = [f"split {row} tile reg:{FEW} end=half", *self._vectors(1)]
            yield f"{FEW} rows", TRUE, "; ".join((*text, f"order {order}"))
        yield "single vectors", TRUE, "; ".join(self._vectors(1))
        yield "single rows", TRUE, "; ".join(self._vectors(FEW))

    def parts_of_row(self) -> Iterator[Proposal]:
        """The only sum, if it is long, for parts of it, which are work for threads."""
        nest = self.nest
        if not nest.inner or product_of(map(extent, nest.band)) != ONE:
            return
        x, *inner = nest.inner
        n, terms = extent(x), product_of(map(extent, inner))
        nested = all(y.body is z for y, z in pairwise((self.row, x, *inner)))
        if not nested or (n * terms).variables() - nest.sizes:
            return
        rows = maximum(1, floordiv(index(THREAD_TERMS), maximum(1, terms)))
        k = inner[-1].variable if inner else f"{x.variable}.row"
        part = f"split {x.variable} part row:{formula_text(rows)}"
        text = f"{part}; combine {x.variable}.part at {self.row.variable}"
        if self.lanes > 1:
            text += f"; split {k} tile reg:{FEW} lane:{self.lanes} end=peel; combine {k}"
        yield "parts of a row", ge(n * terms, THREAD_TERMS), text

    def _vectors(self, n: int) -> Iterator[str]:
        """Along each innermost loop, or a parallel one around it that has what it reads in rows."""
        done = set[str]()
        around = {x.variable for s in self.summed for x in s.around[:-1]}
        for x in (y for y in self.nest.inner if y.variable not in around):
            column = self._column(x)
            if column is not None:
                if column not in done:
                    yield f"split {column} tile lane:{self.lanes} end=half; order {column}.tile"
                done.add(column)
                continue
            registers = f"reg:{n} " if n > 1 else ""
            yield f"split {x.variable} tile {registers}lane:{self.lanes} end=peel"
            if x.order == "reduction":
                yield f"combine {x.variable}"

    def _column(self, x: Loop) -> str | None:
        """The loop inside of the band that has in its lanes what lies across a sum in it."""
        own = tuple(s for s in self.summed if s.around[-1] is x)
        if x.order != "reduction" or not self.across(x.variable, own):
            return None
        for y in own[0].around[len(self.nest.band) : -1]:
            inside = tuple(s for s in self.summed if any(z is y for z in s.around))
            legal = y.order == "parallel" and sinks(y.body, frozenset((y.variable,))) is None
            if legal and not self.across(y.variable, inside):
                return y.variable
        return None

    def _in_lanes(self) -> Iterator[Proposal]:
        """A row for each lane: of few elements where they lie, of more that are turned."""
        nest, v, inner = self.nest, self.row.variable, self.nest.inner
        n = extent(inner[0])
        if any(extent(x) != n for x in inner) or n.variables() - nest.sizes:
            return
        names = {x.variable for x in inner}
        lie = {a: s.around[-1].variable for s in self.summed for a in s.accesses}
        turned = {
            a.buffer: x
            for a, x in lie.items()
            if nest.buffers[a.buffer].space == "argument" and self._lies_along(a, x, v)
        }
        order = " ".join((*nest.names[:-1], f"{v}.tile"))
        split = f"split {v} tile lane:{self.lanes}; order {order}"
        yield "rows in lanes", TRUE, split
        moved = (variables_of(a.subscripts) & names for a in lie if a.buffer in turned)
        few = all(len(x) < 2 for x in moved)
        if few and all(nest.buffers[b].dtype.bits in (32, 64) for b in turned):
            at = f"at {v}.tile order"
            copies = (f"stage {b} {at} {x} {v}.lane as turned" for b, x in turned.items())
            yield "turned rows in lanes", self._may_hold(n), "; ".join((split, *copies))


def is_window(nest: Nest, s: Statement, a: Access) -> bool:
    """Points of the band find elements in their sums that others find, too."""
    band, inner = s.around[: len(nest.band)], s.around[len(nest.band) :]
    return any(
        {x.variable, y.variable} <= i.variables() and not _are_apart(i, x, y) and not is_position(i)
        for i in a.subscripts
        for x in band
        for y in inner
    )


def _are_apart(i: Index, x: Loop, y: Loop) -> bool:
    """One of the loops steps over all that the other moves along."""
    steps = linear_coefficient(i, x.variable), linear_coefficient(i, y.variable)
    return steps[0] == (steps[1] or ZERO) * extent(y) or steps[1] == (steps[0] or ZERO) * extent(x)
