"""Sums along rows that share an operand -> four rows at a time, beside the rows one by one.

A matrix times a vector: each element of the vector is loaded once for four rows, and memory is read
in four runs. The last four rows overlap others, so that no row is left.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.frontend.program import Call, Read
from tcsym.index import FALSE, ONE, ZERO, Index, ceildiv, ge, minimum, var
from tcsym.index_values import substitute
from tcsym.loop_ir import (
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    Value,
    block,
    loads,
    map_node,
    substitute_node,
    subvalues,
)
from tcsym.polyhedral.passes.common.access import (
    Access,
    accesses,
    stride,
    subscript_variables,
)
from tcsym.polyhedral.passes.common.assume import in_context
from tcsym.polyhedral.passes.common.band import Band, band_of, reductions
from tcsym.polyhedral.passes.common.bounds import extent
from tcsym.polyhedral.passes.common.duplicate import duplicate
from tcsym.polyhedral.passes.common.interchange import can_sink
from tcsym.polyhedral.passes.common.loops import (
    chain_of,
    children,
    find_loop,
    is_leaf,
    replace_loop,
    statements_in,
)
from tcsym.polyhedral.passes.common.overlap import is_repeatable
from tcsym.polyhedral.passes.common.setting import Setting
from tcsym.polyhedral.passes.rows.row_schedule import leaf_chain, row_choice
from tcsym.records import dataclass

ROWS = 4


@dataclass(frozen=True, slots=True)
class Jammed:
    """`nest`: the version of four rows at a time, which runs where there are so many."""

    kernel: Kernel
    nest: str


def jam_rows(kernel: Kernel, nest: str, setting: Setting) -> Jammed | None:
    """A version of the nest with its innermost parallel loop in fours; None if nothing is shared.

    In it, each statement and reduction is there for four rows, and each reduction loop once.
    """
    top = find_loop(kernel.body, nest)
    band = band_of(top)
    if not band.loops or not _shares_rows(kernel, nest, band.loops[-1].variable, setting):
        return None
    rows = band.loops[-1]
    n = extent(rows)
    enough = in_context(kernel, ge(n, ROWS))
    if n.as_int() is not None or enough == FALSE or n.variables() & set(band.variables):
        return None
    kernel, copied, new = duplicate(kernel, top, setting.names)
    copy = find_loop(copied, new[rows.variable])
    first = copy.lower + minimum(var(copy.variable) * ROWS, n - ROWS)
    fours = _in_fours(copy, tuple({copy.variable: first + r} for r in range(ROWS)))
    copied = replace_loop(copied, copy.variable, lambda _: fours)
    body = replace_loop(kernel.body, nest, lambda x: Branch(enough, copied, x))
    return Jammed(replace(kernel, body=body), new[nest])


def jam_outer_rows(kernel: Kernel, nest: str, setting: Setting) -> Kernel | None:
    """The nest with a loop around its innermost parallel one in fours; None as for `jam_rows`.

    That is the one loop that moves no operand which the innermost one moves. For any number of
    rows: instead of one that is not there the last is made again.
    """
    band = band_of(find_loop(kernel.body, nest))
    bounds = frozenset[str]().union(*(extent(x).variables() for x in band.loops))
    apart = [x for x in band.loops[:-1] if _moves_others(band, x.variable)]
    if len(apart) != 1 or bounds & set(band.variables):
        return None
    rows = apart[0]
    if not _shares_rows(kernel, nest, rows.variable, setting):
        return None
    private = {b.name for b in kernel.buffers if rows.variable in b.private}
    if not all(_is_plain(a, rows.variable) for a in accesses(rows) if a.buffer in private):
        return None
    own = f"{rows.variable} itself"
    first = var(rows.variable) * ROWS
    places = tuple(
        {rows.variable: rows.lower + minimum(first + r, extent(rows) - 1), own: first + r}
        for r in range(ROWS)
    )
    renamed = replace(rows, body=_with_own(rows.body, private, {rows.variable: var(own)}))
    fours = _in_fours(renamed, places)
    return replace(kernel, body=replace_loop(kernel.body, rows.variable, lambda _: fours))


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


def _in_fours(rows: Loop, places: tuple[dict[str, Index], ...]) -> Loop:
    """Each statement of the loop for all these values of its variable."""

    def jam(x: Node) -> Node:
        if isinstance(x, Block):
            return block(*map(jam, x.body))
        if isinstance(x, Loop):
            return replace(x, body=jam(x.body))
        return block(*(substitute_node(x, at) for at in places))

    return replace(rows, lower=ZERO, upper=ceildiv(extent(rows), ROWS), body=jam(rows.body))


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
