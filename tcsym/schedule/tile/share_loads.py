# SPDX-License-Identifier: Apache-2.0
"""Neighbouring rows that read the same elements -> two rows at a time, each element loaded once.

Row i of a stencil reads rows i to i + 2 of its operand, and row i + 1 two of these again; so do the
columns of sliding windows. Where there are two rows of a vector or more, the innermost loop makes a
vector of both, and the code generator loads once what both read. The last vectors of a row and the
last rows overlap others, so that nothing is left over: one loop for a row, whatever its length.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Call, Select
from tcsym.index.expr import (
    FALSE,
    ONE,
    ZERO,
    Condition,
    all_of,
    ceildiv,
    condition_variables,
    ge,
    minimum,
    var,
)
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node, Prefetch, Store, block
from tcsym.ir.traverse import loads, substitute_node, substitute_value, subvalues
from tcsym.schedule.analysis.access import stride, subscript_variables
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.cost import is_light
from tcsym.schedule.analysis.loops import (
    chain_of,
    children,
    find_loop,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.names import replace_private
from tcsym.schedule.analysis.overlap import is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.tile.row_schedule import row_choice
from tcsym.schedule.tile.tile_loop import is_multiple, tile_loop_overlapping

ROWS = 2  # four save little more, and read from more places at once
WORTH = 12  # a load saved for so many operations


def sharing(kernel: Kernel, nest: str, setting: Setting) -> tuple[str, Condition] | None:
    """The loop of which two rows at a time save enough loads, and where; None: there is none."""
    chain = whole_chain(kernel, nest, setting)
    rows = None if chain is None else shared_rows(kernel, chain)
    if chain is None or rows is None:
        return None
    enough = in_context(kernel, _enough(kernel, chain, rows, setting))
    if enough == FALSE or not condition_variables(enough) <= frozenset(kernel.sizes):
        return None
    return rows.variable, enough


def pair_rows(kernel: Kernel, nest: str, rows: str, setting: Setting) -> Kernel:
    """The nest with two of `rows` at a time. Contract: `sharing`."""
    chain = chain_of(find_loop(kernel.body, nest))
    paired = next(x for x in chain if x.variable == rows)
    return whole_vectors(kernel, chain, paired, setting)


def _enough(kernel: Kernel, chain: tuple[Loop, ...], rows: Loop, setting: Setting) -> Condition:
    lanes = setting.lanes(kernel, chain[-1].body)
    return all_of((ge(extent(rows), ROWS), ge(extent(chain[-1]), lanes)))


def whole_vectors(
    kernel: Kernel,
    chain: tuple[Loop, ...],
    rows: Loop | None,
    setting: Setting,
    ahead: tuple[Prefetch, ...] = (),
) -> Kernel:
    """The chain of `whole_chain` in vectors without masks, of two of `rows` if these are given.

    ahead: what each vector fetches, if `rows` is not given.

    Contract: rows are a vector long or longer, and there are two or more.
    """
    row, lanes = chain[-1], setting.lanes(kernel, chain[-1].body)
    tile, point = setting.names.fresh(row.variable), setting.names.fresh(row.variable)

    def vectors(x: Loop) -> Node:
        tiled = tile_loop_overlapping(x, lanes, tile, point)
        return replace_loop(tiled, point, lambda y: replace(y, kind="vector"))

    body = kernel.body
    if rows is not None:
        body = replace_loop(body, rows.variable, _paired)
    body = replace_loop(body, row.variable, vectors)
    if ahead and rows is None:
        start = {row.variable: row.lower + var(tile) * lanes}
        setting.ahead[tile] = tuple(
            x for y in ahead if isinstance(x := substitute_node(y, start), Prefetch)
        )
    return replace_private(replace(kernel, body=body), {row.variable: (row.variable, tile)})


def _paired(rows: Loop) -> Loop:
    n, first = extent(rows), var(rows.variable) * ROWS
    first = rows.lower + (first if is_multiple(n, ROWS) else minimum(first, n - ROWS))

    def pair(x: Node) -> Node:
        if isinstance(x, Loop):
            return replace(x, body=pair(x.body))
        return block(*(substitute_node(x, {rows.variable: first + r}) for r in range(ROWS)))

    return replace(rows, lower=ZERO, upper=ceildiv(n, ROWS), body=pair(rows.body))


def whole_chain(kernel: Kernel, nest: str, setting: Setting) -> tuple[Loop, ...] | None:
    """The nest's loops, if it may run in vectors along the last, some of them made twice."""
    chain = chain_of(find_loop(kernel.body, nest))
    row, body = chain[-1], chain[-1].body
    plain = all(x.order == "parallel" and x.kind == "serial" for x in chain)
    if not plain or not all(isinstance(x, Store) for x in children(body)):
        return None
    lanes = setting.lanes(kernel, body)
    if lanes == 1 or row_choice(kernel, chain, lanes)[0] != row.variable:
        return None
    values = [v for x, _ in statements_in(body) for v in subvalues(x.value)]
    if any(
        isinstance(v, Select) or (isinstance(v, Call) and not is_light(v.function)) for v in values
    ):
        return None  # elements that are too dear to make them again, or loads under conditions
    bounds = (e for x in chain for e in (x.lower, x.upper))
    fixed = all(not e.variables() & {x.variable for x in chain} for e in bounds)
    return chain if fixed and is_repeatable(kernel, body, frozenset((row.variable,))) else None


def shared_rows(kernel: Kernel, chain: tuple[Loop, ...]) -> Loop | None:
    """The loop of whose rows two share most; None if no two share enough."""
    body = chain[-1].body
    candidates = [x for x in chain[:-1] if _can_pair(kernel, chain, x)]
    best = max(candidates, key=lambda x: _shared(kernel, chain, x), default=None)
    saved = 0 if best is None else _shared(kernel, chain, best)
    operations = sum(1 for x, _ in statements_in(body) for _ in (x, *subvalues(x.value)))
    return best if saved and saved * WORTH >= operations else None


def _can_pair(kernel: Kernel, chain: tuple[Loop, ...], rows: Loop) -> bool:
    """Rows may be made again, and a temporary is of a row's element, not of the row."""
    body, row = chain[-1].body, chain[-1].variable
    private = (kernel.buffer(x.buffer).private for x in children(body) if isinstance(x, Store))
    alone = all(rows.variable not in p or row in p for p in private)
    return alone and is_repeatable(kernel, body, frozenset((rows.variable,)))


def _shared(kernel: Kernel, chain: tuple[Loop, ...], rows: Loop) -> int:
    """Vectors that a pair of rows need not load twice."""
    found = {
        r
        for x, _ in statements_in(chain[-1].body)
        for r in loads(x.value)
        if stride(kernel.buffer(r.tensor), r.subscripts, chain[-1].variable) == ONE
        and rows.variable in subscript_variables(r.subscripts)
    }
    after = {rows.variable: var(rows.variable) + 1}
    return sum(substitute_value(r, after) in found for r in found)
