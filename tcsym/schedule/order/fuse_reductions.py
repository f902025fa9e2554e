# SPDX-License-Identifier: Apache-2.0
"""Nested reduction loops whose strides compose -> one long loop.

A window's loops (channels, kernel rows, kernel columns) are short, so that a register tile would
spend its time at their ends. Where every address moves by n*s with the outer loop and by s with
the inner one of n iterations, one counter r = n*outer + inner serves both, and no address
needs a division: n*(r/n) + (r - n*(r/n)) is r.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import ZERO, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node
from tcsym.ir.traverse import map_node, substitute_node
from tcsym.schedule.analysis.access import accesses, subscript_variables
from tcsym.schedule.analysis.loops import statements_in
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.order.fuse_parallel import are_even, fused_position, uses_position


def fuse_reductions(kernel: Kernel, loops: frozenset[str], names: Names) -> tuple[Kernel, set[str]]:
    """The perfect nests among `loops` fused as far as their strides compose; the loops left.

    Contract: reduction loops, or loops of copies, in any order; registers do not move with them.
    """
    left = set(loops)

    def fuse(x: Node) -> Node:
        while isinstance(x, Loop) and _is_fusible(kernel, x, left):
            inner = x.body
            assert isinstance(inner, Loop)
            new = names.fresh(inner.variable)
            left.difference_update((x.variable, inner.variable))
            left.add(new)
            x = _fused(x, inner, new)
        return x

    return replace(kernel, body=map_node(kernel.body, fuse)), left


def _is_fusible(kernel: Kernel, outer: Loop, loops: set[str]) -> bool:
    inner = outer.body
    if not isinstance(inner, Loop) or not {outer.variable, inner.variable} <= loops:
        return False
    bounds = inner.lower.variables() | inner.upper.variables()
    if {outer.kind, inner.kind} != {"serial"} or outer.variable in bounds:
        return False
    moving = frozenset((outer.variable, inner.variable))
    if any(uses_position(x.value, moving) for x, _ in statements_in(inner.body)):
        return False
    for a in accesses(inner.body):
        b = kernel.buffer(a.buffer)
        if not subscript_variables(a.subscripts) & moving:
            continue
        if b.space != "argument" and not b.padded and b.private & moving:
            return False
        if not are_even(b, a.subscripts, outer.variable, inner.variable, extent(inner)):
            return False
    return True


def _fused(outer: Loop, inner: Loop, new: str) -> Loop:
    body = substitute_node(inner.body, fused_position(outer, inner, var(new)))
    count = extent(outer) * extent(inner)
    return replace(inner, variable=new, lower=ZERO, upper=count, body=body)
