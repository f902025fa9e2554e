# SPDX-License-Identifier: Apache-2.0
"""Loops that find positions -> nests of which each thread has its own part.

Where no order of the terms can be seen, a thread for each term updates elements as a whole, or
those of copies where too many would meet at one. Else no two threads may add to one element, and
each adds in the order of the text, so that results are the same in every call: threads own columns
d of rows, `G[id[j], d] += Y[j, d]`, and go through all of them, or own elements and look for
theirs; where there are many terms they are sorted, in the order of the text, for ragged sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Const, Expr, IndexValue, Read
from tcsym.index.expr import ONE, ZERO, Index, ceildiv, floordiv, maximum, minimum, mod, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.device import is_atomic
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, block, given
from tcsym.ir.traverse import map_node, position_loads
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import (
    chain_of,
    in_loops,
    loops_around,
    loops_in,
    position_in,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.combine.accumulate import accumulate_privately
from tcsym.schedule.combine.scatter_parts import COPY_TERMS
from tcsym.schedule.device.nest import at_iteration
from tcsym.schedule.version.versioning import duplicate
from tcsym.types import DType

MOST_COUNTED = 1024  # parts whose terms threads count: one thread adds up all their counts
COUNTED_TERMS = 32  # of such a part, at least
COUNTS = 4  # of all parts for each term, at most
CHUNK = 256  # elements that one thread adds up
MOST_ATOMIC = 256  # copies of a result, among which threads update its elements

I64 = DType.INT64


class Scatter(Struct, frozen=True):
    """`terms`: loops over them. `positions`: loops of which the iteration at a position runs, with
    what finds it. `columns`: parallel loops inside, around the `update` and loops of its sum."""

    terms: tuple[Loop, ...]
    positions: tuple[Loop, ...]
    columns: tuple[Loop, ...]
    rest: Node
    update: Update

    @property
    def count(self) -> Index:
        return product_of(maximum(0, extent(x)) for x in self.terms)

    def at_positions(self, leaf: Node) -> Node:
        """What finds the positions of a term, around `leaf`."""
        last = self.positions[-1]
        return _with(self.terms[-1].body, last, replace(last, body=leaf))


def scatter_of(loop: Loop) -> Scatter | None:
    """None if the loops are no box, or more is done than to update elements that are not read."""
    found = position_in(loop)
    if found is None:
        return None
    terms = tuple(takewhile(lambda x: x.at is None and x.value is None, chain_of(loop)))
    path = (*loops_around(loop, found.variable), found)
    positions, (columns, rest) = path[len(terms) :], _columns(found)
    if not terms or any(x.at is None for x in positions):
        return None
    inside = {x.variable for x in loops_in(loop)}
    bounds = (x.end_variables for x in (*path, *columns))
    updates = [x for x, _ in statements_in(rest)]
    update = updates[0] if len(updates) == 1 else None
    if frozenset[str]().union(*bounds) & inside or not isinstance(update, Update):
        return None
    read = [a.buffer for a in accesses(rest) if not a.written]
    read += [r.tensor for x in positions for r in position_loads(x)]
    return None if update.buffer in read else Scatter(terms, positions, columns, rest, update)


def at_once(kernel: Kernel, loop: Loop) -> Loop | None:
    """A thread for each term; None where the order of updates would be seen."""
    s = scatter_of(loop)
    if s is None or s.rest is not s.update:
        return None
    if not is_atomic(s.update.op, kernel.buffer(s.update.buffer).dtype):
        return None
    chain = [replace(x, order="parallel") for x in (*s.terms, *s.columns)]
    node = in_loops(chain, s.at_positions(replace(s.update, atomic=True)))
    assert isinstance(node, Loop)
    return node


def in_copies(kernel: Kernel, loop: Loop, names: Names) -> tuple[Kernel, Node]:
    """The same in copies of what is updated, which terms take in turn, then added as terms of
    their own: so fewer threads wait for each other at one element. Contract: `at_once` is a nest.

    How many copies there are follows from sizes: each element of them gets COPY_TERMS on average.
    """
    s = scatter_of(loop)
    assert s is not None
    b, number = kernel.buffer(s.update.buffer), ZERO
    for x in s.terms:
        number = number * extent(x) + var(x.variable) - x.lower
    most = floordiv(s.count, COPY_TERMS * maximum(1, product_of(b.shape)))
    n = maximum(1, minimum(MOST_ATOMIC, most))
    copies = Buffer(names.fresh(f"{b.name}_copies"), b.dtype, (n, *b.shape), "arena")
    at = tuple(names.fresh("element") for _ in b.shape)
    turn, every = (names.fresh("copy") for _ in range(2))
    start = Store(copies.name, (var(turn), *map(var, at)), identity(s.update.op, b.dtype))
    into = (mod(number, n), *s.update.subscripts)
    kernel = kernel.with_buffer(copies)
    some = at_once(kernel, _updating(loop, replace(s.update, buffer=copies.name, subscripts=into)))
    place = tuple(names.fresh("element") for _ in b.shape)
    copy = Read(copies.name, (var(every), *map(var, place)), b.dtype)
    add = replace(s.update, subscripts=tuple(map(var, place)), value=copy, atomic=True)
    assert some is not None
    nests = (_box((turn, *at), copies.shape, start), some, _box((every, *place), copies.shape, add))
    return kernel, block(*nests)


def _updating(loop: Loop, update: Update) -> Loop:
    made = map_node(loop, lambda n: update if isinstance(n, Update) else n)
    assert isinstance(made, Loop)
    return made


def _box(variables: Sequence[str], shape: Sequence[Index], body: Node) -> Node:
    extents = zip(variables, shape, strict=True)
    return in_loops([Loop(v, ZERO, n, body, "serial", "parallel") for v, n in extents], body)


def owned(loop: Loop, names: Names) -> Loop | None:
    """Each thread goes through all terms; None where one thread has to do it all."""
    found = position_in(loop)
    if found is None:
        return None
    inside = {x.variable for x in loops_in(loop)}
    columns, rest = _columns(found)
    moved = columns or (found,)
    bounds = frozenset[str]().union(*(x.end_variables for x in moved))
    if bounds & inside or not _adds(rest):
        return None
    if not columns:
        element = names.fresh(found.variable)
        mine = replace(found, lower=var(element), upper=var(element) + 1)
        body = _with(loop, found, mine)
        return Loop(element, found.lower, found.upper, body, "serial", "parallel")
    node = in_loops(columns, _with(loop, found, replace(found, body=rest)))
    assert isinstance(node, Loop)
    return node


def _columns(found: Loop) -> tuple[tuple[Loop, ...], Node]:
    """Parallel loops at a position, and what is inside."""
    columns = tuple(takewhile(lambda x: x.order == "parallel", chain_of(found.body)))
    return columns, columns[-1].body if columns else found.body


def _adds(node: Node) -> bool:
    """One statement, perhaps in loops of its own sum: nothing else is written."""
    match node:
        case Update() | Store():
            return True
        case Loop():
            return _adds(node.body)
        case _:
            return False


def _with(node: Node, old: Loop, new: Node) -> Node:
    """`node` with `new` in the place of `old`."""
    return replace_loop(node, old.variable, lambda _: new)


# ---- sorted


def sorted_terms(s: Scatter, kernel: Kernel, names: Names) -> tuple[Kernel, Node]:
    """Several nests, in order, for many terms; `s` is used up.

        count[p, e]   how many terms of part p have position e                  by threads for p
        first[e]      where terms of e begin; count: where those of p do there  sums of counts
        order[q]      the q-th term                                             by threads for p
        G[e, d] += sum over q in first[e]:first[e] + total[e] of term order[q]  by threads for e, d

    How many parts there are follows from sizes alone, so results are the same in every call.
    """
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
        most = minimum(MOST_COUNTED, floordiv(s.count, COUNTED_TERMS), few)
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
        s, names = self.s, ("first", "total", "place", "term")
        lo, n, q, t = map(self.names.fresh, names)
        node = given(t, self.read(self.order, var(q)), at_iteration(s.terms, var(t), s.rest))
        node = Loop(q, var(lo), var(lo) + var(n), node, "serial", "reduction")
        node = given(n, self.read(self.total, self.place), node)
        node = given(lo, self.read(self.first, self.place), node)
        chain = [replace(x, at=None, order="parallel") for x in (*s.positions, *s.columns)]
        whole = replace(self.kernel, body=in_loops(chain, node))
        alone = accumulate_privately(whole, self.names)
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
