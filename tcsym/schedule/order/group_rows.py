# SPDX-License-Identifier: Apache-2.0
"""Rows of a contraction that find an operand by an index -> rows grouped by it, inspector/executor.

`Y(n,m) +=! G(n,j) * X(n,k) * W(chosen(n,j),m,k)` reads all of a matrix for each (n, j): rows that
chose the same one share nothing, as what the index says is known to the call only. The inspector
sorts rows by their index, by counting, so that rows of an index stay in order. The executor has a
contraction for each index, over copies of what its rows read; then each element of the text's nest
takes its sums back, in the order of the text.

    count[e], place[e]       rows of index e, and where they end among all
    order[q], slot[n,j]      the q-th row; the place of a row
    A[q,k] = G(n,j)*X(n,k)   for the q-th row (n, j)
    Z[q,m] +=! A[q,k] * W[e,m,k]
    Y[n,m] += Z[slot[n,j],m]

After R. Mirchandaney et al., Principles of runtime support for parallel processors, ICS 1988.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Const, Expr, IndexValue, Read, variables_of
from tcsym.index.expr import ZERO, Index, floordiv, minimum, mod, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Branch,
    Buffer,
    Kernel,
    Loop,
    LoopOrder,
    Node,
    Store,
    Update,
    Value,
    Verify,
    block,
    given,
    value_dtype,
)
from tcsym.ir.traverse import (
    certain_loads,
    loads,
    map_value,
    substitute_node,
    substitute_value,
    subvalues,
    value_children,
    walk,
)
from tcsym.schedule.analysis.access import (
    Subscripts,
    accesses,
    subscript_variables,
    value_variables,
)
from tcsym.schedule.analysis.band import band_of, contraction_roles
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import chain_of, find_loop, in_loops, replace_loop, statements_in
from tcsym.schedule.analysis.names import Names, rename_loops
from tcsym.schedule.combine.accumulate import converted
from tcsym.trees import leaves
from tcsym.types import DType

I64 = DType.INT64


class Found(Struct, frozen=True):
    """An update of a nest whose operands lie at `position` of the first dimension that says so.

    rows: loops that move the position, of which some may be of the sum; columns: other parallel
    loops; sums: other loops of the sum, which begins at the loop `first`. reads: the operands;
    extent: of what the position is in. moved: what of the term moves with rows, apart from these.
    """

    update: Update
    position: Expr
    rows: tuple[Loop, ...]
    columns: tuple[Loop, ...]
    sums: tuple[Loop, ...]
    first: str
    reads: tuple[Read, ...]
    extent: Index
    moved: tuple[Value, ...]

    @property
    def n_rows(self) -> Index:
        return product_of(map(extent, self.rows))


def grouping_of(kernel: Kernel, nest: str) -> Found | None:
    """None unless the nest has a contraction whose operand is found so, and no rows but those."""
    top = find_loop(kernel.body, nest)
    if any(isinstance(x, Branch) for x, _ in walk(top)):
        return None
    written = {a.buffer for a in accesses(top) if a.written}
    for x, around in statements_in(top):
        if isinstance(x, Update):
            for found in _groupings(kernel, x, around, written):
                return found
    return None


def _groupings(
    kernel: Kernel, x: Update, around: tuple[Loop, ...], written: set[str]
) -> Iterator[Found]:
    first = next((k for k, y in enumerate(around) if y.order == "reduction"), None)
    if first is None or not all(y.order == "parallel" for y in around[:first]):
        return
    if chain_of(around[first]) != around[first:] or around[-1].body != x:
        return
    known, inside = frozenset(kernel.sizes), {y.variable for y in around}
    if any(y.lower != ZERO or not y.upper.variables() <= known for y in around):
        return
    if any(r.tensor in written or r.unwritten is not None for r in loads(x.value)):
        return
    for at in dict.fromkeys(s for r in loads(x.value) for s in r.subscripts):
        if isinstance(at, Index) or any(any(r.checked) for r in loads(at)):
            continue
        moving = variables_of(at) & inside
        rows = tuple(y for y in around if y.variable in moving)
        rest = tuple(y for y in around if y.variable not in moving)
        found = _with_rows(kernel, x, at, rows, rest, around[first].variable)
        if found is not None:
            yield found


def _with_rows(
    kernel: Kernel, x: Update, at: Expr, rows: tuple[Loop, ...], rest: tuple[Loop, ...], first: str
) -> Found | None:
    names = {y.variable for y in rows}

    def is_operand(v: Value) -> bool:
        if not isinstance(v, Read) or v.subscripts.count(at) != 1:
            return False
        d = v.subscripts.index(at)
        others = (*v.subscripts[:d], *v.subscripts[d + 1 :])
        checked = any(c for k, c in enumerate(v.checked) if k != d)
        return not checked and not subscript_variables(others) & names

    reads = tuple(r for r in loads(x.value) if is_operand(r))
    columns = tuple(y for y in rest if y.order == "parallel")
    sums = tuple(y for y in rest if y.order == "reduction")
    shapes = {kernel.buffer(r.tensor).shape[r.subscripts.index(at)] for r in reads}
    used = frozenset[str]().union(*map(value_variables, reads))
    if not rows or len(shapes) != 1 or not {y.variable for y in columns} <= used:
        return None

    def below(v: Value) -> tuple[Value, ...]:
        has_operand = not is_operand(v) and any(map(is_operand, subvalues(v)))
        return value_children(v) if has_operand else ()

    def moved(v: Value) -> Iterator[Value]:
        found = (x for x in leaves(v, below) if not is_operand(x))
        return (x for x in found if value_variables(x) & names)

    if not {*reads} <= {*certain_loads(x.value)}:
        return None  # they are read, and checked, in some rows only
    parts = tuple(dict.fromkeys(moved(x.value)))
    all_rest = {y.variable for y in rest}
    if not columns or not sums or any(all_rest <= value_variables(v) for v in parts):
        return None
    return Found(x, at, rows, columns, sums, first, reads, shapes.pop(), parts)


def group_rows(kernel: Kernel, nest: str, names: Names) -> Kernel | None:
    """None if what is left for each index is no contraction whose rows use operands again.

    Contract: `grouping_of` finds something, and no loop of it is empty.
    """
    found = grouping_of(kernel, nest)
    assert found is not None
    return _Grouping(kernel, found, names).run(nest)


class _Grouping(Struct):
    """The nests in the making."""

    kernel: Kernel
    found: Found
    names: Names
    count: str = ""
    place: str = ""
    order: str = ""
    slot: str = ""
    sums: str = ""
    copies: dict[Value, str] = field(default_factory=dict)

    def run(self, nest: str) -> Kernel | None:
        f = self.found
        n = f.n_rows
        self.count = self.buffer("count", I64, f.extent)
        self.place = self.buffer("place", I64, f.extent + 1)
        self.order = self.buffer("order", I64, n)
        self.slot = self.buffer("slot", I64, *map(extent, f.rows))
        target = self.kernel.buffer(f.update.buffer)
        self.sums = self.buffer("sums", target.dtype.accumulator, n, *map(extent, f.columns))
        for v in f.moved:
            own = (extent(x) for x in self.own_loops(v))
            self.copies[v] = self.buffer("rows", value_dtype(v), n, *own)
        product = self.product()
        if product is None:
            return None
        nodes = block(*self.inspected(), self.executed(product))
        body = replace_loop(self.kernel.body, nest, lambda x: block(nodes, self.taken_back(x)))
        return replace(self.kernel, body=body)

    # ---- inspector

    def inspected(self) -> tuple[Node, ...]:
        f, (c, p) = self.found, (self.names.fresh(x) for x in ("index", "index"))
        zero = Const(0, I64)
        cleared = self.loop(c, f.extent, Store(self.count, (var(c),), zero), "parallel")
        start = Store(self.place, (ZERO,), zero)
        end = Binary("add", self.read(self.place, var(p)), self.read(self.count, var(p)), I64)
        ends = self.loop(p, f.extent, Store(self.place, (var(p) + 1,), end), "sequential")
        at_first = {x.variable: ZERO for x in (*f.columns, *f.sums)}
        checks = (Verify(substitute_value(r, at_first), f.update.name) for r in f.reads)
        counted = block(*checks, self.at_index(lambda e: self.one_more(self.count, e)))
        nowhere = Store(self.slot, tuple(var(x.variable) for x in f.rows), zero)
        counting = self.over_rows(counted, "sequential")
        clearing = self.over_rows(nowhere, "parallel")
        ordering = self.over_rows(self.at_index(self.ordered), "sequential")
        return (cleared, counting, start, ends, clearing, ordering)

    def ordered(self, e: Index) -> Node:
        q, f = self.names.fresh("place"), self.found
        flat = ZERO
        for x in f.rows:
            flat = flat * extent(x) + var(x.variable)
        own = tuple(var(x.variable) for x in f.rows)
        kept = block(
            Store(self.order, (var(q),), IndexValue(flat, I64)),
            Store(self.slot, own, IndexValue(var(q), I64)),
        )
        return block(given(q, self.read(self.place, e), kept), self.one_more(self.place, e))

    def at_index(self, do: Callable[[Index], Node]) -> Node:
        e = self.names.fresh("index")
        return Loop(e, ZERO, self.found.extent, do(var(e)), at=self.found.position)

    def one_more(self, buffer: str, e: Index) -> Node:
        return Update(buffer, (e,), "add", Const(1, I64))

    def over_rows(self, node: Node, order: LoopOrder) -> Node:
        """`node` for each row, in their order, by loops of its own."""
        new = {x.variable: self.names.fresh(x.variable) for x in self.found.rows}
        node = substitute_node(node, {old: var(v) for old, v in new.items()})
        for x in reversed(self.found.rows):
            node = self.loop(new[x.variable], extent(x), node, order)
        return node

    # ---- executor

    def product(self) -> tuple[str, str, str, Node] | None:
        """Names of the index, of where its rows begin and how many they are, and their sums."""
        f, names = self.found, self.names
        e, first, n, q = (names.fresh(x) for x in ("index", "first", "count", "row"))
        new = {x.variable: names.fresh(x.variable) for x in (*f.columns, *f.sums)}
        row = var(first) + var(q)

        def operand(v: Value) -> Value:
            if v in self.copies:
                own = (var(x.variable) for x in self.own_loops(v))
                return Read(self.copies[v], (row, *own), value_dtype(v))
            if isinstance(v, Read) and v in f.reads:
                at = tuple(var(e) if s == f.position else s for s in v.subscripts)
                return replace(v, subscripts=at, checked=())
            return v

        value = map_value(f.update.value, operand, lambda i: i)
        if value_variables(value) & {x.variable for x in f.rows}:
            return None
        place = (row, *(var(x.variable) for x in f.columns))
        dtype = self.kernel.buffer(self.sums).dtype
        term = converted(value, dtype)
        node: Node = Update(self.sums, place, f.update.op, term, f.update.name)
        start = Store(self.sums, place, identity(f.update.op, dtype), f.update.name)
        node = in_loops(f.columns, block(start, in_loops(f.sums, node)))
        top = self.loop(q, minimum(f.n_rows, var(n)), node, "parallel")
        roles = contraction_roles(self.kernel, band_of(top))
        if roles is None or roles.rows != q:
            return None
        return e, first, n, rename_loops(top, new)

    def executed(self, product: tuple[str, str, str, Node]) -> Node:
        e, first, n, sums = product
        node = block(*(self.copied(v, var(first), var(n)) for v in self.copies), sums)
        count, end = self.read(self.count, var(e)), self.read(self.place, var(e))
        node = given(first, Binary("sub", end, count, I64), node)
        node = given(n, count, node)
        return Loop(e, ZERO, self.found.extent, node, independent=True)

    def copied(self, v: Value, first: Index, n: Index) -> Node:
        """What the rows of an index read, as they are ordered."""
        q, flat = (self.names.fresh(x) for x in ("row", "flat"))
        own = self.own_loops(v)
        place = (first + var(q), *(var(x.variable) for x in own))
        node: Node = Store(self.copies[v], place, v, self.found.update.name)
        for x in reversed(own):
            node = replace(x, body=node, order="parallel")
        at = var(flat)
        for x in reversed(self.found.rows):
            size = extent(x)
            here = at if x is self.found.rows[0] else mod(at, size)
            node = Loop(x.variable, here, here + 1, node, order="parallel", below=size)
            at = floordiv(at, size)
        loops = (*self.found.rows, *own)
        node = rename_loops(node, {x.variable: self.names.fresh(x.variable) for x in loops})
        node = given(flat, self.read(self.order, first + var(q)), node)
        return Loop(q, ZERO, n, node, independent=True)

    # ---- the text's nest

    def taken_back(self, nest: Loop) -> Node:
        """The nest, with sums over what rows have summed."""
        f = self.found
        slot = Read(self.slot, tuple(var(x.variable) for x in f.rows), I64)
        place: Subscripts = (slot, *(var(x.variable) for x in f.columns))
        dtype = self.kernel.buffer(self.sums).dtype
        add = replace(f.update, value=Read(self.sums, place, dtype))
        node = in_loops((x for x in f.rows if x.order == "reduction"), add)
        return replace_loop(nest, f.first, lambda _: node)

    # ---- parts of them

    def own_loops(self, v: Value) -> tuple[Loop, ...]:
        used = value_variables(v)
        return tuple(x for x in (*self.found.columns, *self.found.sums) if x.variable in used)

    def loop(self, v: str, n: Index, body: Node, order: LoopOrder) -> Loop:
        return Loop(v, ZERO, n, body, order=order)

    def read(self, buffer: str, *subscripts: Index) -> Read:
        return Read(buffer, subscripts, I64)

    def buffer(self, name: str, dtype: DType, *shape: Index) -> str:
        b = Buffer(self.names.fresh(name), dtype, shape, "arena")
        self.kernel = self.kernel.with_buffer(b)
        return b.name
