"""A scatter of many terms -> terms sorted by position, in the order of the text, and ragged sums.

    count[p, e]   how many terms of part p have position e                     a thread for each p
    first[e]      where terms of e begin; count: where those of p do, in them  sums of counts
    order[q]      the q-th term                                                a thread for each p
    G[e, d] += sum over q in first[e]:first[e] + total[e] of term order[q]     a thread for e and d

How many parts there are follows from sizes alone, so results are the same in every call.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Binary, Const, Expr, IndexValue, Read
from tcsym.index.expr import ONE, ZERO, Index, ceildiv, floordiv, maximum, minimum, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, block, given
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.combine.accumulate import accumulate_privately
from tcsym.schedule.device.grid import at_iteration
from tcsym.schedule.device.scatter import Scatter
from tcsym.schedule.version.versioning import duplicate
from tcsym.types import DType

MOST_PARTS = 1024
PART_TERMS = 32  # of a part, at least
COUNTS = 4  # of all parts for each term, at most
CHUNK = 256  # elements that one thread adds up

I64 = DType.INT64


def sorted_terms(s: Scatter, kernel: Kernel, names: Names) -> tuple[Kernel, Node]:
    """Several nests, in order; `s` is used up."""
    return _Sort(s, kernel, names).run()


class _Sort:
    """The nests in the making. place: of a position among all `elements`."""

    def __init__(self, s: Scatter, kernel: Kernel, names: Names) -> None:
        self.s, self.kernel, self.names = s, kernel, names
        self.place, self.elements = ZERO, ONE
        for x in s.positions:
            self.place = self.place * extent(x) + var(x.variable) - x.lower
            self.elements = self.elements * extent(x)
        few = floordiv(s.count * COUNTS, maximum(1, self.elements))
        most = minimum(MOST_PARTS, floordiv(s.count, PART_TERMS), few)
        self.parts = maximum(1, most)
        self.count = self.buffer("counts", self.parts, self.elements)
        self.total, self.first = (self.buffer(x, self.elements) for x in ("totals", "firsts"))
        self.order = self.buffer("order", s.count)

    def run(self) -> tuple[Kernel, Node]:
        nests = (self.counted(), *self.summed(), self.ordered(), self.added())
        return self.kernel, block(*nests)

    # ---- nests

    def counted(self) -> Node:
        part, e = self.names.fresh("part"), self.names.fresh("element")
        zero = Store(self.count, (var(part), var(e)), Const(0, I64))
        clear = self.loop(part, self.parts, self.loop(e, self.elements, zero))
        own = self.names.fresh("part")
        one = Update(self.count, (var(own), self.place), "add", Const(1, I64))
        return block(clear, self.loop(own, self.parts, self.of_part(own, one)))

    def summed(self) -> tuple[Node, ...]:
        """Terms before those of each part and element: of an element, of chunks of them, of all."""
        names, chunks = self.names, ceildiv(self.elements, CHUNK)
        sums, bases = self.buffer("sums", chunks), self.buffer("bases", chunks)
        e, i, j = (names.fresh("element") for _ in range(3))
        c, d, f = (names.fresh("chunk") for _ in range(3))
        p = names.fresh("part")
        parts = replace(self.loop(p, self.parts, block()), order="sequential")
        every = replace(self.loop(d, chunks, block()), order="sequential")
        counts = self.read(self.count, var(p), var(e))
        zero, base = Const(0, I64), self.read(bases, var(f))
        total, again = (self.read(self.total, var(x)) for x in (i, j))
        of_element = self.running(parts, e, counts, zero, self.count, self.total)
        of_chunk = self.running(self.chunk(i, c), c, total, zero, "", sums)
        of_chunks = self.running(every, "", self.read(sums, var(d)), zero, bases)
        of_all = self.running(self.chunk(j, f), f, again, base, self.first)
        return (
            self.loop(e, self.elements, of_element),
            self.loop(c, chunks, of_chunk),
            of_chunks,
            self.loop(f, chunks, of_all),
        )

    def running(
        self, loop: Loop, own: str, what: Read, start: Expr, before: str, total: str = ""
    ) -> Node:
        """The sum of `what`, from `start` on. It is stored to `before` in front of each step, to
        `total` behind the last, where these have names. own: the loop around."""
        run, old = self.scalar("run", own), self.scalar("old", own, loop.variable)
        kept = Store(before, tuple(x for x in what.subscripts if isinstance(x, Index)), run)
        add = Update(run.tensor, (), "add", old)
        step = block(Store(old.tensor, (), what), *[kept] * bool(before), add)
        end = [Store(total, (var(own),), run)] if total else []
        return block(Store(run.tensor, (), start), replace(loop, body=step), *end)

    def ordered(self) -> Node:
        own, term, q = (self.names.fresh(x) for x in ("part", "term", "place"))
        before = self.read(self.count, var(own), self.place)
        place = Binary("add", self.read(self.first, self.place), before, I64)
        one = Update(self.count, (var(own), self.place), "add", Const(1, I64))
        kept = given(q, place, Store(self.order, (var(q),), IndexValue(var(term), I64)))
        return self.loop(own, self.parts, self.of_part(own, block(kept, one), term))

    def added(self) -> Node:
        s, (lo, n, q, t) = (
            self.s,
            (self.names.fresh(x) for x in ("first", "total", "place", "term")),
        )
        node = given(t, self.read(self.order, var(q)), at_iteration(s.terms, var(t), s.rest))
        node = Loop(q, var(lo), var(lo) + var(n), node, "serial", "reduction")
        node = given(
            lo, self.read(self.first, self.place), given(n, self.read(self.total, self.place), node)
        )
        for x in reversed((*s.positions, *s.columns)):
            node = replace(x, at=None, order="parallel", body=node)
        alone = accumulate_privately(replace(self.kernel, body=node), self.names)
        self.kernel = replace(alone, body=self.kernel.body)
        return alone.body

    # ---- parts of them

    def of_part(self, part: str, leaf: Node, term: str = "") -> Node:
        """`leaf` at the position of each term of a part, in their order."""
        n, term = (
            floordiv(self.s.count + self.parts - 1, self.parts),
            term or self.names.fresh("term"),
        )
        first = var(part) * n
        at_term = at_iteration(self.s.terms, var(term), self.s.at_positions(leaf))
        last = minimum(self.s.count, first + n)
        self.kernel, body, _ = duplicate(self.kernel, at_term, self.names)
        return Loop(term, first, last, body)

    def chunk(self, element: str, chunk: str) -> Loop:
        first = var(chunk) * CHUNK
        return Loop(element, first, minimum(self.elements, first + CHUNK), block())

    def loop(self, v: str, n: Index, body: Node) -> Loop:
        return Loop(v, ZERO, n, body, "serial", "parallel")

    def buffer(self, name: str, *shape: Index) -> str:
        b = Buffer(self.names.fresh(name), I64, shape, "arena")
        self.kernel = self.kernel.with_buffer(b)
        return b.name

    def scalar(self, name: str, *private: str) -> Read:
        b = Buffer(self.names.fresh(name), I64, (), "arena", private=frozenset(private) - {""})
        self.kernel = self.kernel.with_buffer(b)
        return Read(b.name, (), I64)

    def read(self, buffer: str, *subscripts: Index) -> Read:
        return Read(buffer, subscripts, I64)
