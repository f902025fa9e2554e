# SPDX-License-Identifier: Apache-2.0
"""Leaf schedule `rows`: each innermost loop in vectors, along the best loop of its chain."""

from __future__ import annotations

from math import gcd, lcm

from msgspec.structs import replace

from tcsym.frontend.program import Call, Read
from tcsym.index.expr import FloorDiv, Index, floordiv
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node, Store, Update, Value, block
from tcsym.ir.traverse import subvalues
from tcsym.schedule.analysis.access import accesses, subscript_variables, value_variables
from tcsym.schedule.analysis.loops import (
    chain_of,
    children,
    find_loop,
    is_leaf,
    loops_around,
    loops_in,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.overlap import is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.vector_legality import (
    access_cost,
    can_mask,
    is_short,
    vector_refusal,
)
from tcsym.schedule.order.interchange import reorder_chain
from tcsym.schedule.tile.tile_loop import is_multiple
from tcsym.schedule.tile.vector_rows import RowShape, vectorise_row
from tcsym.schedule.version.versioning import duplicate

ACCUMULATORS = 8
ROW_VECTORS = 4  # in flight along a row
MOST_PERIOD = 7
TOO_SHORT = 2


def schedule_rows(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """Every innermost loop of the nest in vectors where that is legal and useful."""
    leaves = [x.variable for x in loops_in(find_loop(kernel.body, nest)) if is_leaf(x)]
    for leaf in leaves:
        kernel, note = _schedule_leaf(kernel, nest, leaf, setting)
        setting.note(leaf, note)
    return kernel


def _schedule_leaf(kernel: Kernel, nest: str, leaf: str, setting: Setting) -> tuple[Kernel, str]:
    chain = leaf_chain(find_loop(kernel.body, nest), leaf)
    body, lanes = chain[-1].body, setting.lanes(kernel, chain[-1].body)
    if lanes == 1:
        return kernel, "scalar: no vectors"
    best, _, reason = row_choice(kernel, chain, lanes)
    if best is None:
        return kernel, f"scalar: {reason}"
    kernel = _move_inside(kernel, chain, best)
    chain = leaf_chain(find_loop(kernel.body, _top_after(nest, chain, best)), best)
    unroll = _unroll(body, best, ROW_VECTORS)
    if unroll > 1:
        unroll = _whole_periods(body, best, lanes, unroll)
    masked, again = (
        can_mask(kernel, body, setting.machine),
        _may_overlap(kernel, body, best, setting),
    )
    shape = RowShape(lanes, unroll, masked, again)
    if _is_scattered(kernel, best):
        shape = RowShape(lanes, unroll, masked=False, narrowing=True)
    kernel = vectorise_row(kernel, _reduction_top(chain), best, shape, setting.names)
    return kernel, f"vectors along {best}"


def _is_scattered(kernel: Kernel, row: str) -> bool:
    """Rows at positions that are found, one after the other: each may wait for what the one before
    stored there, which a load gets at once if no mask was between."""
    return any(x.at is not None for x in loops_around(kernel.body, row))


def _may_overlap(kernel: Kernel, body: Node, variable: str, setting: Setting) -> bool:
    """Elements at a row's end may be made twice, which is cheaper than to mask their stores."""
    cheap = not setting.machine.has_masks and not calls_each(body, variable)
    return cheap and is_repeatable(kernel, body, frozenset((variable,)))


def split_rest(
    kernel: Kernel, top: str, variable: str, width: int, names: Names
) -> tuple[Kernel, tuple[str, str] | None]:
    """The nest `top` for whole groups of `width` of a loop in it, then a copy for the rest.

    Gives the copy's names of both loops, or None if nothing is left over.
    """
    loop = find_loop(kernel.body, variable)
    if is_multiple(extent(loop), width):
        return kernel, None
    kernel, copy, new = duplicate(kernel, find_loop(kernel.body, top), names)
    end = loop.lower + floordiv(extent(loop), width) * width
    rest = replace_loop(copy, new[variable], lambda x: replace(x, lower=end))

    def whole(x: Loop) -> Node:
        return block(replace_loop(x, variable, lambda y: replace(y, upper=end)), rest)

    body = replace_loop(kernel.body, top, whole)
    return replace(kernel, body=body), (new[top], new[variable])


def leaf_chain(nest: Node, leaf: str) -> tuple[Loop, ...]:
    """The perfect chain that ends in the innermost loop `leaf`, outermost first."""
    chain = chain_of(find_loop(nest, leaf))
    for loop in reversed(loops_around(nest, leaf)):
        if loop.body != chain[0]:
            break
        chain = (loop, *chain)
    return chain


def row_choice(
    kernel: Kernel, chain: tuple[Loop, ...], lanes: int
) -> tuple[str | None, float, str]:
    """The loop of the chain to run in lanes with the cost of a point, or None and the reason."""
    body, reason = chain[-1].body, "the loop runs in order"
    best, least = None, access_cost(kernel, body, None, 1)
    touched = {a.buffer for a in accesses(body)}
    used = [b for b in kernel.buffers if b.name in touched]
    for k in reversed(range(len(chain))):
        loop = chain[k]
        if loop.order == "sequential" or loop.kind != "serial":
            continue
        if (extent(loop).as_int() or TOO_SHORT + 1) <= TOO_SHORT:
            reason = "too short"
            continue
        if any(loop.variable in x.lower.variables() | x.upper.variables() for x in chain[k + 1 :]):
            reason = "bounds move with the loop"
            continue
        inside = {x.variable for x in chain[k + 1 :]}
        if any(loop.variable in b.private and not inside <= b.private for b in used):
            reason = "a temporary lives through the loops inside"
            continue
        refusal = vector_refusal(kernel, body, loop.variable)
        if refusal:
            reason = refusal
            continue
        cost = access_cost(kernel, body, loop.variable, lanes) * (4 if is_short(loop, lanes) else 1)
        if cost < least:
            best, least = loop.variable, cost
        else:
            reason = "no unit stride"
    return best, least, reason


def _move_inside(kernel: Kernel, chain: tuple[Loop, ...], variable: str) -> Kernel:
    order = (*(x.variable for x in chain if x.variable != variable), variable)
    if order == tuple(x.variable for x in chain):
        return kernel
    top = chain[0].variable
    return replace(kernel, body=replace_loop(kernel.body, top, lambda x: reorder_chain(x, order)))


def _top_after(nest: str, chain: tuple[Loop, ...], moved: str) -> str:
    """The nest's outermost loop, which the interchange may have changed."""
    return chain[1].variable if nest == moved and len(chain) > 1 else nest


def _reduction_top(chain: tuple[Loop, ...]) -> str:
    """Outermost loop of the chain whose inner loops move no element reduced in the last one."""
    row = chain[-1]
    used = frozenset[str]().union(
        *(
            subscript_variables(x.subscripts)
            for x in children(row.body)
            if isinstance(x, Update) and row.variable not in subscript_variables(x.subscripts)
        )
    )
    top = row.variable
    for loop in reversed(chain[:-1]):
        if loop.variable in used or loop.order == "parallel":
            break
        top = loop.variable
    return top


def _unroll(body: Node, variable: str, most: int) -> int:
    """Vectors in flight: more for reductions, whose additions wait for each other.

    Few enough that the accumulators of all reductions leave half of 16 registers to values.
    """
    statements = [x for x, _ in statements_in(body)]
    reduced = {
        (x.buffer, x.subscripts)
        for x in statements
        if isinstance(x, Update) and variable not in subscript_variables(x.subscripts)
    }
    if calls_each(body, variable):  # several exponentials would load their constants each time
        return 1
    if not reduced:
        return max(1, min(2, most))
    return max(1, min(most, ACCUMULATORS // len(reduced)))


def _whole_periods(body: Node, variable: str, lanes: int, unroll: int) -> int:
    """So many vectors that quotients such as i/3 begin with a new one after them: each lane's place
    is known then, beside one for all. `unroll` where that would be too many."""
    divisors = {
        n
        for a in accesses(body)
        for s in a.subscripts
        for atom, _ in (s.terms if isinstance(s, Index) else ())
        if isinstance(atom, FloorDiv) and abs(atom.dividend.coefficient(variable)) == 1
        if (n := atom.divisor.as_int()) is not None and n > 1
    }
    period = lcm(*(n // gcd(n, lanes) for n in divisors))
    return unroll if period == 1 or period > MOST_PERIOD else period


def calls_each(body: Node, variable: str) -> bool:
    """Functions are called for each element of the row."""
    statements = [x for x, _ in statements_in(body)]
    made = {x.buffer for x in statements if isinstance(x, Store | Update)}
    return any(_moves(v, variable, made) for x in statements for v in subvalues(x.value))


def _moves(v: Value, variable: str, made: set[str]) -> bool:
    """A call for each element of the row, not one for all of them."""
    if not isinstance(v, Call):
        return False
    own = any(isinstance(x, Read) and x.tensor in made for x in subvalues(v))
    return own or variable in value_variables(v)
