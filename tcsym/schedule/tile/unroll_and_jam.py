# SPDX-License-Identifier: Apache-2.0
"""Sums along rows that share an operand, or wait -> blocks of rows, beside the rows one by one.

A matrix times a vector: each element of the vector is loaded once for four rows, and memory is read
in four runs. The last four rows overlap others, so that no row is left. Times a few vectors: blocks
of four rows and four vectors, for which the matrix is read once. Rows that are normalised: a sum's
lanes are added before the next loop over the row can start, which two rows do at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from tcsym.frontend.program import Call, Read
from tcsym.index.expr import (
    ONE,
    ZERO,
    Index,
    all_of,
    ceildiv,
    condition_variables,
    ge,
    index,
    minimum,
    var,
)
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Block, Branch, Kernel, Loop, Node, Store, Update, Value, block
from tcsym.ir.traverse import loads, map_node, substitute_node, subvalues
from tcsym.schedule.analysis.access import (
    Access,
    accesses,
    stride,
    subscript_variables,
)
from tcsym.schedule.analysis.band import Band, band_of, reductions
from tcsym.schedule.analysis.loops import (
    chain_of,
    children,
    find_loop,
    is_leaf,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.overlap import is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.order.interchange import can_sink, reorder_chain
from tcsym.schedule.plan import RowBlocks, Version, always
from tcsym.schedule.tile.row_schedule import (
    calls_each,
    leaf_chain,
    row_choice,
    schedule_rows,
)

ROWS = 4
NORMALISED_ROWS = 2
FEW_REGISTERS = 16  # hold the sums of eight products, not of sixteen


def row_blocks(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[RowBlocks]]:
    """Blocks of the nest, first those of most; none if rows share nothing.

    The loop around is the one that moves no operand which the innermost one moves. It may have any
    number of rows: instead of one that is not there the last is made again.
    """
    band = band_of(find_loop(kernel.body, nest))
    n = extent(band.loops[-1]) if band.loops else ZERO
    if n.as_int() is not None or n.variables() & set(band.variables):
        return
    inner, many = band.loops[-1], setting.machine.vector_registers > FEW_REGISTERS
    if _waits_for_sums(kernel, nest, inner.variable, setting):
        two = RowBlocks(inner.variable, NORMALISED_ROWS, None, 1, 4 if many else 3)
        yield Version(ge(n, NORMALISED_ROWS), two, "before")
    if not _shares_rows(kernel, nest, inner.variable, setting):
        return
    outer, enough = _outer_rows(kernel, nest, setting), ge(n, ROWS)
    if outer is not None:
        most = ROWS if many else ROWS // 2
        both = RowBlocks(inner.variable, ROWS, outer.variable, most, 1)
        yield Version(all_of((enough, ge(extent(outer), 2))), both, "before")
    yield Version(enough, RowBlocks(inner.variable, ROWS, None, 1, 2), "before")
    if outer is not None:
        yield always(RowBlocks(inner.variable, 1, outer.variable, ROWS, 1))


def schedule_row_blocks(kernel: Kernel, nest: str, x: RowBlocks, setting: Setting) -> Kernel:
    """The nest in such blocks."""
    outer = x.outer
    if outer is not None and x.n_rows > 1:  # what moves with the innermost loop is at hand then
        order = [v for v in band_of(find_loop(kernel.body, nest)).variables if v != outer]
        body = replace_loop(kernel.body, nest, lambda y: reorder_chain(y, (*order, outer)))
        kernel, nest = replace(kernel, body=body), order[0]
    what = f"blocks of {x.n_rows} by {x.n_outer} rows" if outer else f"{x.n_rows} rows at a time"
    setting.note(nest, what)
    few = setting.with_tiling(row_vectors=x.vectors)
    known = {b.name for b in kernel.buffers}
    kernel = schedule_rows(kernel, nest, few)
    lanes = {b.name for b in kernel.buffers} - known
    blocks = ((x.rows, x.n_rows, True), *(((outer, x.n_outer, False),) if outer else ()))
    return _jammed(kernel, nest, [b for b in blocks if b[1] > 1], lanes, setting.names)


def _jammed(
    kernel: Kernel,
    nest: str,
    blocks: list[tuple[str, int, bool]],
    lanes: set[str],
    names: Names,
) -> Kernel:
    """All that stands in the band, and not in further loops, for each row of a block.

    blocks: loops, their rows at a time, and whether the last ones overlap others. lanes: what is
    there once for a row.
    """
    last = band_of(find_loop(kernel.body, nest)).loops[-1]
    body = last.body
    for loop, _, overlap in blocks:
        if not overlap:
            own = {loop: var(f"{loop} itself")}
            body = _with_own(body, _private(kernel, loop) - lanes, own)

    moving = {loop for loop, _, _ in blocks}

    def jam(x: Node) -> Node:
        if isinstance(x, Block):
            return block(*map(jam, x.body))
        if isinstance(x, Branch) and not condition_variables(x.condition) & moving:
            return Branch(x.condition, jam(x.then), x.orelse and jam(x.orelse))
        if isinstance(x, Loop) and x.kind == "serial":
            return replace(x, body=jam(x.body))
        rows = tuple(names.fresh(loop) for loop, _, _ in blocks)
        x = _each(x, lanes, tuple(var(r) for r in rows))
        for row, (loop, n, overlap) in zip(rows, blocks):
            at = _places(find_loop(kernel.body, loop), n, var(row), overlap)
            x = Loop(row, ZERO, index(n), substitute_node(x, at), "unrolled", "parallel")
        return x

    jammed = jam(body)
    tree = replace_loop(kernel.body, last.variable, lambda x: replace(x, body=jammed))
    for loop, n, _ in blocks:
        tree = replace_loop(tree, loop, partial(_fewer, n))
    kernel = replace(kernel, body=tree)
    places = tuple(index(n) for _, n, _ in blocks)
    for b in [b for b in kernel.buffers if b.name in lanes]:
        kernel = kernel.with_buffer(replace(b, shape=(*places, *b.shape)))
    return kernel


def _fewer(n: int, loop: Loop) -> Loop:
    return replace(loop, lower=ZERO, upper=ceildiv(extent(loop), n))


def _places(loop: Loop, n: int, row: Index, overlap: bool) -> dict[str, Index]:
    """A row's place in the loop; where the last ones do not overlap others, also its own one."""
    first = var(loop.variable) * n
    if overlap:
        return {loop.variable: loop.lower + minimum(first, extent(loop) - n) + row}
    place = loop.lower + minimum(first + row, extent(loop) - 1)
    return {loop.variable: place, f"{loop.variable} itself": first + row}


def _each(x: Node, lanes: set[str], rows: tuple[Index, ...]) -> Node:
    """`x` with an element of these temporaries for each row."""

    def statement(x: Node) -> Node:
        if not isinstance(x, Store | Update) or x.buffer not in lanes:
            return x
        return replace(x, subscripts=(*rows, *x.subscripts))

    def value(v: Value) -> Value:
        if not isinstance(v, Read) or v.tensor not in lanes:
            return v
        checked = (*(False for _ in rows), *v.checked) if v.checked else ()
        return replace(v, subscripts=(*rows, *v.subscripts), checked=checked)

    return map_node(x, statement, value)


def _outer_rows(kernel: Kernel, nest: str, setting: Setting) -> Loop | None:
    band = band_of(find_loop(kernel.body, nest))
    bounds = frozenset[str]().union(*(extent(x).variables() for x in band.loops))
    apart = [x for x in band.loops[:-1] if _moves_others(band, x.variable)]
    if len(apart) != 1 or bounds & set(band.variables):
        return None
    rows = apart[0]
    if not _shares_rows(kernel, nest, rows.variable, setting):
        return None
    private = _private(kernel, rows.variable)
    plain = all(_is_plain(a, rows.variable) for a in accesses(rows) if a.buffer in private)
    return rows if plain else None


def _private(kernel: Kernel, loop: str) -> set[str]:
    return {b.name for b in kernel.buffers if loop in b.private}


def _moves_others(band: Band, variable: str) -> bool:
    """No operand of a reduction moves with both this loop and the innermost one."""
    reads = [r for x, _ in reductions(band.body) for r in loads(x.value)]
    used = [subscript_variables(r.subscripts) for r in reads]
    return any(variable in x for x in used) and not any(
        {variable, band.variables[-1]} <= x for x in used
    )


def _is_plain(a: Access, variable: str) -> bool:
    """One subscript is the variable, no other moves with it."""
    moving = [s for s in a.subscripts if variable in subscript_variables((s,))]
    return moving == [var(variable)]


def _with_own(node: Node, private: set[str], own: dict[str, Index]) -> Node:
    """The variable of the rows renamed where it is a row of these temporaries.

    Two copies of the last row share none of them, as each would add to the other's sums.
    """

    def at(subscripts: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(substitute(s, own) for s in subscripts)

    def statement(x: Node) -> Node:
        if not isinstance(x, Store | Update) or x.buffer not in private:
            return x
        return replace(x, subscripts=at(x.subscripts))

    def value(v: Value) -> Value:
        if not isinstance(v, Read) or v.tensor not in private:
            return v
        return Read(v.tensor, at(tuple(s for s in v.subscripts if isinstance(s, Index))), v.dtype)

    return map_node(node, statement, value)


def _waits_for_sums(kernel: Kernel, nest: str, rows: str, setting: Setting) -> bool:
    """Several loops in vectors along the row, some of which need the sum of one before.

    A function called for each element takes longer than the waiting.
    """
    top = find_loop(kernel.body, nest)
    body = band_of(top).body
    nodes = children(body)
    loops = [x for x in nodes if isinstance(x, Loop)]
    if len(loops) < 2 or not all(isinstance(x, Loop | Store) for x in nodes):
        return False
    sums = {a.buffer for x in loops if x.order == "reduction" for a in accesses(x) if a.written}
    read = {r.tensor for x in loops for y, _ in statements_in(x) for r in loads(y.value)}
    if sums.isdisjoint(read) or not can_sink(body, frozenset((rows,))):
        return False
    plain = all(_is_along(kernel, top, x, setting) and _is_cheap(x) for x in loops)
    return plain and is_repeatable(kernel, body, frozenset((rows,)))


def _is_cheap(loop: Loop) -> bool:
    """Sums alone or stores alone, without functions for each element."""
    summed = {isinstance(x, Update) for x, _ in statements_in(loop.body)}
    return len(summed) == 1 and not calls_each(loop.body, loop.variable)


def _is_along(kernel: Kernel, top: Loop, loop: Loop, setting: Setting) -> bool:
    """An innermost loop whose elements are in the lanes."""
    lanes = setting.lanes(kernel, loop.body)
    if not is_leaf(loop) or loop.kind != "serial" or lanes == 1:
        return False
    chain = leaf_chain(top, loop.variable)
    return row_choice(kernel, chain, lanes)[0] == loop.variable


def _shares_rows(kernel: Kernel, nest: str, rows: str, setting: Setting) -> bool:
    """Reductions in vectors along memory, of one sum a row, with an operand that rows share."""
    top = find_loop(kernel.body, nest)
    band = band_of(top)
    nodes = children(band.body)
    sums = [x for x in nodes if isinstance(x, Loop)]
    if len(sums) != 1 or not all(isinstance(x, Loop | Store) for x in nodes):
        return False
    statements = [x for x, _ in statements_in(band.body)]
    calls = any(isinstance(v, Call) for x in statements for v in subvalues(x.value))
    if calls or not can_sink(band.body, frozenset((rows,))):
        return False
    chain = chain_of(sums[0])
    (update, *more), leaf = children(chain[-1].body), chain[-1].variable
    plain = all(x.order == "reduction" and x.kind == "serial" for x in chain)
    if more or not isinstance(update, Update) or not plain or not is_leaf(chain[-1]):
        return False
    lanes = setting.lanes(kernel, update)
    along = lanes > 1 and row_choice(kernel, leaf_chain(top, leaf), lanes)[0] == leaf
    shared = any(
        rows not in subscript_variables(r.subscripts)
        and stride(kernel.buffer(r.tensor), r.subscripts, leaf) == ONE
        for r in loads(update.value)
    )
    return along and shared and is_repeatable(kernel, band.body, frozenset((rows,)))
