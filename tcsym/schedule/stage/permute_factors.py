# SPDX-License-Identifier: Apache-2.0
"""Operands of a map that lie across its result, and are used several times -> copies along it.

`Z(a,b,c,d) = X(a,b) * Y(d,c)`: for each a and b, rows of Z take their factors from far apart, or a
block of Y is transposed anew. The copy Y'(c,d) is transposed once, and read as Z is written.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import FALSE, ONE, TRUE, Condition, Index, all_of, ge
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Store
from tcsym.ir.traverse import certain_loads
from tcsym.schedule.analysis.access import stride, value_variables
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import chain_of, find_loop, loops_around
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.stage.copy_operand import copy_operand, depend_on_sizes
from tcsym.schedule.version.versioning import beside

LEAST_USES = 3  # of an element: with fewer, blocks are transposed where they are used


class Factors(Struct, frozen=True):
    """`copies`: outermost loops of the nests that make them, not scheduled yet; `rest`: the map
    without them, where they are used less often."""

    kernel: Kernel
    copies: tuple[str, ...]
    rest: str | None


def permute_factors(kernel: Kernel, nest: str, setting: Setting) -> Factors | None:
    """The map on copies; None if no operand is worth one."""
    chain = chain_of(find_loop(kernel.body, nest))
    found, pays = _across(kernel, chain), factors_pay(kernel, nest)
    if pays == FALSE:
        return None
    rest = None
    if pays != TRUE:
        both = beside(kernel, nest, pays, "instead", setting.names)
        kernel, rest = both.kernel, both.rest[nest]
    store, copies = chain[-1].body, list[str]()
    assert isinstance(store, Store)
    for r in found:
        moved = [x for x in chain if x.variable in value_variables(r)]
        moved.sort(key=lambda x: (_is_along(kernel, store, x), x is chain[-2]))
        name = setting.names.fresh(f"{r.tensor}_copy")
        loops = tuple(moved)
        kernel, copy = copy_operand(kernel, nest, r, loops, loops, name, setting.names)
        copies.append(copy)
    return Factors(kernel, tuple(copies), rest)


def factors_pay(kernel: Kernel, nest: str) -> Condition:
    """Where all operands that are worth a copy are used often; FALSE if there are none."""
    chain = chain_of(find_loop(kernel.body, nest))
    found = _across(kernel, chain)
    if not found or loops_around(kernel.body, nest):
        return FALSE
    return in_context(kernel, all_of(_used_often(chain, r) for r in found))


def _across(kernel: Kernel, chain: tuple[Loop, ...]) -> tuple[Read, ...]:
    """Operands that move along the result's rows, but far, and stay while another loop moves."""
    store = chain[-1].body
    parallel = all(x.order == "parallel" and x.kind == "serial" for x in chain)
    if not isinstance(store, Store) or not parallel or not depend_on_sizes(kernel, chain):
        return ()
    along = next((x.variable for x in chain if _is_along(kernel, store, x)), None)
    inside = {x.variable for x in chain}
    if along is None or any(b.private & inside for b in kernel.buffers):
        return ()
    found = dict[Read, None]()
    for r in certain_loads(store.value):
        used = value_variables(r)
        if along not in used or not _is_permuted(r) or not inside - used:
            continue
        if stride(kernel.buffer(r.tensor), r.subscripts, along) != ONE and r.tensor != store.buffer:
            found[r] = None
    return tuple(found)


def _is_permuted(r: Read) -> bool:
    """But for what no loop moves."""
    moved = tuple(s for s in r.subscripts if value_variables(replace(r, subscripts=(s,))))
    return is_permutation(replace(r, subscripts=moved))


def _is_along(kernel: Kernel, store: Store, x: Loop) -> bool:
    return stride(kernel.buffer(store.buffer), store.subscripts, x.variable) == ONE


def _used_often(chain: tuple[Loop, ...], r: Read) -> Condition:
    others = (extent(x) for x in chain if x.variable not in value_variables(r))
    return ge(product_of(others), LEAST_USES)


def is_permutation(r: Read, along: str = "", steps: int = 1) -> bool:
    """Each subscript is one variable and perhaps a constant, each variable in one of them.

    `along` goes by so many steps.
    """
    found: list[str] = []
    for s in r.subscripts:
        if not isinstance(s, Index) or len(s.variables()) > 1:
            return False
        found += [v for v in s.variables() if s.coefficient(v) == (steps if v == along else 1)]
        if len(s.terms) > len(s.variables()):
            return False
    plain = not any(r.checked) and r.unwritten is None
    return plain and len(found) == len(set(found)) == len(r.subscripts)
