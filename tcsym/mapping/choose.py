"""Plans for nests: a few that are proposed, by rules that know no cost, or one that is given.

A proposal is a text: what prints is what a user may give.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from tcsym.index.expr import (
    ONE,
    TRUE,
    Condition,
    Index,
    all_of,
    eq,
    floordiv,
    ge,
    index,
    maximum,
    var,
)
from tcsym.ir.bounds import extent
from tcsym.mapping.nest import Access, Contraction, Nest, contraction, runs_on, sinks
from tcsym.mapping.plan import Refused, Version, parse
from tcsym.target.machine import Machine

FEW = 4  # rows or columns that are no tile
WINDOWS = (1, 3)


def versions(nest: Nest, machine: Machine, given: Mapping[str, str]) -> tuple[Version, ...]:
    """The plans of a nest, best first; the last has no condition. given: by outermost loop."""
    if nest.top.variable in given:
        return (Version("given", TRUE, parse(given[nest.top.variable])),)
    out = list[Version]()
    for facts in (*_windows(nest), dict[str, int]()):
        known = all_of(eq(var(v), n) for v, n in facts.items())
        for name, when, text in _proposals(nest.with_sizes(facts), machine):
            out.append(Version(name, all_of((known, when)), parse(text), facts))
            if when == TRUE:
                break
    return tuple(out)


def _windows(nest: Nest) -> Iterator[dict[str, int]]:
    """Sizes of windows that are common: of one point, which are no windows, and of three."""
    c = contraction(nest)
    if c is None or not c.is_window:
        return
    sizes = [
        x.upper
        for x in nest.inner
        if any(s.coefficient(x.variable) and len(s.terms) > 1 for s in c.wide.subscripts)
    ]
    names = [next(iter(e.variables())) for e in sizes if e in [var(v) for v in nest.sizes]]
    if len(names) == len(sizes):
        for n in WINDOWS:
            yield dict.fromkeys(names, n)


def _proposals(nest: Nest, machine: Machine) -> Iterator[Proposal]:
    found = contraction(nest)
    if found is None:
        return _rows(nest, machine)
    return _Contractions(nest, found, machine, _lanes(nest, machine)).proposals()


Proposal = tuple[str, Condition, str]


class _Contractions(Struct, frozen=True):
    nest: Nest
    c: Contraction
    machine: Machine
    lanes: int

    def proposals(self) -> Iterator[Proposal]:
        c, tile = self.c, self.machine.tile
        if c.rows is None:
            yield "in place", TRUE, self.in_place(1)
            return
        m, n = self.length(c.rows), self.length(c.columns)
        if c.is_window:
            yield "windows in place", ge(3 * tile.rows - 1, m), self.in_place(tile.rows)
        elif self.along(c.tall):
            if self.along(c.wide):
                yield "dots of a row", ge(1, m), self.dots(1, FEW)
                yield "dots of few rows", ge(4 * tile.rows, m), self.dots(FEW, FEW // 2)
            if self.along(c.wide) or self.streamed:
                yield "dots of a column", ge(1, n), self.dots(FEW, 1)
                yield "dots of few columns", ge(FEW, n), self.dots(FEW // 2, FEW)
        if self.streamed and not c.is_window:
            for height in (1, 2):
                yield f"{height} rows in place", ge(height, m), self.in_place(height)
            yield "few rows in place", ge(2 * tile.rows - 1, m), self.in_place(min(4, tile.rows))
        wide = self.around(c.columns)
        n = n * self.length(wide) if wide else n
        yield "panels of few columns", ge(self.lanes, n), self.panels(2 * tile.rows, 1)
        yield "panels", TRUE, self.panels(tile.rows, tile.vectors)

    def length(self, v: str) -> Index:
        return next(extent(x) for x in self.nest.band if x.variable == v)

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
            split {n} panel tile:{_text(tiles)} reg:{vectors} lane:{self.lanes} {end}
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


def _rows(nest: Nest, machine: Machine) -> Iterator[Proposal]:
    """Vectors along each innermost loop, of two rows at once; short rows side by side in lanes."""
    lanes = _lanes(nest, machine)
    short = _short_rows(nest, lanes)
    if short is not None:
        yield short
    loops = {x.variable: x for s in nest.statements for x in s.around}
    around = {x.variable for s in nest.statements for x in s.around[:-1]}
    out, row = list[str](), nest.names[-1]
    paired = bool(nest.inner) and sinks(nest.body, frozenset((row,))) is None
    if paired:
        out.append(f"split {row} tile reg:2")
    for v, x in loops.items():
        if v in around:
            continue
        out.append(f"split {v} tile reg:4 lane:{lanes} end=peel")
        if x.order == "reduction":
            out.append(f"combine {v}")
        if v in nest.names:
            out.append("order " + " ".join(f"{y}.tile" if y == v else y for y in nest.names))
    if not any("lane" in x for x in out):
        raise Refused("no loop for vectors")
    if paired:
        out.append(f"order {' '.join(nest.names[:-1])} {row}.tile")
    yield "rows", TRUE, "\n".join(out)


def _short_rows(nest: Nest, lanes: int) -> Proposal | None:
    """The last loop of the band in lanes, what it moves turned, if all rows are the inner loops."""
    v, inner = nest.names[-1], nest.inner
    if not inner or any(extent(x) != extent(inner[0]) for x in inner):
        return None
    uses = {
        a.buffer: (a, s) for s in reversed(nest.statements) for a in s.accesses if nest.moves(a, v)
    }
    staged = list[str]()
    for name, (a, s) in uses.items():
        if nest.buffers[name].space != "argument":
            continue
        if s.around[-1].variable in nest.names or nest.stride(a, s.around[-1].variable) != ONE:
            return None
        staged.append(f"stage {name} at {v}.tile order {s.around[-1].variable} {v}.lane as turned")
    order = " ".join(nest.names[:-1])
    when = all_of((ge(3 * lanes, extent(inner[0])), ge(extent(nest.band[-1]), lanes // 2)))
    text = f"split {v} tile lane:{lanes}; order {order} {v}.tile; " + "; ".join(staged)
    return "short rows in lanes", when, text


def _lanes(nest: Nest, machine: Machine) -> int:
    bits = max(nest.buffers[a.buffer].dtype.bits for s in nest.statements for a in s.accesses)
    return machine.lanes(bits)


def _text(e: Index) -> str:
    return str(e).replace(" ", "")
