# SPDX-License-Identifier: Apache-2.0
"""Leaf schedule `column blocks`: reductions into rows of many columns, a block of them at a time.

A strip of a few vectors walks down the rows in steps as long as a row: every step is another page,
and no prefetcher follows. Here the sums of a block of columns fill half of the first cache, and
each pass over them adds several rows: memory is read in long runs, and a sum is loaded and stored
once a pass. Whole rows are one block in most programs.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import (
    ONE,
    ZERO,
    Condition,
    Index,
    all_of,
    any_of,
    floordiv,
    ge,
    index,
    minimum,
    mod,
    var,
)
from tcsym.index.values import Values
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, Value, block
from tcsym.ir.traverse import map_node, substitute_node
from tcsym.schedule.analysis.access import accesses, stride, subscript_variables
from tcsym.schedule.analysis.band import Band, band_of
from tcsym.schedule.analysis.checked_rows import check_rows, checks_refusal, gathered_rows
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import (
    chain_of,
    children,
    find_loop,
    is_leaf,
    loops_around,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.vector_legality import can_mask
from tcsym.schedule.combine.rfactor_rows import PART_ROWS
from tcsym.schedule.tile.vector_rows import RowShape, vectorise_row

PASSES = (8, 2, 1)  # rows added in one pass; then those that are left
VECTORS = 2
STEP = 64  # columns: whole vectors of any type
LEAST_ROWS = 16


def blocks_pay(kernel: Kernel, columns: str, setting: Setting) -> Condition | None:
    """Where blocks beat strips; None if the loop `columns` does not just reduce rows of columns."""
    band = band_of(find_loop(kernel.body, columns))
    nodes = children(band.body)
    sums = [x for x in nodes if isinstance(x, Loop)]
    lanes = setting.lanes(kernel, band.body)
    if len(band.loops) > 1 or not sums or lanes == 1:
        return None
    if not all(isinstance(x, Loop | Store) for x in nodes):
        return None
    if not all(_is_row_sum(kernel, x, columns) for x in sums):
        return None
    if not all(_is_plain(band, b) for b in kernel.buffers if columns in b.private):
        return None
    n = extent(band.loops[0])
    strip = lanes * setting.strip_vectors
    wide = any_of((ge(n, 2 * strip + 1), ge(mod(n, index(strip)), 1)))  # not one whole strip or two
    rows = [ge(extent(chain_of(x)[-1]), LEAST_ROWS) for x in sums]
    return all_of((wide, *rows, gathered_rows(kernel, band)))


def _is_row_sum(kernel: Kernel, loop: Loop, columns: str) -> bool:
    """Rows of neighbouring columns, added, multiplied or compared, as many as sizes say."""
    chain = chain_of(loop)
    updates = children(chain[-1].body)
    return (
        is_leaf(chain[-1])
        and all(x.order == "reduction" and x.kind == "serial" for x in chain)
        and extent(chain[-1]).variables() <= frozenset(kernel.sizes)
        and all(isinstance(x, Update) and not checks_refusal(x, columns) for x in updates)
        and any(_is_row(kernel, x, columns) for x in updates)
    )


def _is_row(kernel: Kernel, x: Node, columns: str) -> bool:
    return any(
        stride(kernel.buffer(a.buffer), a.subscripts, columns) == ONE
        for a in accesses(x)
        if not a.written
    )


def _is_plain(band: Band, b: Buffer) -> bool:
    """A temporary of one element for each column: it will be a row of its block."""
    columns = band.loops[0]
    place = var(columns.variable) - columns.lower
    used = [a for a in accesses(band.body) if a.buffer == b.name]
    subscripts = {a.subscripts for a in used}
    if len(subscripts) != 1 or any(any(a.checked) for a in used):
        return not used
    moved = [s for s in used[0].subscripts if columns.variable in subscript_variables((s,))]
    return moved == [place] and subscript_variables(used[0].subscripts) <= b.private


def schedule_column_blocks(
    kernel: Kernel, columns: str, setting: Setting, rows: Index | None = None
) -> Kernel:
    """The loop `columns` in blocks, each statement and pass of it a loop over the block's columns.

    rows: how many there are, if threads are to share the columns where those are few.
    Contract: `blocks_pay` gives a condition, which holds, and the loop may run in vectors.
    """
    loop = find_loop(kernel.body, columns)
    lanes = setting.lanes(kernel, loop.body)
    masked = can_mask(kernel, loop.body, setting.machine)
    most = _most_columns(kernel, loop, setting)
    width = index(most) if rows is None else _shared_columns(most, rows)
    own = frozenset(b.name for b in kernel.buffers if columns in b.private)
    work = _Blocks(kernel, loop, setting, most, width, own)
    body = replace_loop(kernel.body, columns, lambda _: work.blocks())
    kernel = replace(work.kernel, body=body)
    for run in work.runs:
        shape = RowShape(lanes, VECTORS, masked)
        kernel = vectorise_row(kernel, run, run, shape, setting.names)
    return kernel


def _most_columns(kernel: Kernel, loop: Loop, setting: Setting) -> int:
    """Columns whose sums fill half of the first cache; a multiple of all vectors."""
    updated = {x.buffer for x, _ in statements_in(loop.body) if isinstance(x, Update)}
    bytes_ = sum(kernel.buffer(b).dtype.accumulator.bytes for b in updated)
    return max(1, setting.machine.level("l1").bytes // 2 // bytes_ // STEP) * STEP


def _shared_columns(most: int, rows: Index) -> Index:
    """An eighth of them while the rows are one part; all where there are parts enough."""
    eighth = max(1, most // 8 // STEP) * STEP
    return minimum(most, eighth * (1 + floordiv(rows, PART_ROWS)))


class _Blocks(Struct):
    """`width` <= `most`: columns of a block. `rows`: temporaries of one element a column.

    `runs`: loops over a block's columns.
    """

    kernel: Kernel
    columns: Loop
    setting: Setting
    most: int
    width: Index
    rows: frozenset[str]
    block: str = ""
    runs: list[str] = field(default_factory=list)

    def blocks(self) -> Node:
        self.block = self.setting.names.fresh(self.columns.variable)
        parts = [self.part(x) for x in children(self.columns.body)]
        count = floordiv(extent(self.columns) + self.width - 1, self.width)
        loop = Loop(self.block, ZERO, count, block(*parts), "serial", "parallel")
        self.kernel = self.with_rows()
        return loop

    def part(self, x: Node) -> Node:
        if isinstance(x, Loop):
            return replace_loop(x, chain_of(x)[-1].variable, self.passes)
        return self.along(lambda _: x)

    def along(self, body: Callable[[str], Node]) -> Node:
        """`body` for every column of the block; it is given the loop's name."""
        c = self.setting.names.fresh(self.columns.variable)
        self.runs.append(c)
        inside = substitute_node(self.in_rows(body(c), c), self.at(var(c)))
        n = extent(self.columns)
        n = minimum(self.width, n, n - var(self.block) * self.width)  # n: known to all loops around
        return Loop(c, ZERO, n, inside, "serial", "parallel")

    def at(self, place: Index) -> Values:
        """The column at that place of the block."""
        first = self.columns.lower + var(self.block) * self.width
        return {self.columns.variable: first + place}

    def passes(self, leaf: Loop) -> Node:
        """The loop over rows, by as many as a pass adds; then the rows that are left."""
        done, loops = ZERO, list[Node]()
        for rows in PASSES:
            many = self.setting.names.fresh(leaf.variable)
            first = leaf.lower + done + var(many) * rows
            count = floordiv(extent(leaf) - done, rows)
            body = self.one_pass(leaf, first, rows, many)
            loops.append(Loop(many, ZERO, count, body, "serial", leaf.order))
            done = done + count * rows
        return block(*loops)

    def one_pass(self, leaf: Loop, first: Index, rows: int, many: str) -> Node:
        """`rows` rows from `first` on, added to all sums of the block."""
        names = self.setting.names
        row, before, terms = names.fresh(leaf.variable), list[Node](), list[Update]()
        around = frozenset((self.block, many, *self.outside()))
        for x in children(leaf.body):
            assert isinstance(x, Update)
            checked = check_rows(self.kernel, x, var(row), rows, around, names)
            for b in checked.buffers:
                self.kernel = self.kernel.with_buffer(b)
            before += checked.before
            terms.append(replace(x, value=checked.value))

        def each_row(x: Node) -> Node:
            r = names.fresh(row)
            inside = substitute_node(x, {leaf.variable: first + var(row)})
            inside = substitute_node(inside, {row: var(r)})
            return Loop(r, ZERO, index(rows), inside, "unrolled", leaf.order)

        def sums(c: str) -> Node:
            return block(*(self.sum_of(x, each_row, rows, around | {c}, c) for x in terms))

        checks = (each_row(substitute_node(x, self.at(ZERO))) for x in before)
        return block(*checks, self.along(sums))

    def sum_of(
        self,
        x: Update,
        each_row: Callable[[Node], Node],
        rows: int,
        private: frozenset[str],
        c: str,
    ) -> Node:
        """acc op= the rows' values, with one access of the sum in memory."""
        if rows == 1:
            return each_row(x)
        dtype = self.kernel.buffer(x.buffer).dtype
        name = self.setting.names.fresh(f"{x.buffer}_pass")
        at, shape = (var(c),), (index(self.most),)
        own = Buffer(name, dtype, shape, "arena", private=private)
        self.kernel = self.kernel.with_buffer(own)
        start = Store(name, at, identity(x.op, dtype), x.name)
        added = each_row(replace(x, buffer=name, subscripts=at))
        return block(start, added, replace(x, value=Read(name, at, dtype)))

    def outside(self) -> tuple[str, ...]:
        return tuple(x.variable for x in loops_around(self.kernel.body, self.columns.variable))

    def in_rows(self, node: Node, c: str) -> Node:
        """Temporaries of a column lie in rows as long as a block."""
        at = (var(c),)

        def statement(x: Node) -> Node:
            known = isinstance(x, Store | Update) and x.buffer in self.rows
            return replace(x, subscripts=at) if known else x

        def value(v: Value) -> Value:
            known = isinstance(v, Read) and v.tensor in self.rows
            return replace(v, subscripts=at, checked=()) if known else v

        return map_node(node, statement, value)

    def with_rows(self) -> Kernel:
        """The kernel with those rows, each as long as the longest block."""
        kernel, shape = self.kernel, (index(self.most),)
        for name in sorted(self.rows):
            b = kernel.buffer(name)
            private = b.private - {self.columns.variable} | {self.block}
            row = replace(b, shape=shape, strides=None, padded=True, private=private)
            kernel = kernel.with_buffer(row)
        return kernel
