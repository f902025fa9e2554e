# SPDX-License-Identifier: Apache-2.0
"""Plans that are proposed for several nests on the same rows: products, sums and maps of a row, one
after the other, with what a row leaves for the next of them in temporaries.

Each nest inside has loops of its own. Rows are in registers, so that products share what columns
move, or in lanes, or one by one, where each nest has a plan of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import ONE, TRUE, Index
from tcsym.index.values import substitute
from tcsym.ir.loops import Loop, Node, Store, Update
from tcsym.ir.traverse import walk
from tcsym.mapping.contraction import contraction
from tcsym.mapping.contractions import Contractions, dots_at_once
from tcsym.mapping.nest import Access, Nest, Statement, analyse, band_at, sinks
from tcsym.mapping.own import parts
from tcsym.mapping.plan import Refused
from tcsym.mapping.proposal import FEW, Proposal, merged_text, vectors_text
from tcsym.target.machine import Machine

ByItself = Callable[[Nest], Iterable[Proposal]]
Reach = tuple[tuple[Index, ...], tuple[Index, ...]]


def is_fused(nest: Nest) -> bool:
    """A nest inside of the band is one of several that run one after the other."""
    inside = any(isinstance(x, Loop) and x.order == "parallel" for x in parts(nest.body))
    return inside and not nest.is_found


def fused(nest: Nest, machine: Machine, lanes: int, by_itself: ByItself) -> Iterator[Proposal]:
    """by_itself: plans of a nest inside."""
    p = _Fused(nest, machine, lanes, by_itself)
    yield from p.tiles()
    if lanes > 1:
        yield from p.in_lanes()
    yield from p.single()


class _Fused(Struct, frozen=True, dict=True):
    nest: Nest
    machine: Machine
    lanes: int
    by_itself: ByItself

    @cached_property
    def inside(self) -> tuple[Loop, ...]:
        return tuple(x for x in parts(self.nest.body) if isinstance(x, Loop))

    def _outer(self, rows: str) -> list[str]:
        return [v for v in self.nest.names if v != rows]

    # ---- products of the rows

    @cached_property
    def rows(self) -> str | None:
        """The loop of the band that most products have as their rows, the innermost of several."""
        products = (self._product(x, None) for x in self.inside)
        found = [p.c.rows for p in products if p is not None]
        named = (v for v in reversed(self.nest.names) if v in found)
        return max(named, key=found.count, default=None)

    def _product(self, x: Loop, rows: str | None) -> Contractions | None:
        """The nest inside as a contraction of rows of the band, of these if they are known, and its
        own columns."""
        if x.order != "parallel":
            return None
        sub = self._alone(x)
        c = contraction(sub, rows)
        if c is None or c.rows not in self.nest.names or c.columns in self.nest.names:
            return None
        c = replace(c, joined=tuple(v for v in c.joined if v not in self.nest.names))
        p = Contractions(sub, c, self.machine, self.lanes)
        try:
            p.check()
        except Refused:
            return None
        return None if p.has_neighbours else p

    def _alone(self, x: Loop) -> Nest:
        """The band with this nest inside only."""
        node: Node = x
        for y in reversed(self.nest.band):
            node = replace(y, body=node)
        assert isinstance(node, Loop)
        sub = analyse(node, self.nest.buffers, self.nest.sizes, self.nest.around)
        return replace(sub, shared=frozenset(self.nest.buffers), constants=self.nest.constants)

    def _own(self, p: Contractions) -> Iterator[str]:
        """Loops of a product that are neither of the band nor of its columns."""
        return (v for v in p.nest.names if v not in (*self.nest.names, *p.c.joined))

    # ---- rows in registers

    def tiles(self) -> Iterator[Proposal]:
        rows = self.rows or self.nest.names[-1]
        products = {x.variable: self._product(x, rows) for x in self.inside}
        found = [p for p in products.values() if p is not None]
        if not found:
            if any(isinstance(s.node, Update) for s in self.nest.statements):  # what rows wait for
                yield f"{FEW} rows", TRUE, self._tiles(rows, FEW, products)
            return
        if any(p.along_wide for p in found) and self.lanes > 1:
            n = dots_at_once(self.machine)
            yield "dots", TRUE, self._tiles(rows, n, products, has_dots=True)
        if all(p.streamed for p in found):
            yield "rows in place", TRUE, self._tiles(rows, FEW, products, in_place=True)
        height = self.machine.tile.rows // max(p.c.in_registers for p in found)
        yield "panels", TRUE, self._tiles(rows, max(1, height), products)

    def _tiles(
        self,
        rows: str,
        height: int,
        products: dict[str, Contractions | None],
        has_dots: bool = False,
        in_place: bool = False,
    ) -> str:
        """Copies are for all rows, made where the operand stays as it is."""
        text, copies = [f"split {rows} tile reg:{height} end=half"], list[str]()
        outer, moving = self._outer(rows), set[str]()
        for x in self.inside:
            p = products[x.variable]
            if p is None:
                text.append(self._vectors(x))
            elif has_dots and p.along_wide:
                text.append(self._dots(p))
            else:
                text.append(self._tile(p))
                copies += [] if in_place else self._staged(p, outer)
            if p is not None:
                wide = [a for s in p.c.sums for a in s.wide]
                moving |= {v for v in outer if any(p.nest.moves(a, v) for a in wide)}
        outer.sort(key=lambda v: v not in moving)
        order = f"order {' '.join((*outer, f'{rows}.tile'))}"
        return "; ".join(filter(None, (*text, order, *dict.fromkeys(copies))))

    def _tile(self, p: Contractions) -> str:
        joined, wide = p.c.joined, p.c.joined[0]
        return f"""
            {merged_text(joined)}
            split {wide} tile {vectors_text(self.machine.tile.vectors, self.lanes)} end=half
            {p.unrolled}
            order {" ".join((*self._own(p), f"{wide}.tile"))}"""

    def _staged(self, p: Contractions, outer: list[str]) -> Iterator[str]:
        written = {s.node.buffer for s in self.nest.statements}
        for s in p.c.sums:
            for a in s.wide:
                moved = [v for v in outer if p.nest.moves(a, v)]
                if a.buffer not in written:
                    around = [v for v in self._own(p) if p.nest.moves(a, v)]
                    yield p.staged(a, s, f"at {moved[-1]}" if moved else "once", around)

    def _dots(self, p: Contractions) -> str:
        wide = p.c.columns
        sums = (x.loops[-1].variable for x in p.c.sums)
        own = (v for v in p.nest.names if v not in (*self.nest.names, wide))
        return f"""
            split {wide} tile reg:{dots_at_once(self.machine)} end=half
            {"; ".join(f"split {k} tile lane:{self.lanes} end=peel; combine {k}" for k in sums)}
            order {" ".join((*own, f"{wide}.tile"))}"""

    def _vectors(self, x: Loop, registers: str = "") -> str:
        """Along what is no product, where all that moves there lies along it."""
        if self.lanes == 1:
            return ""
        split = f"tile {registers} lane:{self.lanes} end=peel"
        if x.order == "parallel":
            band = [y.variable for y in band_at(x)]
            v = next((v for v in reversed(band) if self._lies_along(x, v, is_map=True)), None)
            order = " ".join(f"{v}.tile" if w == v else w for w in band)
            return "" if v is None else f"split {v} {split}; order {order}"
        loops = [y for y, _ in walk(x) if isinstance(y, Loop)]
        around = {z.variable for y, zs in walk(x) if isinstance(y, Loop) for z in zs}
        leaves = [y for y in loops if y.variable not in around]
        along = [y for y in leaves if self._lies_along(y, y.variable)]
        combined = {y.variable: f"; combine {y.variable}" for y in along if y.order == "reduction"}
        vectors = (f"split {y.variable} {split}{combined.get(y.variable, '')}" for y in along)
        return "; ".join(vectors)

    def _lies_along(self, x: Loop, v: str, is_map: bool = False) -> bool:
        """All that the loop moves inside of `x` it moves element by element; results too."""
        statements = [s for s in self.nest.statements if x in s.around]
        used = [a for s in statements for a in s.accesses if self.nest.moves(a, v)]
        results = [s.accesses[0] for s in statements if is_map]
        return all(self.nest.stride(a, v) == ONE for a in (*used, *results))

    # ---- rows in lanes

    def in_lanes(self) -> Iterator[Proposal]:
        """A row for each lane: what it leaves for the next nest is a vector for each element."""
        rows = self.nest.names[-1]
        if sinks(self.nest.body, frozenset((rows,))) is not None:
            return
        text, loops = [f"split {rows} tile lane:{self.lanes}"], dict[str, str]()
        for x in self.inside:
            p = self._product(x, rows)
            if p is not None:
                wide = p.c.columns
                own = (v for v in p.nest.names if v not in (*self.nest.names, wide))
                text += [f"split {wide} tile reg:{FEW} end=half", p.unrolled]
                text.append(f"order {' '.join((*own, f'{wide}.tile'))}")
                loops[wide] = f"{wide}.tile {wide}.reg"
        text.append(f"order {' '.join((*self._outer(rows), f'{rows}.tile'))}")
        for name, inside in self._turned(rows).items():
            at = " ".join(loops.get(v, v) for v in inside)
            text.append(f"stage {name} at {rows}.tile order {at} {rows}.lane as turned")
        yield "rows in lanes", TRUE, "; ".join(filter(None, text))

    def _turned(self, rows: str) -> dict[str, list[str]]:
        """Operands and results with rows across memory, and the loops inside that move them, of
        which one does along it."""
        found, nest = dict[str, list[str]](), self.nest
        kept = self._kept()
        for s in nest.statements:
            inner = [x.variable for x in s.around[len(nest.band) :]]
            for a in s.accesses:
                b, across = nest.buffers[a.buffer], nest.stride(a, rows) != ONE
                is_far = across and nest.moves(a, rows) and b.space == "argument"
                can_turn = b.dtype.bits in (32, 64) and a.buffer not in kept
                if is_far and can_turn and any(nest.stride(a, v) == ONE for v in inner):
                    moved = (v for i in a.subscripts for v in inner if v in i.variables())
                    found[a.buffer] = list(dict.fromkeys(moved))
        return found

    def _kept(self) -> set[str]:
        """What is written and may not have a copy that begins with nothing: it is read before, or
        added to, or not all of what is used is written first."""
        kept, made, written = set[str](), dict[str, Reach](), set[str]()
        for s in self.nest.statements:
            result, *reads = s.accesses
            for a in reads if isinstance(s.node, Store) else s.accesses:
                if self._reach(s, a) != made.get(a.buffer):
                    kept.add(a.buffer)
            written.add(result.buffer)
            if made.setdefault(result.buffer, self._reach(s, result)) != self._reach(s, result):
                kept.add(result.buffer)
        return kept & written

    def _reach(self, s: Statement, a: Access) -> Reach:
        """First and last elements that loops inside move to."""
        inside = s.around[len(self.nest.band) :]
        ends = ({x.variable: x.lower for x in inside}, {x.variable: x.upper for x in inside})
        first, last = (tuple(substitute(i, v) for i in a.subscripts) for v in ends)
        return first, last

    # ---- rows one by one

    def single(self) -> Iterator[Proposal]:
        """Each nest inside by a plan of its own: vectors along it; tiles and panels where it is a
        product of matrices by itself."""
        found = [self._by_itself(x) for x in self.inside]
        vectors, tiles = ("; ".join(filter(None, x)) for x in zip(*found, strict=True))
        if tiles != vectors:
            yield "single rows, panels", TRUE, tiles
        yield "single rows", TRUE, vectors

    def _by_itself(self, x: Loop) -> tuple[str, str]:
        vectors = self._vectors(x, f"reg:{FEW}")
        if x.order != "parallel":
            return vectors, vectors
        around = self.nest.around.union(self.nest.names)
        sub = analyse(x, self.nest.buffers, self.nest.sizes, around)
        sub = replace(sub, shared=frozenset(self.nest.buffers))
        try:
            texts = [text for _, when, text in self.by_itself(sub) if when == TRUE]
        except Refused:
            return vectors, vectors
        c = contraction(sub)
        return texts[0], texts[-1 if c is not None and c.rows is not None else 0]
