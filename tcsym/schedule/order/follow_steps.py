# SPDX-License-Identifier: Apache-2.0
"""Stores at a fixed place, in a branch that one step of a loop takes -> stores where the step is.

`if t == 0 { S(0,i) = A(i) } else { S(t,i) = S(t-1,i) + .. }` stores S(t,i) in every step, and so it
is written then: passes compare subscripts.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import Condition, Index, IsZero, NonNegative, negate, var
from tcsym.index.values import substitute
from tcsym.ir.loops import Branch, Kernel, Loop, Node, Store, Update
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.analysis.loops import find_loop, replace_loop

Places = dict[tuple[str, int], Index]


def follow_steps(kernel: Kernel) -> Kernel:
    """In loops in order, where stores of other branches move with the step."""
    for loop, _ in tuple(walk(kernel.body)):
        if isinstance(loop, Loop) and loop.is_steps:
            kernel = _following(kernel, loop.variable)
    return kernel


def _following(kernel: Kernel, step: str) -> Kernel:
    loop = find_loop(kernel.body, step)
    places = _places(kernel, loop)
    if not places:
        return kernel

    def at(x: Node) -> Node:
        if not isinstance(x, Branch):
            return x
        then, orelse = (_only_step(c, loop) for c in (x.condition, negate(x.condition)))
        if then is not None:
            return replace(x, then=_moved(x.then, step, then, places))
        if orelse is not None and x.orelse is not None:
            return replace(x, orelse=_moved(x.orelse, step, orelse, places))
        return x

    def changed(x: Loop) -> Node:
        return replace(x, body=map_node(x.body, at))

    return replace(kernel, body=replace_loop(kernel.body, step, changed))


def _places(kernel: Kernel, loop: Loop) -> Places:
    """Buffer, dimension -> the subscript by which stores move with the loop, and with it alone."""
    known = {loop.variable, *kernel.sizes}
    return {
        (x.buffer, d): s
        for x, _ in walk(loop.body)
        if isinstance(x, Store | Update)
        for d, s in enumerate(x.subscripts)
        if loop.variable in s.variables() <= known
    }


def _only_step(c: Condition, loop: Loop) -> Index | None:
    """The one step for which the condition can hold."""
    if not isinstance(c, IsZero | NonNegative) or loop.variable not in c.index.variables():
        return None
    factor = c.index.coefficient(loop.variable)
    rest = c.index - var(loop.variable) * factor
    if abs(factor) != 1 or loop.variable in rest.variables():
        return None
    found = rest * -factor
    if isinstance(c, NonNegative) and (factor != -1 or found != loop.lower):
        return None
    return found


def _moved(arm: Node, step: str, only: Index, places: Places) -> Node:
    """`arm`, which runs in the step `only`."""

    def place(buffer: str, d: int, s: Index) -> Index:
        moving = places.get((buffer, d))
        return s if moving is None or substitute(moving, {step: only}) != s else moving

    def store(x: Node) -> Node:
        if not isinstance(x, Store | Update):
            return x
        subscripts = tuple(place(x.buffer, d, s) for d, s in enumerate(x.subscripts))
        return replace(x, subscripts=subscripts)

    return map_node(arm, store)
