# SPDX-License-Identifier: Apache-2.0
"""The sum of a tile: panels of its operands in shared memory, copied ahead, used by all points.

    fill the first panels
    for each panel:
        wait for it; barrier
        begin to copy the panel that is `stages - 1` further on
        use this one, from shared memory into registers, at all of a thread's points

One barrier a panel: what is copied replaces what all have used before it. Edges are zeros, so that
products need no ragged steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Const, Expr, Read
from tcsym.index.expr import (
    ZERO,
    Condition,
    Index,
    all_of,
    ceildiv,
    floordiv,
    ge,
    index,
    lt,
    mod,
    var,
)
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.device import (
    MATRIX_ROWS,
    ROW_BYTES,
    WARP,
    Barrier,
    BeginCopy,
    CommitCopies,
    LoadMatrices,
    MatrixMultiply,
    Operand,
    WaitCopies,
    held,
    n_held,
    product_depth,
)
from tcsym.ir.loops import Branch, Buffer, Loop, Node, Store, Update, Value, block, conditional
from tcsym.ir.traverse import map_node, substitute_node
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.loops import in_loops
from tcsym.schedule.device.nest import Grid
from tcsym.schedule.device.panels import (
    Contraction,
    Panel,
    Roles,
    copied_elements,
    replaced,
    unstaged,
)
from tcsym.schedule.device.plan import SharedTiles, WarpTiles
from tcsym.schedule.device.points import NEIGHBOURS, Points

PADDING = 16  # bytes behind a row of a panel, so that the next one begins at other banks


class Tiles(Struct, frozen=True):
    """`start`: of the block's rows and columns. `registers`: temporaries of a point. `whole`: all
    neighbours of a thread along columns are there, or none."""

    plan: SharedTiles | WarpTiles
    grid: Grid
    contraction: Contraction
    points: Points
    start: Mapping[str, Index]
    registers: frozenset[str]
    whole: bool

    @property
    def roles(self) -> Roles:
        return self.contraction.roles

    def threads(self) -> Loop:
        return self.grid.threads(self.plan.threads)

    def at_points(self, n: Node) -> Node:
        """`n` at each of a thread's points; only at those that are there if it touches memory."""
        if n == block():
            return n
        threads = self.threads()
        guarded = any(a.buffer not in self.registers for a in accesses(n))
        return replace(threads, body=self.each(n, threads.variable, guarded))

    def each(
        self, n: Node, thread: str, guarded: bool, fragment: Mapping[str, str] | None = None
    ) -> Node:
        """`fragment`: buffers of a thread's rows or columns -> the side of these."""
        plan, points = self.plan, self.points
        loops = [self.grid.names.fresh(v) for v in (plan.rows,) * 2 + (plan.columns,) * 2]
        i, j = (var(loops[0]), var(loops[1])), (var(loops[2]), var(loops[3]))
        first = points.first(thread)
        row = self.start[plan.rows] + points.rows.place(first[0], i)
        column = self.start[plan.columns] + points.columns.place(first[1], j)
        n = self.in_registers(self.grid.copied(n), points.register(i, j))
        numbers = {plan.rows: points.rows.number(i), plan.columns: points.columns.number(j)}
        n = _placed(n, {b: numbers[side] for b, side in (fragment or {}).items()})
        n = substitute_node(n, {plan.rows: row, plan.columns: column})
        extents = (*points.rows.extents, *points.columns.extents)
        if guarded and self.whole:
            n = nested(loops[3:], extents[3:], n)
            first_column = substitute(column, {loops[3]: ZERO})
            n = conditional(self.inside(row, first_column), n)
            return nested(loops[:3], extents[:3], n)
        if guarded:
            n = conditional(self.inside(row, column), n)
        return nested(loops, extents, n)

    def inside(self, row: Index, column: Index) -> Condition:
        return all_of((lt(row, self.roles.rows.upper), lt(column, self.roles.columns.upper)))

    def in_registers(self, n: Node, place: tuple[Index, ...]) -> Node:
        """Temporaries of a point at their places."""
        return _placed(n, dict.fromkeys(self.registers, place))

    def staged(self, p: Panel) -> Staged:
        plan = self.plan
        rows, columns, pitch = panel_shape(plan, p)
        buffer = self.grid.shared("panel", p.dtype, plan.stages, rows, pitch)
        n = copied_elements(self.grid.nest.kernel, p, self.roles, plan.copied)
        fits = n > 0 and columns % n == 0  # no copy is longer than a row
        return Staged(p, buffer, rows, columns, n if fits else 0)


def panel_shape(plan: SharedTiles | WarpTiles, p: Panel) -> tuple[int, int, int]:
    """Rows and columns of a panel, and elements from one row to the next: more than columns where
    a warp reads several rows at once, which so lie in different banks."""
    padding = PADDING if lies_in_rows(p) else 2 * PADDING
    if not p.across and not isinstance(plan, WarpTiles):
        padding = 0
    width = plan.sizes[p.side]
    rows, columns = (width, plan.depth) if p.across else (plan.depth, width)
    return rows, columns, columns + padding // p.dtype.bytes


def lies_in_rows(p: Panel) -> bool:
    """A warp's matrices are loaded as such: where they are transposed, of 16 bits."""
    return p.across or p.dtype.bytes == 2


def matrix_steps(p: Panel, operand: Operand) -> tuple[tuple[int, int], ...]:
    """From one of a factor's small matrices to the next, in rows and columns of the panel."""
    deeper = (0, ROW_BYTES // p.dtype.bytes)
    steps = ((MATRIX_ROWS, 0), deeper) if operand == "left" else (deeper,)
    return steps if p.across else tuple((b, a) for a, b in steps)


def tiles_at_once(plan: WarpTiles, p: Panel) -> int:
    """Tiles of a warp's columns whose small matrices, two each, are loaded together, as four."""
    is_pair = plan.operand(p.side) == "right" and plan.own(p.side) % 2 == 0
    return 2 if is_pair and lies_in_rows(p) else 1


def _placed(n: Node, places: Mapping[str, Index | tuple[Index, ...]]) -> Node:
    """Accesses of these buffers, there."""
    at = {b: (p,) if isinstance(p, Index) else p for b, p in places.items()}

    def node(x: Node) -> Node:
        if isinstance(x, Store | Update) and x.buffer in at:
            return replace(x, subscripts=at[x.buffer])
        return x

    def value(v: Value) -> Value:
        return (
            Read(v.tensor, at[v.tensor], v.dtype) if isinstance(v, Read) and v.tensor in at else v
        )

    return map_node(n, node, value)


def nested(loops: Sequence[str], extents: Sequence[int], body: Node) -> Node:
    """Copies of the body, in as many unrolled loops."""
    for v, count in reversed(list(zip(loops, extents, strict=True))):
        if count == 1:
            body = substitute_node(body, {v: ZERO})
        else:
            body = Loop(v, ZERO, index(count), body, "unrolled", "parallel")
    return body


class Staged(Struct, frozen=True):
    """A panel in shared memory: `stages` times rows x columns. copied: elements at once, or 0."""

    panel: Panel
    buffer: Buffer
    rows: int
    columns: int
    copied: int

    def at(self, stage: Index, side: Index, step: Index) -> tuple[Index, ...]:
        return (stage, side, step) if self.panel.across else (stage, step, side)

    def read(self, stage: Index, side: Index, step: Index) -> Read:
        return Read(self.buffer.name, self.at(stage, side, step), self.panel.dtype)


class Sum(Struct, frozen=True):
    """Steps of the sum: operands staged, then used by all points."""

    tiles: Tiles
    staged: tuple[Staged, ...]

    def node(self) -> Node:
        plan, total = self.tiles.plan, self.tiles.roles.sum
        others = self.tiles.contraction.others
        panel = self.tiles.grid.names.fresh(plan.sum)
        panels = ceildiv(extent(total), plan.depth)
        first = [self.fill(index(s), panels) for s in range(plan.stages - 1)]
        ahead = plan.stages - 1
        inside = block(
            self.wait(plan.stages - 2),
            Barrier(),
            self.fill(var(panel) + ahead, panels),
            self.use(panel),
        )
        n = block(*first, Loop(panel, ZERO, panels, inside, "serial", "reduction"))
        return in_loops(others, block(n, self.wait(0), Barrier()) if others else n)

    def wait(self, pending: int) -> Node:
        return replace(self.tiles.threads(), body=WaitCopies(pending))

    # ---- into shared memory

    def fill(self, panel: Index, panels: Index) -> Node:
        """That panel of all operands, if there is one: a group of copies."""
        fills = block(*(self.fill_one(s, panel) for s in self.staged))
        commit = replace(self.tiles.threads(), body=CommitCopies())
        return block(conditional(lt(panel, panels), fills), commit)

    def fill_one(self, s: Staged, panel: Index) -> Node:
        tiles, plan, total = self.tiles, self.tiles.plan, self.tiles.roles.sum
        threads, part = tiles.threads(), tiles.grid.names.fresh("part")
        n = max(1, s.copied)
        along, copies = s.columns // n, s.rows * s.columns // n
        flat = var(part) * plan.threads + var(threads.variable)
        row, column = floordiv(flat, along), mod(flat, along) * n
        side, step = (row, column) if s.panel.across else (column, row)
        at = {
            s.panel.side: tiles.start[s.panel.side] + side,
            plan.sum: total.lower + panel * plan.depth + step,
        }
        there = (
            lt(at[s.panel.side], tiles.roles.loop(s.panel.side).upper),
            lt(at[plan.sum], total.upper),
        )
        target = s.at(mod(panel, plan.stages), side, step)
        n_parts = -(-copies // plan.threads)
        fill = _filled(s, target, at, all_of(there))
        if n_parts * plan.threads > copies:
            fill = Branch(lt(flat, copies), fill)
        return replace(threads, body=nested((part,), (n_parts,), fill))

    # ---- out of it

    def use(self, panel: str) -> Node:
        tiles, plan, total = self.tiles, self.tiles.plan, self.tiles.roles.sum
        threads = tiles.threads()
        if isinstance(plan, WarpTiles):
            return replace(threads, body=self.multiply(panel, threads.variable))
        whole = self.steps(panel, index(plan.depth), threads.variable)
        if tiles.contraction.is_zero_beyond:
            return replace(threads, body=whole)
        left = extent(total) - var(panel) * plan.depth
        ragged = self.steps(panel, left, threads.variable)
        return replace(threads, body=Branch(ge(left, plan.depth), whole, ragged))

    def steps(self, panel: str, count: Index, thread: str) -> Node:
        """Each step: operands into registers, then all points."""
        tiles, plan, total = self.tiles, self.tiles.plan, self.tiles.roles.sum
        step = tiles.grid.names.fresh(plan.sum)
        kept: dict[Expr, Read] = {}
        loads: list[Node] = []
        for s in self.staged:
            side, first = tiles.points.side(s.panel.side, thread)
            b = tiles.grid.register("operand", s.panel.dtype, side.count)
            kept[s.panel.value] = Read(b.name, (ZERO,), s.panel.dtype)
            loops = [tiles.grid.names.fresh(s.panel.side) for _ in side.extents]
            at = var(loops[0]), var(loops[1])
            value = s.read(self.stage(panel), side.place(first, at), var(step))
            loads.append(nested(loops, side.extents, Store(b.name, (side.number(at),), value)))
        of = tiles.roles, lambda v, _: kept[v]
        terms = [replace(t, value=replaced(t.value, *of)) for t in self.tiles.contraction.terms]
        first_step = total.lower + var(panel) * plan.depth
        use = substitute_node(block(*terms), {plan.sum: first_step + var(step)})
        guarded = any(unstaged(t.value, tiles.roles) for t in tiles.contraction.terms)
        sides = {r.tensor: s.panel.side for s, r in zip(self.staged, kept.values(), strict=True)}
        body = block(*loads, tiles.each(use, thread, guarded, sides))
        if count.as_int() is None:
            return Loop(step, ZERO, count, body, "serial", "reduction")
        fours, one = tiles.grid.names.fresh(plan.sum), tiles.grid.names.fresh(plan.sum)
        body = substitute_node(body, {step: var(fours) * NEIGHBOURS + var(one)})
        body = Loop(one, ZERO, index(NEIGHBOURS), body, "unrolled", "reduction")
        return Loop(fours, ZERO, ceildiv(count, NEIGHBOURS), body, "serial", "reduction")

    def stage(self, panel: str) -> Index:
        return mod(var(panel), self.tiles.plan.stages)

    def multiply(self, panel: str, thread: str) -> Node:
        """Operands into registers as the matrices of a warp's products, then these."""
        tiles, plan, points = self.tiles, self.tiles.plan, self.tiles.points
        names, (i, j) = tiles.grid.names, (points.rows, points.columns)
        step, row, column = (names.fresh(v) for v in (plan.sum, plan.rows, plan.columns))
        sides: dict[Operand, str] = {"left": plan.rows, "right": plan.columns}
        by = {s.panel.side: s for s in self.staged}
        loads: list[Node] = []
        kept: list[str] = []
        for (operand, side), name in zip(sides.items(), (row, column), strict=True):
            loads.append(self.matrices(by[side], operand, panel, (step, name), thread))
            kept.append(tiles.grid.added[-1].name)
        (term,) = self.tiles.contraction.terms
        assert isinstance(plan, WarpTiles)
        depth = product_depth(by[plan.rows].panel.dtype)
        at_once = tiles_at_once(plan, by[plan.columns].panel)
        each = [
            MatrixMultiply(
                term.buffer,
                (var(row), var(column) * at_once + q, ZERO),
                *(kept[0], (var(row), ZERO)),
                *(kept[1], (var(column), index(q * n_held("right", depth)))),
                depth,
            )
            for q in range(at_once)
        ]
        products = nested((row, column), (i.extents[0], j.extents[0] // at_once), block(*each))
        count = index(plan.depth // depth)
        return Loop(step, ZERO, count, block(*loads, products), "unrolled", "reduction")

    def matrices(
        self, s: Staged, operand: Operand, panel: str, at: tuple[str, str], thread: str
    ) -> Node:
        """The elements that a thread holds of all matrices of a side. at: step, number of those."""
        tiles, depth = self.tiles, product_depth(s.panel.dtype)
        n = n_held(operand, depth)
        side = tiles.points.rows if operand == "left" else tiles.points.columns
        assert isinstance(tiles.plan, WarpTiles)
        at_once = tiles_at_once(tiles.plan, s.panel)
        count = side.extents[0] // at_once
        b = tiles.grid.register(operand, s.panel.dtype, count, n * at_once)
        start = tiles.points.warp(thread)[0 if operand == "left" else 1]
        own = tiles.grid.names.fresh(at[1])
        if lies_in_rows(s.panel):
            place = start + var(own) * (at_once * side.strides[0])
            first = s.at(self.stage(panel), place, var(at[0]) * depth)
            further = (side.strides[0], 0) if s.panel.across else (0, side.strides[0])
            steps = (*matrix_steps(s.panel, operand), *[further] * (at_once - 1))
            lane = mod(var(thread), WARP)
            to = b.name, (var(own), ZERO)
            load = LoadMatrices(*to, s.buffer.name, first, steps, lane, not s.panel.across)
            return nested((own,), (count,), load)
        stores: list[Node] = []
        for e in range(n):
            row, column = held(operand, depth, mod(var(thread), WARP), e)
            beside, step = (row, column) if operand == "left" else (column, row)
            place = start + var(own) * side.strides[0] + beside
            value = s.read(self.stage(panel), place, var(at[0]) * depth + step)
            stores.append(Store(b.name, (var(own), index(e)), value))
        return nested((own,), side.extents[:1], block(*stores))


def _filled(
    s: Staged, target: tuple[Index, ...], at: Mapping[str, Index], there: Condition
) -> Node:
    """Elements of a panel from memory; zeros for those that are not there."""
    v = s.panel.value
    load = map_node(Store(s.buffer.name, target, v), on_index=lambda e: substitute(e, at))
    if not s.copied:
        zero = Store(s.buffer.name, target, Const(0, s.panel.dtype))
        return Branch(there, load, zero)
    assert isinstance(load, Store) and isinstance(load.value, Read)
    source = tuple(e for e in load.value.subscripts if isinstance(e, Index))
    return BeginCopy(s.buffer.name, target, load.value.tensor, source, s.copied, there)
