# SPDX-License-Identifier: Apache-2.0
"""A nest of rows, a plan -> a block or a warp for each row, whose threads share the loops inside.

What one thread writes and others read has a barrier between; sums are combined by shuffles within
warps, then through shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Read
from tcsym.index.expr import ZERO, Index, ceildiv, eq, floordiv, ge, index, lt, mod, var
from tcsym.index.values import product_of, substitute
from tcsym.ir.bounds import extent, iteration
from tcsym.ir.device import WARP, Barrier
from tcsym.ir.loops import Branch, Buffer, Loop, Node, Shuffle, Store, Update, block, conditional
from tcsym.ir.traverse import map_node, substitute_node
from tcsym.schedule.analysis.access import Access, accesses
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import children, loops_in, writes_in
from tcsym.schedule.device.held import ELEMENT, Held, carried, held_buffers, places_of
from tcsym.schedule.device.nest import Applied, Grid, Nest, at_iteration, is_own, through_steps
from tcsym.schedule.device.online import Online, Part, online
from tcsym.schedule.device.plan import BlockRows, OnlineRows, SharedRows


class Row(Struct, frozen=True):
    """A nest as a plan of rows has it. fills: what states are before the first step. held: buffers
    of which threads keep elements. online: the loop in place of two, if there is one."""

    nest: Nest
    fills: tuple[Loop, ...] = ()
    held: frozenset[str] = frozenset()
    online: Online | None = None


def rows_of(plan: BlockRows, nest: Nest) -> Row:
    """By the plan, which was proposed for it."""
    nest = through_steps(nest)
    if plan.held:
        state = carried(nest)
        return Row(state.nest, state.fills, held_buffers(state.nest))
    made = online(nest) if isinstance(plan, OnlineRows) else None
    return Row(nest if made is None else made.nest, online=made)


def apply_rows(plan: BlockRows, grid: Grid) -> Applied:
    """The nest by the plan, which was proposed for it."""
    return _Rows(plan, grid, grid.names.fresh("block")).applied()


class _Rows(Struct):
    """`shared`: by which threads of a row reach each other."""

    plan: BlockRows
    grid: Grid
    outer: str
    shared: frozenset[str] = frozenset()

    def applied(self) -> Applied:
        grid, rows, row = self.grid, self.plan.rows, rows_of(self.plan, self.grid.nest)
        grid.nest = row.nest
        self.keep_between_phases(row.held)
        taken = Held(grid.nest, self.places(row.held))
        self.shared = _met(grid.nest) - row.held
        chain, scan = grid.nest.rows, grid.nest.steps
        total = product_of(map(extent, chain))
        first = [n for x in row.fills for n in self.phase(x, -1, taken)]
        phases: list[Node] = []
        for k, x in enumerate(children(grid.nest.body)):
            if row.online is not None and x is row.online.loop:
                phases += self.online(row.online, k, taken)
            else:
                phases += self.phase(x, k, taken)
        if rows > 1:
            first, phases = ([self.of_warps(n, total) for n in x] for x in (first, phases))
        inside = block(*phases)
        if scan is not None:
            told = self.plan.width > WARP  # what warps told each other is told again
            steps = replace(scan, body=block(inside, Barrier()) if told else inside)
            inside = block(conditional(ge(extent(scan), 1), block(*first)), steps)
        if rows == 1:
            inside = at_iteration(chain, var(self.outer), inside)
        return grid.applied(self.outer, ceildiv(total, rows), inside)

    def places(self, held: frozenset[str]) -> dict[str, Buffer]:
        """Where each thread keeps its elements: in registers, or where they are in the row."""
        grid, plan = self.grid, self.plan
        found: dict[str, Buffer] = {}
        if isinstance(plan, SharedRows):
            for b, place in places_of(grid.nest, held).items():
                if place == b:
                    dtype = grid.nest.kernel.buffer(b).dtype
                    found[b] = grid.shared(f"{b}_row", dtype, plan.held * plan.width)
                found[b] = found[place]
            return found
        dtypes = {b: grid.nest.kernel.buffer(b).dtype for b in sorted(held)}
        return {b: grid.register(f"{b}_held", t, plan.held) for b, t in dtypes.items()}

    def of_warps(self, n: Node, total: Index) -> Node:
        """A phase for the rows of a block, a warp for each."""
        if not isinstance(n, Loop):
            return n
        row = var(self.outer) * self.plan.rows + floordiv(var(n.variable), self.plan.width)
        left, at = total - var(self.outer) * self.plan.rows, iteration(self.grid.nest.rows, row)
        body = substitute_node(self.grid.copied(n.body), at)
        there = lt(floordiv(var(n.variable), self.plan.width), left)
        return replace(n, body=Branch(there, body))

    def lane(self, threads: Loop) -> Index:
        """Of a thread among those of its row."""
        thread = var(threads.variable)
        return thread if self.plan.rows == 1 else mod(thread, self.plan.width)

    def keep_between_phases(self, held: frozenset[str]) -> None:
        """Arrays that belong to a row are all threads': one may read what another wrote."""
        nest = self.grid.nest
        kernel, chain = nest.kernel, {x.variable for x in nest.rows}
        inside = {x.variable for x in children(nest.body) if isinstance(x, Loop)}
        for b in kernel.buffers:
            kept = is_own(nest, b.name) or b.name in held or inside & b.private
            if chain <= b.private and not kept:
                kernel = kernel.with_buffer(replace(b, private=b.private - chain))
        self.grid.nest = replace(nest, kernel=kernel)

    def threads(self) -> Loop:
        return self.grid.threads(self.plan.threads)

    def phase(self, x: Node, number: int, held: Held) -> list[Node]:
        """What the threads do of one part of the row, and a barrier."""
        if isinstance(x, Store):
            threads = self.threads()
            own = is_own(self.grid.nest, x.buffer)
            body: Node = x if own else Branch(eq(self.lane(threads), 0), x)
            return [replace(threads, body=body), *self.meet(x)]
        assert isinstance(x, Loop)
        read, x = read_ends(x)
        threads = self.threads()
        sums = [u for u in writes_in(x.body) if isinstance(u, Update) and self.is_sum(u, x)]
        parts = {u.buffer: (u, self.register(u.buffer, "part")) for u in sums}
        body = map_node(x.body, lambda u: _into(u, parts))
        steps = self.steps(replace(x, body=body), threads, number, held)
        for value in reversed(read):
            steps = replace(value, body=steps)
        first = [Store(p.name, (), identity(u.op, p.dtype)) for u, p in parts.values()]
        out: list[Node] = [replace(threads, body=block(*first, steps))]
        out += [y for u, p in parts.values() for y in self.combined(u, p)]
        is_told = sums and self.plan.width > WARP  # a barrier stands between warps and their sum
        return out if is_told else [*out, *self.meet(x)]

    def meet(self, x: Node) -> list[Node]:
        """A barrier behind a part of the row, if other threads may need what it touches."""
        return [Barrier()] * any(a.buffer in self.shared for a in accesses(x))

    def online(self, o: Online, number: int, held: Held) -> list[Node]:
        """The loop, then what threads have of the first, and of sums with the row's first."""
        threads = self.threads()
        steps = self.steps(o.loop, threads, number, held)
        out: list[Node] = [replace(threads, body=block(o.start, steps, o.keep))]
        out += self.combined(*o.first)
        out.append(replace(self.threads(), body=o.scale))
        out += [n for u, p in o.sums for n in self.combined(u, p)]
        return [*out, replace(self.threads(), body=o.end), *self.meet(o.loop)]

    def steps(self, x: Loop, threads: Loop, number: int, held: Held) -> Loop:
        """Iterations of a loop that one of the threads does."""
        n, step = self.plan.width, self.grid.names.fresh(x.variable)
        count = ceildiv(extent(x) - self.lane(threads), n)
        place = self.lane(threads) + var(step) * n
        body = substitute_node(x.body, {x.variable: x.lower + place})
        self.grid.share(x.variable, step)
        if self.plan.held and not isinstance(self.plan, SharedRows):
            body, most = held.body(body, number, var(step)), index(self.plan.held)
            return Loop(step, ZERO, most, body, "unrolled", x.order, mask=count)
        body = held.body(body, number, place)
        return Loop(step, ZERO, count, body, "serial", x.order)

    def is_sum(self, u: Update, x: Loop) -> bool:
        nest = self.grid.nest
        if not is_own(nest, u.buffer):
            return False
        moves = any(x.variable in s.variables() for s in u.subscripts)
        return not moves and x.variable not in nest.kernel.buffer(u.buffer).private

    def register(self, buffer: str, what: str) -> Buffer:
        """A number that each thread has, of the type of the buffer."""
        return self.grid.register(f"{buffer}_{what}", self.grid.nest.kernel.buffer(buffer).dtype)

    def combined(self, u: Update, part: Buffer) -> list[Node]:
        """The parts of all threads of a row, added to the sum of each."""
        dtype = part.dtype
        got = self.register(u.buffer, "other")
        mine, other = Read(part.name, (), dtype), Read(got.name, (), dtype)
        steps: list[Node] = []
        lanes = WARP // 2
        while lanes:
            steps.append(Store(got.name, (), Shuffle("across", lanes, mine, dtype)))
            steps.append(Store(part.name, (), Binary(u.op, mine, other, dtype)))
            lanes //= 2
        warp = self.threads()
        if self.plan.width == WARP:
            steps.append(replace(u, value=mine))
            return [replace(warp, body=block(*steps))]
        warps = self.plan.width // WARP
        kept = self.grid.shared(f"{u.buffer}_warps", dtype, warps)
        at, every = var(warp.variable), self.threads()
        note = Store(kept.name, (floordiv(at, WARP),), mine)
        steps.append(Branch(eq(mod(at, WARP), 0), note))
        w = self.grid.names.fresh("warp")
        add = replace(u, value=Read(kept.name, (var(w),), dtype))
        total = Loop(w, ZERO, index(warps), add, "unrolled", "reduction")
        return [replace(warp, body=block(*steps)), Barrier(), replace(every, body=total)]


def _met(nest: Nest) -> frozenset[str]:
    """Buffers of which a thread may touch what another of its row wrote: all but those of which
    each uses its own elements alone."""
    used: dict[str, list[tuple[int, Loop | None, Access]]] = {}
    inside = {x.variable for x in loops_in(nest.body)}
    for k, x in enumerate(children(nest.body)):
        loop = read_ends(x)[1] if isinstance(x, Loop) else None
        for a in accesses(x):
            b = nest.kernel.buffer(a.buffer)
            if not is_own(nest, a.buffer) and not b.private & inside:
                used.setdefault(a.buffer, []).append((k, loop, a))
    return frozenset(
        name
        for name, uses in used.items()
        if any(a.written for *_, a in uses)
        and (nest.steps is not None or len({k for k, *_ in uses}) > 1)
        and not any(map(_is_element, zip(*[_places(loop, a, inside) for _, loop, a in uses])))
    )


def _places(loop: Loop | None, a: Access, inside: set[str]) -> list[Index | None]:
    """Subscripts by the number of the row's element; None where other threads may have the same."""
    if loop is None:
        return [None] * len(a.subscripts)
    at = {loop.variable: var(ELEMENT) + loop.lower}
    places = [substitute(s, at) if isinstance(s, Index) else None for s in a.subscripts]
    return [None if e is None or e.variables() & inside else e for e in places]


def _is_element(places: tuple[Index | None, ...]) -> bool:
    """The same subscript everywhere, and another for each element."""
    (first, *others) = dict.fromkeys(places)
    if others or first is None:
        return False
    return ELEMENT not in (first - var(ELEMENT)).variables()


def read_ends(x: Loop) -> tuple[list[Loop], Loop]:
    """What is read of the ends of a range, and the loop over it."""
    read: list[Loop] = []
    while x.value is not None and isinstance(x.body, Loop):
        read.append(x)
        x = x.body
    return read, x


def _into(u: Node, parts: Mapping[str, Part]) -> Node:
    if isinstance(u, Update) and u.buffer in parts:
        return replace(u, buffer=parts[u.buffer][1].name, subscripts=())
    return u
