# SPDX-License-Identifier: Apache-2.0
"""Loops of a few known iterations that choose -> their iterations, each with what it chose.

`Z(b,i,j) = i == j ? X(b,1-i,1-j) : -X(b,i,j)`, a 2 x 2 matrix inverted: ranges in which the guard
is decided have one element each. Without the loops nothing is left to decide, and matrices fill the
lanes.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from operator import mul

from msgspec.structs import replace

from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import Select
from tcsym.index.expr import FALSE, TRUE, condition_variables, index
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node, Store, Value, block
from tcsym.ir.traverse import map_node, substitute_node, subvalues
from tcsym.schedule.analysis.loops import chain_of, children, loops_in, replace_loop

MOST_ITERATIONS = 9  # iterations: a matrix of 3 x 3


def unroll_choices(kernel: Kernel) -> Kernel:
    """Innermost parallel loops that decide conditions, inside another parallel loop."""
    for around in loops_in(kernel.body):
        if around.order != "parallel" or extent(around).as_int() is not None:
            continue
        for top in children(around.body):
            if isinstance(top, Loop) and _may_unroll(kernel, chain_of(top)):
                made = _unrolled(chain_of(top))
                body = replace_loop(kernel.body, top.variable, lambda _, made=made: made)  # type: ignore[misc]
                kernel = replace(kernel, body=body)
    return kernel


def _may_unroll(kernel: Kernel, chain: tuple[Loop, ...]) -> bool:
    """A few stores whose conditions ask for nothing but the iteration."""
    own = frozenset(x.variable for x in chain)
    counts = [extent(x).as_int() for x in chain]
    plain = all(x.order == "parallel" and x.kind == "serial" for x in chain)
    stores = children(chain[-1].body)
    if not plain or any(n is None for n in counts) or not all(isinstance(x, Store) for x in stores):
        return False
    asked = [
        v.condition
        for x in stores
        if isinstance(x, Store)
        for v in subvalues(x.value)
        if isinstance(v, Select)
    ]
    known = [as_condition(c) for c in asked]
    decided = all(c is not None and condition_variables(c) <= own for c in known)
    few = reduce(mul, (n or 0 for n in counts), 1) * len(stores) <= MOST_ITERATIONS
    fixed = all(x.lower.as_int() is not None for x in chain)
    return (
        bool(known)
        and decided
        and few
        and fixed
        and not any(b.private & own for b in kernel.buffers)
    )


def _unrolled(chain: tuple[Loop, ...]) -> Node:
    ranges = [range(x.lower.as_int() or 0, x.upper.as_int() or 0) for x in chain]
    made = []
    for at in product(*ranges):
        values = {x.variable: index(k) for x, k in zip(chain, at)}
        made.append(map_node(substitute_node(chain[-1].body, values), on_value=_chosen))
    return block(*made)


def _chosen(v: Value) -> Value:
    c = as_condition(v.condition) if isinstance(v, Select) else None
    if not isinstance(v, Select) or c not in (TRUE, FALSE):
        return v
    return v.then if c == TRUE else v.orelse
