"""Sums along rows that share an operand -> four rows at a time, beside the rows one by one.

A matrix times a vector: each element of the vector is loaded once for four rows, and memory is read
in four runs. The last four rows overlap others, so that no row is left.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.frontend.program import Call
from tcsym.index import FALSE, ONE, ZERO, ceildiv, ge, minimum, var
from tcsym.loop_ir import (
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    block,
    loads,
    substitute_node,
    subvalues,
)
from tcsym.polyhedral.passes.common.access import stride, subscript_variables
from tcsym.polyhedral.passes.common.assume import in_context
from tcsym.polyhedral.passes.common.band import band_of
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
    if not band.loops or not _shares_rows(kernel, nest, setting):
        return None
    rows = band.loops[-1]
    n = extent(rows)
    enough = in_context(kernel, ge(n, ROWS))
    if n.as_int() is not None or enough == FALSE or n.variables() & set(band.variables):
        return None
    kernel, copied, new = duplicate(kernel, top, setting.names)
    copy = find_loop(copied, new[rows.variable])
    first = copy.lower + minimum(var(copy.variable) * ROWS, n - ROWS)

    def jam(x: Node) -> Node:
        if isinstance(x, Block):
            return block(*map(jam, x.body))
        if isinstance(x, Loop):
            return replace(x, body=jam(x.body))
        return block(*(substitute_node(x, {copy.variable: first + r}) for r in range(ROWS)))

    fours = replace(copy, lower=ZERO, upper=ceildiv(n, ROWS), body=jam(copy.body))
    copied = replace_loop(copied, copy.variable, lambda _: fours)
    body = replace_loop(kernel.body, nest, lambda x: Branch(enough, copied, x))
    return Jammed(replace(kernel, body=body), new[nest])


def _shares_rows(kernel: Kernel, nest: str, setting: Setting) -> bool:
    """Reductions in vectors along memory, of one sum a row, with an operand that rows share."""
    top = find_loop(kernel.body, nest)
    band = band_of(top)
    rows, nodes = band.loops[-1].variable, children(band.body)
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
