"""A nest and its plan -> loops of a grid, private to its threads what was to the nest's loops.

Positions of loops are substituted: `m` becomes `64*tile + 4*(thread/16) + i`. What of a temporary's
subscripts moves with blocks and threads is dropped later (`storage.contract_storage`), and so sums
become registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import mul
from typing import assert_never

from tcsym.frontend.program import Binary, Cast, Expr, Read, Unary
from tcsym.index.expr import (
    ZERO,
    Condition,
    Index,
    all_of,
    ceildiv,
    eq,
    floordiv,
    ge,
    index,
    lt,
    mod,
    var,
)
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.device import WARP, Barrier
from tcsym.ir.loops import (
    Branch,
    Buffer,
    Holds,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Shuffle,
    Store,
    Update,
    Value,
    block,
    conditional,
    value_dtype,
)
from tcsym.ir.traverse import loads, map_node, substitute_node, walk
from tcsym.schedule.analysis.access import stride, value_variables
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import chain_of, children
from tcsym.schedule.analysis.names import Names, renamed_loops
from tcsym.schedule.device.plan import (
    BLOCK_THREADS,
    BlockRows,
    DevicePlan,
    SharedTiles,
    ThreadPoints,
)
from tcsym.schedule.device.propose import Nest, is_own

PADDING = 4  # elements between rows of a panel that is filled across


@dataclass(frozen=True, slots=True)
class Applied:
    """`node`: the grid in place of the nest."""

    kernel: Kernel
    node: Node


def apply(plan: DevicePlan, nest: Nest, names: Names) -> Applied:
    """The nest by the plan, which was proposed for it."""
    match plan:
        case ThreadPoints():
            return _Grid(nest, names).points()
        case BlockRows():
            return _Grid(nest, names).rows(plan)
        case SharedTiles():
            return _Grid(nest, names).tiles(plan)
        case _:
            assert_never(plan)


@dataclass(slots=True)
class _Grid:
    """added: scalars of each thread. private: temporaries of which each has a few elements."""

    nest: Nest
    names: Names
    added: list[Buffer] = field(default_factory=list)
    private: list[str] = field(default_factory=list)

    def points(self) -> Applied:
        thread, outer = self.names.fresh("thread"), self.names.fresh("block")
        chain = self.nest.chain
        total = reduce(mul, map(extent, chain))
        flat = var(outer) * BLOCK_THREADS + var(thread)
        body = at_iteration(chain, flat, self.nest.body)
        left = total - var(outer) * BLOCK_THREADS
        inside = Loop(thread, ZERO, index(BLOCK_THREADS), body, "thread", "parallel", mask=left)
        return self._applied(outer, ceildiv(total, BLOCK_THREADS), inside, thread)

    def _applied(self, outer: str, blocks: Index, body: Node, *own: str) -> Applied:
        """What is private to all of the nest's loops is private to `own` and the block.

        What is private to some of them keeps an element for each: their iterations run at once.
        """
        kernel, loops = self.nest.kernel, {*self.nest.variables}
        for b in kernel.buffers:
            if loops <= b.private or b.name in self.private:
                kernel = kernel.with_buffer(replace(b, private=b.private | {outer, *own}))
            elif b.space == "shared" and not b.private:
                kernel = kernel.with_buffer(replace(b, private=frozenset((outer,))))
            elif b.private & loops:
                kernel = kernel.with_buffer(replace(b, private=b.private - loops))
        for b in self.added:
            kernel = kernel.with_buffer(replace(b, private=b.private | {outer, *own}))
        return Applied(kernel, Loop(outer, ZERO, blocks, body, "block", "parallel"))

    # ---- rows

    def rows(self, plan: BlockRows) -> Applied:
        outer = self.names.fresh("block")
        self._keep_between_phases()
        phases: list[Node] = []
        own: list[str] = []
        for x in children(self.nest.body):
            phases += self._phase(x, plan.threads, own)
        body = at_iteration(self.nest.chain, var(outer), block(*phases))
        total = reduce(mul, map(extent, self.nest.chain))
        return self._applied(outer, total, body, *own)

    def _keep_between_phases(self) -> None:
        """Arrays that belong to a row are all threads': one may read what another wrote."""
        kernel, chain = self.nest.kernel, {*self.nest.variables}
        inside = {x.variable for x in children(self.nest.body) if isinstance(x, Loop)}
        for b in kernel.buffers:
            if chain <= b.private and not is_own(self.nest, b.name) and not inside & b.private:
                kernel = kernel.with_buffer(replace(b, private=b.private - chain))
        self.nest = replace(self.nest, kernel=kernel)

    def _threads(self, n: int, own: list[str], mask: Index | None = None) -> Loop:
        """A loop over threads, without a body yet."""
        thread = self.names.fresh("thread")
        own.append(thread)
        return Loop(thread, ZERO, index(n), block(), "thread", "parallel", mask=mask)

    def _phase(self, x: Node, n: int, own: list[str]) -> list[Node]:
        """What the threads do of one part of the row, and a barrier."""
        if isinstance(x, Store):
            alone = None if is_own(self.nest, x.buffer) else index(1)
            threads = replace(self._threads(n, own, alone), body=x)
            return [threads] if alone is None else [threads, Barrier()]
        assert isinstance(x, Loop)
        threads = self._threads(n, own)
        sums = [u for u, _ in walk(x.body) if isinstance(u, Update) and self._is_sum(u, x)]
        parts = {u.buffer: self._part(u.buffer) for u in sums}
        step = self.names.fresh(x.variable)
        count = ceildiv(extent(x) - var(threads.variable), n)
        at = x.lower + var(threads.variable) + var(step) * n
        body = substitute_node(x.body, {x.variable: at})
        body = map_node(body, lambda u: _into(u, parts))
        steps = Loop(step, ZERO, count, body, "serial", x.order)
        first = [Store(p.name, (), identity(u.op, p.dtype)) for u, p in _of(sums, parts)]
        self._share(x.variable, step)
        out: list[Node] = [replace(threads, body=block(*first, steps))]
        out += [y for u, p in _of(sums, parts) for y in self._combined(u, p, n, own)]
        return out if sums else [*out, Barrier()]

    def _share(self, loop: str, step: str) -> None:
        """What is private to iterations of a loop is private to a thread's steps of it."""
        kernel = self.nest.kernel
        for b in kernel.buffers:
            if loop in b.private:
                kernel = kernel.with_buffer(replace(b, private=b.private | {step}))
        self.nest = replace(self.nest, kernel=kernel)

    def _is_sum(self, u: Update, x: Loop) -> bool:
        if not is_own(self.nest, u.buffer):
            return False
        moves = any(x.variable in s.variables() for s in u.subscripts)
        return not moves and x.variable not in self.nest.kernel.buffer(u.buffer).private

    def _part(self, buffer: str) -> Buffer:
        """A thread's part of a sum."""
        b = self.nest.kernel.buffer(buffer)
        part = Buffer(self.names.fresh(f"{buffer}_part"), b.dtype, (), "arena")
        self.added.append(part)
        return part

    def _combined(self, u: Update, part: Buffer, n: int, own: list[str]) -> list[Node]:
        """The parts of all threads, added to the sum of each."""
        dtype, warps = part.dtype, n // WARP
        kept = Buffer(self.names.fresh(f"{u.buffer}_warps"), dtype, (index(warps),), "shared")
        self.nest = replace(self.nest, kernel=self.nest.kernel.with_buffer(kept))
        got = Buffer(self.names.fresh(f"{u.buffer}_other"), dtype, (), "arena")
        self.added.append(got)
        mine, other = Read(part.name, (), dtype), Read(got.name, (), dtype)
        steps: list[Node] = []
        lanes = WARP // 2
        while lanes:
            steps.append(Store(got.name, (), Shuffle("across", lanes, mine, dtype)))
            steps.append(Store(part.name, (), Binary(u.op, mine, other, dtype)))
            lanes //= 2
        warp, every = self._threads(n, own), self._threads(n, own)
        at = var(warp.variable)
        note = Store(kept.name, (floordiv(at, WARP),), mine)
        steps.append(Branch(eq(mod(at, WARP), 0), note))
        w = self.names.fresh("warp")
        add = Update(u.buffer, u.subscripts, u.op, Read(kept.name, (var(w),), dtype), u.name)
        total = Loop(w, ZERO, index(warps), add, "unrolled", "reduction")
        return [replace(warp, body=block(*steps)), Barrier(), replace(every, body=total)]

    # ---- tiles

    def tiles(self, plan: SharedTiles) -> Applied:
        outer, own = self.names.fresh("block"), list[str]()
        nest, chain = self.nest, self.nest.chain
        by = {x.variable: x for x in chain}
        sizes = {plan.rows: plan.block_rows, plan.columns: plan.block_columns}
        tile = {v: self.names.fresh(v) for v in sizes}
        grid = [
            Loop(tile[v], ZERO, ceildiv(extent(x), sizes[v]), block(), "serial", "parallel")
            if v in sizes
            else x
            for v, x in by.items()
        ]
        start = {v: by[v].lower + var(tile[v]) * n for v, n in sizes.items()}
        body = children(nest.body)
        at = next(k for k, x in enumerate(body) if isinstance(x, Loop))
        total = body[at]
        assert isinstance(total, Loop)
        place = _Place(plan, by, start)
        phases = [
            self._points(block(*body[:at]), place, own),
            self._sum(chain_of(total), place, own),
            self._points(block(*body[at + 1 :]), place, own),
        ]
        inside = at_iteration(tuple(grid), var(outer), block(*phases))
        self._share(plan.rows, tile[plan.rows])
        self._share(plan.columns, tile[plan.columns])
        self._without(plan)
        count = reduce(mul, map(extent, grid))
        return self._applied(outer, count, inside, *own, *tile.values())

    def _without(self, plan: SharedTiles) -> None:
        """A thread has several rows and columns: they tell its elements apart."""
        kernel, gone = self.nest.kernel, {plan.rows, plan.columns}
        chain = {*self.nest.variables}
        for b in kernel.buffers:
            if chain <= b.private:
                kept = (b.private - gone) | {x for x in self.nest.variables if x not in gone}
                kernel = kernel.with_buffer(replace(b, private=kept))
                self.private.append(b.name)
        self.nest = replace(self.nest, kernel=kernel)

    def _points(self, n: Node, place: _Place, own: list[str]) -> Node:
        """`n` at each of a thread's points that is there."""
        if n == block():
            return n
        threads = self._threads(place.plan.threads, own)
        return replace(threads, body=self._each(n, place, threads.variable, guarded=True))

    def _each(self, n: Node, place: _Place, thread: str, guarded: bool) -> Node:
        i, j = self.names.fresh(place.plan.rows), self.names.fresh(place.plan.columns)
        row, column = place.point(thread, i, j)
        n = renamed_loops(n, self.names)
        n = substitute_node(n, {place.plan.rows: row, place.plan.columns: column})
        if guarded:
            n = conditional(place.inside(row, column), n)
        plan = place.plan
        n = Loop(j, ZERO, index(plan.column_points), n, "unrolled", "parallel")
        return Loop(i, ZERO, index(plan.row_points), n, "unrolled", "parallel")

    def _sum(self, around: tuple[Loop, ...], place: _Place, own: list[str]) -> Node:
        """Steps of the sum: operands staged, then used by all points."""
        plan = place.plan
        staged = next(x for x in around if x.variable == plan.sum)
        others = [x for x in around if x is not staged]
        terms = [x for x in children(around[-1].body) if isinstance(x, Update)]
        panel, step = self.names.fresh(plan.sum), self.names.fresh(plan.sum)
        first = staged.lower + var(panel) * plan.depth
        stage = _Staging(self, place, staged, first, step)
        uses = [replace(t, value=stage.value(expression(t.value))) for t in terms]
        fills = [self._fill(p, place, staged, first, own) for p in stage.panels]
        threads = self._threads(plan.threads, own)
        use = substitute_node(block(*uses), {plan.sum: first + var(step)})
        left = extent(staged) - var(panel) * plan.depth
        whole = self._steps(use, step, index(plan.depth), place, threads.variable)
        ragged = self._steps(use, step, left, place, threads.variable)
        each = Branch(ge(left, plan.depth), whole, ragged)
        inner: Node = block(*fills, Barrier(), replace(threads, body=each), Barrier())
        inner = Loop(panel, ZERO, ceildiv(extent(staged), plan.depth), inner, "serial", "reduction")
        for x in reversed(others):
            inner = replace(x, body=inner)
        return inner

    def _steps(self, use: Node, step: str, count: Index, place: _Place, thread: str) -> Node:
        own = self.names.fresh(step)
        use = substitute_node(use, {step: var(own)})
        return Loop(
            own, ZERO, count, self._each(use, place, thread, guarded=False), "serial", "reduction"
        )

    def _fill(self, p: _Panel, place: _Place, staged: Loop, first: Index, own: list[str]) -> Node:
        """The panel from memory; what is not there stays unset, and is not used."""
        plan, width = place.plan, p.width
        threads = self._threads(plan.threads, own)
        part = self.names.fresh("part")
        flat = var(part) * plan.threads + var(threads.variable)
        if p.is_across:
            step, side = mod(flat, plan.depth), floordiv(flat, plan.depth)
        else:
            step, side = floordiv(flat, width), mod(flat, width)
        at = {p.side: place.start[p.side] + side, plan.sum: first + step}
        value = map_node(Store("", (), p.value), on_index=lambda e: substitute(e, at))
        assert isinstance(value, Store)
        store = Store(p.buffer.name, (step, side), value.value)
        loop = place.by[p.side]
        there = [lt(at[p.side], loop.upper), lt(at[plan.sum], staged.upper)]
        count = -(-plan.depth * width // plan.threads)
        if count * plan.threads > plan.depth * width:
            there.append(ge(plan.depth * width - 1, flat))
        fill = conditional(all_of(there), store)
        loops = Loop(part, ZERO, index(count), fill, "unrolled", "parallel")
        return replace(threads, body=loops)


@dataclass(frozen=True, slots=True)
class _Place:
    """`start`: of the block's rows and columns. `by`: the nest's loops."""

    plan: SharedTiles
    by: Mapping[str, Loop]
    start: Mapping[str, Index]

    def point(self, thread: str, i: str, j: str) -> tuple[Index, Index]:
        """Row and column of a thread's point."""
        plan = self.plan
        across = plan.block_columns // plan.column_points
        down, along = floordiv(var(thread), across), mod(var(thread), across)
        row = self.start[plan.rows] + down * plan.row_points + var(i)
        return row, self.start[plan.columns] + along * plan.column_points + var(j)

    def inside(self, row: Index, column: Index) -> Condition:
        by, plan = self.by, self.plan
        return all_of((lt(row, by[plan.rows].upper), lt(column, by[plan.columns].upper)))


@dataclass(frozen=True, slots=True)
class _Panel:
    """Values that move with one side and the sum, in shared memory: a row for each step.

    is_across: neighbours in memory are steps, so that these are read side by side.
    """

    value: Value
    side: str
    width: int
    buffer: Buffer
    is_across: bool


@dataclass(slots=True)
class _Staging:
    grid: _Grid
    place: _Place
    loop: Loop
    first: Index
    step: str
    panels: list[_Panel] = field(default_factory=list)

    def value(self, v: Expr) -> Expr:
        """The value with what panels hold read from these."""
        plan = self.place.plan
        used = value_variables(v)
        sides = [s for s in (plan.rows, plan.columns) if s in used]
        if len(sides) == 1 and loads(v) and self.loop.variable in used:
            return self._staged(v, sides[0])
        match v:
            case Binary(_, a, b):
                return replace(v, left=self.value(a), right=self.value(b))
            case Cast(a) | Unary(_, a):
                return replace(v, operand=self.value(a))
            case _:
                return v

    def _staged(self, v: Expr, side: str) -> Expr:
        plan, dtype = self.place.plan, value_dtype(v)
        panel = next((p for p in self.panels if p.value == v), None)
        if panel is None:
            width = plan.block_rows if side == plan.rows else plan.block_columns
            across = _lies_across(self.grid.nest.kernel, v, self.loop.variable)
            shape = (index(plan.depth), index(width + (PADDING if across else 0)))
            name = self.grid.names.fresh("panel")
            buffer = Buffer(name, dtype, shape, "shared")
            kernel = self.grid.nest.kernel.with_buffer(buffer)
            self.grid.nest = replace(self.grid.nest, kernel=kernel)
            panel = _Panel(v, side, width, buffer, across)
            self.panels.append(panel)
        at = var(side) - self.place.start[side]
        step = var(plan.sum) - self.first
        return Read(panel.buffer.name, (step, at), dtype)


def _lies_across(kernel: Kernel, v: Value, step: str) -> bool:
    return any(stride(kernel.buffer(r.tensor), r.subscripts, step) == index(1) for r in loads(v))


def _into(u: Node, parts: Mapping[str, Buffer]) -> Node:
    if isinstance(u, Update) and u.buffer in parts:
        return replace(u, buffer=parts[u.buffer].name, subscripts=())
    return u


def _of(sums: Sequence[Update], parts: Mapping[str, Buffer]) -> list[tuple[Update, Buffer]]:
    return [(u, parts[u.buffer]) for u in {u.buffer: u for u in sums}.values()]


def at_iteration(chain: tuple[Loop, ...], flat: Index, body: Node) -> Node:
    """`body` in the one iteration of the loops that has the number `flat`."""
    for loop in reversed(chain):
        n = extent(loop)
        at = loop.lower + (flat if loop is chain[0] else mod(flat, n))
        flat = floordiv(flat, n)
        body = Loop(loop.variable, at, at + 1, body, "serial", loop.order)
    return body


def expression(v: Value) -> Expr:
    """A value of a naive kernel's sum."""
    assert not isinstance(v, Holds | HorizontalReduce | Shuffle)
    return v
