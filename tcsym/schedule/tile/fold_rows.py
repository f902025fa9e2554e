# SPDX-License-Identifier: Apache-2.0
"""Short rows that lie one behind the other in memory -> vectors that run across them.

`O(b,i,j) = X(b,i) * Y(b,j)` with six j: a row fills six lanes. As many rows as a vector has lanes
are as many whole vectors as a row has elements, and which row and column a lane has is the same in
every such group: two tables of small integers, made once. What moves with rows or columns alone is
loaded once, a vector for a group, and permuted in registers.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Compare, Const, Expr, IndexValue, Read, Select
from tcsym.index.expr import (
    FALSE,
    ONE,
    ZERO,
    Index,
    all_of,
    ceildiv,
    floordiv,
    ge,
    index,
    minimum,
    var,
)
from tcsym.index.values import Values, product_of, substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Holds, Kernel, Loop, Node, Store, Value, block
from tcsym.ir.traverse import map_value, subvalues
from tcsym.schedule.analysis.access import offset_stride, value_variables
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import chain_of, find_loop, in_loops, loops_around, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.overlap import is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import FoldRows, Version
from tcsym.types import DType

MOST_PERMUTED = 6  # vectors, which stay in registers
LEAST_ROWS = 64  # of all loops: the tables take as long as 50 rows


def fold_rows(kernel: Kernel, nest: str, setting: Setting) -> Version[FoldRows] | None:
    """A version for short rows; None if the nest's last two loops make no such rows."""
    chain = chain_of(find_loop(kernel.body, nest))
    if len(chain) < 2 or not _is_foldable(kernel, chain, setting):
        return None
    rows, columns = chain[-2:]
    lanes = setting.lanes(kernel, columns.body)
    n, all_rows = extent(columns), product_of([extent(x) for x in chain[:-1]])
    short = (ge(extent(rows), lanes), ge(all_rows, LEAST_ROWS), ge(n, 1), ge(lanes - 1, n))
    condition = in_context(kernel, all_of(short))
    if condition == FALSE:
        return None
    note = f"short rows: vectors across rows of {columns.variable}"
    return Version(condition, FoldRows(columns.variable), "before", note=note, keeps_rest=True)


def _is_foldable(kernel: Kernel, chain: tuple[Loop, ...], setting: Setting) -> bool:
    """Element-wise, with results one behind the other; operands move as they do, or with one."""
    rows, columns = chain[-2:]
    store, inside = columns.body, {x.variable for x in chain}
    plain = all(x.order == "parallel" and x.kind == "serial" for x in chain)
    if not isinstance(store, Store) or not plain or setting.lanes(kernel, store) == 1:
        return False
    used = [extent(x).variables() for x in chain] + [rows.lower.variables()]
    if columns.lower != ZERO or not frozenset().union(*used) <= frozenset(kernel.sizes):
        return False
    if any(b.private & inside for b in kernel.buffers) or loops_around(
        kernel.body, chain[0].variable
    ):
        return False
    pair = frozenset((rows.variable, columns.variable))
    if not is_repeatable(kernel, store, pair) or not _is_run(kernel, store, rows, columns):
        return False
    values = tuple(subvalues(store.value))
    permuted = {v for v in values if isinstance(v, Read) and len(value_variables(v) & pair) == 1}
    fits = all(_has_vectors(kernel, v, rows, columns, setting) for v in values)
    return fits and 0 < len(permuted) <= MOST_PERMUTED


def _has_vectors(kernel: Kernel, v: Value, rows: Loop, columns: Loop, setting: Setting) -> bool:
    """A vector across rows can have the operand: as it lies in memory, or permuted."""
    own = value_variables(v) & {rows.variable, columns.variable}
    if isinstance(v, IndexValue | Holds) or (isinstance(v, Select) and not v.eager):
        return not own
    if not isinstance(v, Read) or not own:
        return True
    if any(v.checked) or v.unwritten or not all(isinstance(s, Index) for s in v.subscripts):
        return False
    if len(own) == 2:
        return _is_run(kernel, v, rows, columns)
    bits, machine = kernel.buffer(v.tensor).dtype.bits, setting.machine
    whole = machine.lanes(bits) == setting.lanes(kernel, columns.body)
    return whole and (bits == 32 or (bits == 64 and machine.has_masks))


def _is_run(kernel: Kernel, x: Store | Read, rows: Loop, columns: Loop) -> bool:
    """The element after a row's last one is the next row's first."""
    b = kernel.buffer(x.buffer if isinstance(x, Store) else x.tensor)
    across = offset_stride(b, x.subscripts, rows.variable)
    return offset_stride(b, x.subscripts, columns.variable) == ONE and across == extent(columns)


def schedule_folded_rows(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """Groups of rows { vectors { lanes } }; the last group starts early enough to be whole.

    Contract: `fold_rows`.
    """
    *outer, rows, columns = chain_of(find_loop(kernel.body, nest))
    names, lanes = setting.names, setting.lanes(kernel, columns.body)
    group, vector, lane = (names.fresh(x.variable) for x in (rows, columns, columns))
    first = rows.lower + minimum(var(group) * lanes, extent(rows) - lanes)
    place, n = var(vector) * lanes + var(lane), extent(columns)
    row = floordiv(place, n)
    at = {rows.variable: first + row, columns.variable: place - row * n}
    around = frozenset(x.variable for x in outer)
    moved = _Permuted(kernel, rows.variable, columns, first, lanes, around, group, names)
    moved.at = (var(vector), var(lane))
    store = columns.body
    assert isinstance(store, Store)
    value = map_value(store.value, lambda v: moved.value(v, at), lambda i: i)
    store = replace(store, subscripts=_substituted(store.subscripts, at), value=value)
    node: Node = Loop(lane, ZERO, index(lanes), store, "vector", "parallel")
    node = block(*moved.of_rows, Loop(vector, ZERO, n, node, "serial", "parallel"))
    node = Loop(group, ZERO, ceildiv(extent(rows), lanes), node, "serial", "parallel")
    node = in_loops(outer, block(*moved.of_columns, node))
    if moved.tables:
        of_row, of_column = (moved.tables[v] for v in (rows.variable, columns.variable))
        node = block(*_tables(of_row, of_column, n, lanes, names), node)
    return replace(moved.kernel, body=replace_loop(kernel.body, nest, lambda _: node))


def _substituted(subscripts: tuple[Index | Expr, ...], at: Values) -> tuple[Index, ...]:
    return tuple(substitute(s, at) for s in subscripts if isinstance(s, Index))


class _Permuted(Struct):
    """Operands of rows or columns alone: vectors of them, and how these are loaded.

    tables: by loop, the buffer with its iteration for each vector of a group and lane. at: these.
    """

    kernel: Kernel
    rows: str
    columns: Loop
    first: Index
    lanes: int
    around: frozenset[str]
    group: str
    names: Names
    tables: dict[str, str] = field(default_factory=dict)
    at: tuple[Index, ...] = ()
    made: dict[Read, str] = field(default_factory=dict)
    of_rows: list[Node] = field(default_factory=list)
    of_columns: list[Node] = field(default_factory=list)

    def table(self, loop: str) -> str:
        shape = (index(self.lanes), index(self.lanes))
        name = self.names.fresh(f"{loop}_of")
        self.kernel = self.kernel.with_buffer(Buffer(name, DType.INT32, shape, "arena"))
        return name

    def value(self, v: Value, at: Values) -> Value:
        own = value_variables(v) & at.keys() if isinstance(v, Read) else frozenset()
        if not isinstance(v, Read) or not own:
            return v
        if len(own) == 2:
            return replace(v, subscripts=_substituted(v.subscripts, at))
        if v not in self.made:
            self.made[v] = self._loaded(v, self.rows in own)
            self.tables = self.tables or {x: self.table(x) for x in at}
        place = Read(self.tables[next(iter(own))], self.at, DType.INT32)
        return Read(self.made[v], (place,), v.dtype)

    def _loaded(self, v: Read, of_rows: bool) -> str:
        name, lane = self.names.fresh(f"{v.tensor}_vector"), self.names.fresh(self.columns.variable)
        private = self.around | {self.group} if of_rows else self.around
        dtype = self.kernel.buffer(v.tensor).dtype
        b = Buffer(name, dtype, (index(self.lanes),), "stack", padded=True, private=private)
        self.kernel = self.kernel.with_buffer(b)
        moved = {self.rows: self.first + var(lane), self.columns.variable: var(lane)}
        read = replace(v, subscripts=_substituted(v.subscripts, moved))
        mask = None if of_rows else extent(self.columns)
        load = Store(name, (var(lane),), read, name)
        vector = Loop(lane, ZERO, index(self.lanes), load, "vector", "parallel", mask)
        (self.of_rows if of_rows else self.of_columns).append(vector)
        return name


def _tables(rows: str, columns: str, n: Index, lanes: int, names: Names) -> tuple[Node, ...]:
    """Row and column of each lane: of the first vector, and of others from those before them."""
    first, lane, vector = names.fresh("l"), names.fresh("l"), names.fresh("v")
    kind, here = DType.INT32, (var(vector), var(lane))
    row = floordiv(var(first), n)
    start = block(
        Store(rows, (ZERO, var(first)), IndexValue(row, kind), rows),
        Store(columns, (ZERO, var(first)), IndexValue(var(first) - row * n, kind), columns),
    )
    above = (var(vector) - 1, var(lane))
    whole = floordiv(index(lanes), n)
    column = _plus(Read(columns, above, kind), IndexValue(lanes - whole * n, kind))
    length = IndexValue(n, kind)
    ends, one = Compare("ge", column, length), Const(1, kind)
    left = Select(ends, Binary("sub", column, length, kind), column, kind, eager=True)
    next_row = _plus(Read(rows, above, kind), IndexValue(whole, kind))
    later = block(
        Store(rows, here, Select(ends, _plus(next_row, one), next_row, kind, eager=True), rows),
        Store(columns, here, left, columns),
    )
    step = Loop(lane, ZERO, index(lanes), later, "vector", "parallel")
    return (
        Loop(first, ZERO, index(lanes), start, "serial", "sequential"),
        Loop(vector, ONE, n, step, "serial", "sequential"),
    )


def _plus(a: Expr, b: Expr) -> Expr:
    return Binary("add", a, b, DType.INT32)
