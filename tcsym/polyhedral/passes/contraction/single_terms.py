"""Contractions whose sums may have one term -> beside them, the map that they are then.

`Z(a,b,c,d) += X(a,c,e) * Y(e,d,b)` with one e is an outer product. Its rows need no tile, and may
lie one behind the other, so that vectors run on across them (`rows.fold_rows`).
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.frontend.program import Binary, Const, Read
from tcsym.index import FALSE, all_of, eq, ge
from tcsym.loop_ir import (
    Branch,
    Holds,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    map_node,
    map_value,
    substitute_node,
    subvalues,
    value_dtype,
)
from tcsym.polyhedral.passes.common.access import value_variables
from tcsym.polyhedral.passes.common.assume import in_context
from tcsym.polyhedral.passes.common.band import band_of, factors, reductions
from tcsym.polyhedral.passes.common.bounds import extent
from tcsym.polyhedral.passes.common.duplicate import duplicate
from tcsym.polyhedral.passes.common.loops import children, find_loop, loops_in, replace_loop
from tcsym.polyhedral.passes.common.setting import Setting
from tcsym.polyhedral.passes.contraction.contraction_versions import has_windows
from tcsym.records import dataclass

LEAST_LOOPS = 4  # of the band: results of two loops are long rows
LEAST_COLUMNS = 2  # for each of which a vector across rows takes its factors from registers


@dataclass(frozen=True, slots=True)
class SingleTerms:
    """`map`: the nest without sums, not scheduled yet."""

    kernel: Kernel
    map: str


def single_terms(kernel: Kernel, nest: str, setting: Setting) -> SingleTerms | None:
    """The nest beside a map, or None if it is more than sums that are stored, or if its innermost
    loops move one operand together."""
    band = band_of(find_loop(kernel.body, nest))
    steps = loops_in(band.body)
    sums = {x.buffer for x, _ in reductions(band.body)}
    private = all(kernel.buffer(b).private >= {*band.variables} for b in sums)
    if len(band.loops) < LEAST_LOOPS or not private or _as_map(band.body) is None:
        return None
    if has_windows(kernel, nest) or setting.lanes(kernel, band.body) == 1:
        return None
    last = {x.variable for x in band.loops[-2:]}
    if any(last <= value_variables(r) for x, _ in reductions(band.body) for r in factors(x)):
        return None
    single = all_of((*(eq(extent(x), 1) for x in steps), ge(extent(band.loops[-1]), LEAST_COLUMNS)))
    if in_context(kernel, single) == FALSE:
        return None
    kernel, copy, new = duplicate(kernel, find_loop(kernel.body, nest), setting.names)
    inside = band_of(copy).body if isinstance(copy, Loop) else copy
    store = _as_map(inside)
    assert store is not None
    gone = {x.buffer for x in children(inside) if isinstance(x, Store)} - {store.buffer}
    copy = replace_loop(copy, new[band.variables[-1]], lambda x: replace(x, body=store))
    body = replace_loop(kernel.body, nest, lambda x: Branch(single, copy, x))
    buffers = tuple(b for b in kernel.buffers if b.name not in gone)
    return SingleTerms(replace(kernel, body=body, buffers=buffers), new[nest])


def _as_map(body: Node) -> Store | None:
    """`s = c; for k { s += x }; y = f(s)`  ->  `y = f(c + x)`, if k has one iteration."""

    def once(x: Node) -> Node:
        return substitute_node(x.body, {x.variable: x.lower}) if isinstance(x, Loop) else x

    nodes = tuple(children(map_node(body, once)))
    match nodes:
        case (Store() as start, Update(op="add") as term, Store() as end):
            pass
        case _:
            return None
    found = [v for v in subvalues(end.value) if isinstance(v, Read) and v.tensor == start.buffer]
    if not isinstance(start.value, Const) or isinstance(term.value, Holds | HorizontalReduce):
        return None
    one = start.buffer == term.buffer and len(found) == 1
    if not one or not start.subscripts == term.subscripts == found[0].subscripts:
        return None
    if value_dtype(term.value) != found[0].dtype:
        return None
    total = Binary("add", start.value, term.value, found[0].dtype)
    value = map_value(end.value, lambda v: total if v == found[0] else v, lambda i: i)
    return replace(end, value=value)
