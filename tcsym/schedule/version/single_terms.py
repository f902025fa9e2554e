# SPDX-License-Identifier: Apache-2.0
"""Contractions whose sums may have one term -> beside them, the map that they are then.

`Z(a,b,c,d) += X(a,c,e) * Y(e,d,b)` with one e is an outer product. Its rows need no tile. Products
of two or three loops seldom have one term: these sizes are left out (`Kernel.left_out`).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tcsym.frontend.program import Binary, Const
from tcsym.index.expr import FALSE, Condition, all_of, any_of, condition_variables, eq, ge
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Holds,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Shuffle,
    Store,
    Update,
    value_dtype,
)
from tcsym.ir.traverse import map_node, substitute_node
from tcsym.schedule.analysis.access import value_variables
from tcsym.schedule.analysis.band import Band, band_of, factors, reductions
from tcsym.schedule.analysis.loops import children, find_loop, loops_in, replace_loop
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import OneTerm, Version
from tcsym.schedule.tile.forward_values import forward_values
from tcsym.schedule.version.contraction_versions import has_windows

OFTEN_LOOPS = 4  # of the band, from which on a map is always there
LEAST_COLUMNS = 2  # for each of which a vector across rows takes its factors from registers
LEAST_ELEMENTS = 8192  # of results that are worth code of their own, where loops are few
LONG_ROWS = 2  # vectors; tiles are as fast where one or so is a row


def one_term(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[OneTerm]]:
    """A map, for sums of one term."""
    band = band_of(find_loop(kernel.body, nest))
    single = _may_be_single(kernel, nest, setting)
    if single != FALSE:
        needs = all_of(eq(extent(x), 1) for x in loops_in(band.body))
        yield Version(single, OneTerm(), "before", _is_seldom(band), keeps_rest=True, needs=needs)


def _may_be_single(kernel: Kernel, nest: str, setting: Setting) -> Condition:
    """Where sums of the nest have one term and a map of it pays; FALSE if it is more than sums that
    are stored, or if its innermost loops move one operand together."""
    band = band_of(find_loop(kernel.body, nest))
    steps = loops_in(band.body)
    sums = {x.buffer for x, _ in reductions(band.body)}
    private = all(kernel.buffer(b).private >= {*band.variables} for b in sums)
    if not private or _as_map(band.body) is None or has_windows(kernel, nest):
        return FALSE
    lanes, last = setting.lanes(kernel, band.body), {x.variable for x in band.loops[-2:]}
    moved = (value_variables(r) for x, _ in reductions(band.body) for r in factors(x))
    if lanes == 1 or len(last) == 1 or any(last <= v for v in moved):
        return FALSE
    columns = extent(band.loops[-1])
    single = all_of((*(eq(extent(x), 1) for x in steps), ge(columns, LEAST_COLUMNS)))
    if _is_seldom(band):
        if not condition_variables(single) <= frozenset(kernel.sizes):
            return FALSE
        elements = product_of(map(extent, band.loops))
        apart = any_of((ge(lanes - 1, columns), ge(columns, LONG_ROWS * lanes)))
        single = all_of((single, apart, ge(elements, LEAST_ELEMENTS)))
    return single


def _is_seldom(band: Band) -> bool:
    """Sums of the band are of few loops; they seldom have one term."""
    return len(band.loops) < OFTEN_LOOPS


def as_map(kernel: Kernel, nest: str) -> Kernel:
    """The nest as a map. Contract: `one_term`, where its condition holds."""
    band = band_of(find_loop(kernel.body, nest))
    store = _as_map(band.body)
    assert store is not None
    gone = {x.buffer for x in children(band.body) if isinstance(x, Store)} - {store.buffer}
    body = replace_loop(kernel.body, band.variables[-1], lambda x: replace(x, body=store))
    buffers = tuple(b for b in kernel.buffers if b.name not in gone)
    return replace(kernel, body=body, buffers=buffers)


def _as_map(body: Node) -> Store | None:
    """`s = c; for k { s += x }; s = f(s); y = g(s)`  ->  `y = g(f(c + x))`, for a single k."""

    def once(x: Node) -> Node:
        return substitute_node(x.body, {x.variable: x.lower}) if isinstance(x, Loop) else x

    match tuple(children(map_node(body, once))):
        case (Store() as start, Update(op="add") as term, *after, Store() as end):
            pass
        case _:
            return None
    dtype = value_dtype(term.value)
    if not isinstance(start.value, Const) or isinstance(
        term.value, Holds | HorizontalReduce | Shuffle
    ):
        return None
    if (start.buffer, start.subscripts) != (term.buffer, term.subscripts):
        return None
    if dtype != value_dtype(start.value):
        return None
    total = Binary("add", start.value, term.value, dtype)
    if not all(isinstance(x, Store) and x.buffer == start.buffer for x in after):
        return None
    return forward_values((replace(start, value=total), *after, end))
