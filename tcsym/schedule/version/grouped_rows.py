# SPDX-License-Identifier: Apache-2.0
"""Contraction whose operand an index finds -> whether its rows are grouped by that index.

Rows of one index then share a register tile and a panel; alone, each reads all of its operand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tcsym.index.expr import Condition, Index, all_of, ceildiv, ge
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Block, Kernel, Node, Update, block
from tcsym.ir.traverse import loads, walk
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.loops import children, find_loop, outermost_loops
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.order.distribute import distribute
from tcsym.schedule.order.group_rows import Found, group_rows, grouping_of
from tcsym.schedule.order_plans import GroupedRows, RowOrderPlan, RowsInOrder
from tcsym.schedule.plan import Version, always
from tcsym.schedule.version.choose import choose

PICOSECONDS = {  # by elements of float on the machines measured
    "alone": 26,  # of a term in a product of vectors that reads its operand for itself
    "sum": 500,  # of the end of such a product
    "tile": 11,  # of a term in a register tile
    "packed": 80,  # of an element that goes into a panel
    "sorted": 3000,  # of a row
    "copied": 30,  # of an element of a row and of its sums
    "index": 100_000,
}


def with_grouped_rows(kernel: Kernel, setting: Setting) -> Kernel:
    """Every outermost nest that has such a contraction, behind what finds its index."""
    for x in outermost_loops(kernel.body):
        kernel, nest = _behind_index(kernel, x.variable, setting)
        if grouping_of(kernel, nest) and group_rows(kernel, nest, setting.names):
            kernel = choose(kernel, nest, setting, (_grouped,), _apply)
    return kernel


def _behind_index(kernel: Kernel, nest: str, setting: Setting) -> tuple[Kernel, str]:
    """A nest that computes the index of its rows, too, in two: all indices come first."""
    body = band_of(find_loop(kernel.body, nest)).body
    parts = children(body) if isinstance(body, Block) else ()
    for k in range(len(parts) - 1, 0, -1):
        written = {a.buffer for x in parts[:k] for a in accesses(x) if a.written}
        if written & _positions(block(*parts[k:])):
            made = distribute(kernel, nest, (block(*parts[:k]), block(*parts[k:])), setting.names)
            new, last = made.kernel, made.nests[1]
            found = grouping_of(new, last) and group_rows(new, last, setting.names)
            return (new, last) if found else (kernel, nest)
    return kernel, nest


def _positions(node: Node) -> set[str]:
    """Tensors that are read to find a place."""
    values = (x.value for x, _ in walk(node) if isinstance(x, Update))
    places = (s for v in values for r in loads(v) for s in r.subscripts if not isinstance(s, Index))
    return {r.tensor for s in places for r in loads(s)}


def _grouped(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[RowOrderPlan]]:
    found = grouping_of(kernel, nest)
    assert found is not None
    some = all_of(ge(extent(x), 1) for x in (*found.rows, *found.columns, *found.sums))
    pays = all_of((some, _pays(kernel, found, setting)))
    rows = tuple(x.variable for x in found.rows)
    operands = tuple(dict.fromkeys(r.tensor for r in found.reads))
    yield Version(pays, GroupedRows(rows, operands), is_seldom=True, needs=some)
    yield always(RowsInOrder())


def _pays(kernel: Kernel, found: Found, setting: Setting) -> Condition:
    """To sort and copy rows, and to pack an operand for each index, is less than all rows save."""
    rows = found.n_rows
    columns, terms = (product_of(map(extent, x)) for x in (found.columns, found.sums))
    lanes = setting.lanes(kernel, found.update)
    wide = ceildiv(columns, lanes) * lanes
    of = PICOSECONDS
    alone = rows * columns * (terms * of["alone"] + of["sum"])
    row = wide * terms * of["tile"] + (columns + terms) * of["copied"] + of["sorted"]
    return ge(alone, rows * row + found.extent * (columns * terms * of["packed"] + of["index"]))


def _apply(plan: RowOrderPlan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    match plan:
        case GroupedRows():
            grouped = group_rows(kernel, nest, setting.names)
            assert grouped is not None
            return grouped
        case RowsInOrder():
            return kernel
        case _:
            assert_never(plan)
