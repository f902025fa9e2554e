# SPDX-License-Identifier: Apache-2.0
"""Values of elements that run along another loop than the stores -> of blocks transposed before.

    Y(c,r) = f(X(r,c), ..)  ->  P(16,16) = X(r..,c..) transposed;  Y(c+k,r+l) = f(P(k,l), ..)

Conversions, images that are normalised as their channels move in front: a vector of the store
would gather its elements one by one. A panel in the first cache holds a block of them as the
vectors take them, moved through registers as a plain transposition is.
"""

from __future__ import annotations

from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import FALSE, TRUE, ZERO, Condition, Index, all_of, ge, index, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Buffer, Kernel, Loop, Node, Store, TransposeBlock, Value, block
from tcsym.ir.traverse import certain_loads, map_value, substitute_node
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import chain_of, loops_around, replace_loop
from tcsym.schedule.analysis.overlap import is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.tile.transposition import (
    Transposition,
    moved_read,
    over_blocks,
)
from tcsym.schedule.version.versioning import duplicate


class TransposedValues(Struct, frozen=True):
    """`reads` along other loops than the store; a block has `rows` of the store's elements side by
    side, and `columns`. `fit`: there are as many."""

    reads: tuple[Transposition, ...]
    rows: int
    columns: int
    lanes: int
    fit: Condition


def transposed_values(
    kernel: Kernel, chain: tuple[Loop, ...], setting: Setting
) -> TransposedValues | None:
    """What the statement of a perfect chain of parallel loops reads across, or None."""
    store = chain[-1].body
    if not isinstance(store, Store):
        return None
    moved = (moved_read(kernel, chain, store, r) for r in certain_loads(store.value))
    found = tuple(t for t in dict.fromkeys(moved) if t is not None)
    if not found:
        return None
    row, column, bits = found[0].row, found[0].column, found[0].source.dtype.bits
    names = frozenset((row.variable, column.variable))
    private = any(names & kernel.buffer(a.buffer).private for a in accesses(store))
    if private or not is_repeatable(kernel, store, names):
        return None
    reads = tuple(t for t in found if (t.row, t.column, t.source.dtype.bits) == (row, column, bits))
    columns, lanes = setting.machine.block_lanes(bits), setting.lanes(kernel, store)
    rows = max(columns, lanes)
    fit = in_context(kernel, all_of((ge(extent(row), rows), ge(extent(column), columns))))
    return None if fit == FALSE else TransposedValues(reads, rows, columns, lanes, fit)


def transpose_values(
    kernel: Kernel, chain: tuple[Loop, ...], found: TransposedValues, setting: Setting
) -> tuple[Kernel, dict[str, str]]:
    """The chain in blocks where they fit, else a copy: its loops by the chain's, none if all do."""
    top, names = chain[0], setting.names
    new, copy = dict[str, str](), None
    if found.fit != TRUE:
        kernel, copy, new = duplicate(kernel, top, names)
    t = found.reads[0]
    panels = {x.source: names.fresh(f"{x.source.tensor}_block") for x in found.reads}
    body, line = partial(_body, found, panels, setting), found.rows // found.columns
    node = over_blocks(kernel, chain, t, found.columns, line, body, True, names)
    loops = (*loops_around(kernel.body, top.variable), *chain_of(node))
    private = frozenset(x.variable for x in loops)
    for read, name in panels.items():
        shape = (index(found.columns), index(found.rows))
        kernel = kernel.with_buffer(Buffer(name, read.dtype, shape, "stack", private=private))
    whole = node if copy is None else Branch(found.fit, node, copy)
    body_ = replace_loop(kernel.body, top.variable, lambda _: whole)
    return replace(kernel, body=body_), new


def _body(
    found: TransposedValues,
    panels: dict[Read, str],
    setting: Setting,
    first: dict[str, Index],
) -> Node:
    """Panels filled, then the values of a block."""
    names, t = setting.names, found.reads[0]
    point, register, lane = (names.fresh(v) for v in (t.column.variable, "r", "l"))
    along = var(register) * found.lanes + var(lane)

    def value(v: Value) -> Value:
        name = panels.get(v) if isinstance(v, Read) else None
        return (
            v
            if name is None or not isinstance(v, Read)
            else Read(name, (var(point), along), v.dtype)
        )

    node: Node = replace(t.store, value=map_value(t.store.value, value, lambda i: i))
    row, column = t.row.variable, t.column.variable
    node = substitute_node(node, {row: first[row] + along, column: first[column] + var(point)})
    node = Loop(lane, ZERO, index(found.lanes), node, "vector", "parallel")
    node = Loop(register, ZERO, index(found.rows // found.lanes), node, "unrolled", "parallel")
    node = Loop(point, ZERO, index(found.columns), node, "serial", "parallel")
    fills = (_filled(x, panels[x.source], found, first) for x in found.reads)
    return block(*fills, node)


def _filled(
    t: Transposition, panel: str, found: TransposedValues, first: dict[str, Index]
) -> TransposeBlock:
    return TransposeBlock(
        panel,
        (ZERO, ZERO),
        t.source.tensor,
        tuple(substitute(s, first) for s in t.source.subscripts if isinstance(s, Index)),
        index(found.rows),
        index(found.columns),
        found.columns,
        t.source_row,
        blocks=found.rows // found.columns,
    )
