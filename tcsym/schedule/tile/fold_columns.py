# SPDX-License-Identifier: Apache-2.0
"""Sums over long columns of short rows -> sums over rows as long as several vectors, then of those.

A row of one to a few elements fills no vector. Rows that lie one behind the other in memory are as
good as a few long ones: each holds as many short rows as a strip of vectors has lanes, so that the
sums of its places are sums of columns. Those are few, and are added in the end with the rows left.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import IndexValue, Read
from tcsym.index.expr import (
    FALSE,
    ONE,
    ZERO,
    Condition,
    Index,
    all_of,
    condition_variables,
    floordiv,
    ge,
    index,
    var,
)
from tcsym.index.values import Values
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Holds, Kernel, Loop, Node, Store, Update, block
from tcsym.ir.traverse import loads, substitute_node, subvalues
from tcsym.schedule.analysis.access import offset_stride
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import (
    children,
    find_loop,
    is_leaf,
    loops_around,
    replace_loop,
)
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.combine.rfactor_rows import rfactor_rows
from tcsym.schedule.tile.register_tile import TileShape, tile_registers
from tcsym.schedule.tile.strip_schedule import schedule_vectors

VECTORS = 8  # of short rows in a long one, for each column: their sums are in flight at once
LEAST_ROWS = 8  # long ones
PART_ROWS = 8192  # short ones


def schedule_folded_columns(kernel: Kernel, columns: str, setting: Setting) -> Kernel:
    """The loop `columns` in vectors of several rows. Contract: `folding_pays`."""
    if setting.options.parallelize and not loops_around(kernel.body, columns):
        split = rfactor_rows(kernel, columns, columns, setting.names, PART_ROWS)
        if split is not None:
            kernel = schedule_vectors(split.kernel, columns, setting)
            columns = split.columns
    return schedule_vectors(_folded(kernel, columns, setting), columns, setting)


def _lanes(kernel: Kernel, columns: str, setting: Setting) -> int:
    return setting.lanes(kernel, find_loop(kernel.body, columns).body)


def _most_columns(lanes: int) -> int:
    """A whole vector is no worse than long rows, two with idle lanes are."""
    return 2 * lanes - 1


def folding_pays(kernel: Kernel, columns: str, setting: Setting) -> Condition:
    """Few columns, and rows enough; FALSE if a long row would not be a run of memory.

    Contract: `blocks_pay` gives a condition for the loop `columns`.
    """
    loop = find_loop(kernel.body, columns)
    lanes = _lanes(kernel, columns, setting)
    n, period = extent(loop), lanes * VECTORS
    sums = [x for x in children(loop.body) if isinstance(x, Loop)]
    if not n.variables() <= frozenset(kernel.sizes):
        return FALSE
    if not all(is_leaf(x) and _is_run(kernel, loop, x, period) for x in sums):
        return FALSE
    rows = (ge(extent(x), LEAST_ROWS * period) for x in sums)
    return in_context(kernel, all_of((ge(n, 1), ge(_most_columns(lanes), n), *rows)))


def _is_run(kernel: Kernel, columns: Loop, sums: Loop, period: int) -> bool:
    """Each term needs an element of a long row, or what is the same for all of them."""
    place, long = "fold.place", "fold.row"
    pair = {columns.variable, sums.variable}
    at = _short(columns, sums, place, long, period)
    read: set[str] = set()
    for x in children(sums.body):
        assert isinstance(x, Update)
        for v in subvalues(x.value):
            if isinstance(v, IndexValue) and v.index.variables() & pair:
                return False
            if isinstance(v, Holds) and condition_variables(v.condition) & pair:
                return False
        read |= {r.tensor for r in loads(x.value)}
        if any(any(r.checked) or r.unwritten is not None for r in loads(x.value)):
            return False
        moved = substitute_node(x, at)
        assert isinstance(moved, Update)
        steps = (
            offset_stride(kernel.buffer(r.tensor), r.subscripts, place) for r in loads(moved.value)
        )
        if not all(step in (ZERO, ONE) for step in steps):
            return False
    return not read & {x.buffer for x in children(sums.body) if isinstance(x, Update)}


def _short(columns: Loop, sums: Loop, place: str, long: str, period: int) -> Values:
    """Row and column of a place of a long row."""
    n = extent(columns)
    row = floordiv(var(place), n)
    return {
        columns.variable: columns.lower + var(place) - row * n,
        sums.variable: sums.lower + var(long) * period + row,
    }


class _Part(Struct, frozen=True):
    """`wide`: the nest over places of long rows; `narrow`: what replaces the loop over rows."""

    wide: Loop
    narrow: Node
    targets: int


def _folded(kernel: Kernel, columns: str, setting: Setting) -> Kernel:
    """The loop `columns` behind loops over places, in vectors; itself as yet without a schedule."""
    loop, lanes = find_loop(kernel.body, columns), _lanes(kernel, columns, setting)
    wide, narrow = list[_Part](), list[Node]()
    for x in children(loop.body):
        if isinstance(x, Loop):
            kernel, part = _fold(kernel, loop, x, lanes, setting)
            wide.append(part)
            narrow.append(part.narrow)
        else:
            narrow.append(x)
    rest = replace(loop, body=block(*narrow))
    body = replace_loop(kernel.body, columns, lambda _: block(*(p.wide for p in wide), rest))
    kernel = replace(kernel, body=body)
    for p in wide:
        place = p.wide.variable
        band = band_of(find_loop(kernel.body, place))
        shape = TileShape(1, _vectors(p.targets), lanes)
        kernel = tile_registers(kernel, band, place, None, (), shape, setting.names).kernel
    return kernel


def _vectors(targets: int) -> int:
    """A divisor of those of a long row, fewer where a place has several sums."""
    vectors = VECTORS
    while vectors > 1 and vectors * targets > VECTORS:
        vectors //= 2
    return vectors


def _fold(
    kernel: Kernel, columns: Loop, sums: Loop, lanes: int, setting: Setting
) -> tuple[Kernel, _Part]:
    names, n, period = setting.names, extent(columns), lanes * VECTORS
    place, long = names.fresh(columns.variable), names.fresh(sums.variable)
    short = names.fresh(sums.variable)
    count = floordiv(extent(sums), period)
    around = frozenset(x.variable for x in loops_around(kernel.body, columns.variable))
    here = var(short) * n + var(columns.variable) - columns.lower
    at = _short(columns, sums, place, long, period)
    start, terms, kept, totals = list[Node](), list[Node](), list[Node](), list[Node]()
    own: dict[str, str] = {}
    for x in children(sums.body):
        assert isinstance(x, Update)
        if x.buffer not in own:
            own[x.buffer] = names.fresh(x.buffer)
            kernel, row = _with_rows(kernel, x, own[x.buffer], around, place, n, lanes, setting)
            dtype = kernel.buffer(x.buffer).dtype
            start.append(Store(own[x.buffer], (var(place),), identity(x.op, dtype), x.name))
            value = Read(own[x.buffer], (var(place),), dtype)
            kept.append(Store(row, (var(place),), value, x.name))
            totals.append(replace(x, value=Read(row, (here,), dtype)))
        moved = substitute_node(x, at)
        assert isinstance(moved, Update)
        terms.append(replace(moved, buffer=own[x.buffer], subscripts=(var(place),)))
    longs = Loop(long, ZERO, count, block(*terms), "serial", "reduction")
    wide = Loop(place, ZERO, n * period, block(*start, longs, *kept), "serial", "parallel")
    shorts = Loop(short, ZERO, index(period), block(*totals), "serial", "reduction")
    left = replace(sums, lower=sums.lower + count * period)
    return kernel, _Part(wide, block(shorts, left), len(own))


def _with_rows(
    kernel: Kernel,
    x: Update,
    name: str,
    around: frozenset[str],
    place: str,
    n: Index,
    lanes: int,
    setting: Setting,
) -> tuple[Kernel, str]:
    """A sum for each place while it is being made, and a row for all of them."""
    dtype, period = kernel.buffer(x.buffer).dtype, lanes * VECTORS
    row = setting.names.fresh(f"{x.buffer}_places")
    sums = Buffer(name, dtype, (n * period,), "arena", private=around | {place})
    most = index(_most_columns(lanes) * period)
    kept = Buffer(row, dtype, (most,), "arena", private=around)
    return kernel.with_buffer(sums).with_buffer(kept), row
