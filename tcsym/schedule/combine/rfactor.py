# SPDX-License-Identifier: Apache-2.0
"""A reduction loop with no loop around -> parallel parts, combined in order.

The number of parts follows from sizes alone, never from threads: so does the result.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import (
    TRUE,
    ZERO,
    Condition,
    Index,
    all_of,
    ceildiv,
    condition_variables,
    floordiv,
    maximum,
    minimum,
    var,
)
from tcsym.ir.bounds import extent, is_nonnegative
from tcsym.ir.loops import Branch, Kernel, Loop, Node, Store, Update, Verify, block, conditional
from tcsym.ir.traverse import loads, map_node
from tcsym.schedule.analysis.access import accesses, subscript_variables
from tcsym.schedule.analysis.cost import PER_CYCLE, Costs
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import (
    children,
    loops_around,
    loops_in,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.target.machine import Machine

MOST_PARTS = 64
PART_WORK = 65536 * PER_CYCLE  # one element at a time, as the loops are here: vectors come later


def rfactor(kernel: Kernel, machine: Machine, names: Names) -> Kernel:
    """Every outermost reduction loop into private accumulators becomes parallel parts.

    Contract: privatised temporaries. The parts have an accumulator each, and leave it in an array.
    """
    for loop in loops_in(kernel.body):
        if loop.order == "reduction" and not loops_around(kernel.body, loop.variable):
            targets = _targets(kernel, loop)
            if targets and loop.lower == ZERO and _is_known(kernel, extent(loop)):
                kernel = _split(kernel, loop, targets, machine, names)
    return kernel


def _is_known(kernel: Kernel, n: Index) -> bool:
    return n.variables() <= frozenset(kernel.sizes) and is_nonnegative(n, frozenset(kernel.sizes))


def _targets(kernel: Kernel, loop: Loop) -> tuple[Update, ...]:
    """One update for each accumulator of the loop; none if it does anything else that lasts."""
    inside = {x.variable for x in loops_in(loop)}
    found: dict[str, Update] = {}
    for x, _ in statements_in(loop):
        if isinstance(x, Verify) or loop.variable in kernel.buffer(x.buffer).private:
            continue
        temporary = kernel.buffer(x.buffer).space == "arena"
        if not isinstance(x, Update) or not temporary or subscript_variables(x.subscripts) & inside:
            return ()
        first = found.setdefault(x.buffer, x)
        if (first.subscripts, first.op) != (x.subscripts, x.op):
            return ()
    read = {r.tensor for x, _ in statements_in(loop) for r in loads(x.value)}
    return () if read & found.keys() else tuple(found.values())


def _split(
    kernel: Kernel, loop: Loop, targets: tuple[Update, ...], machine: Machine, names: Names
) -> Kernel:
    n, part, last = extent(loop), names.fresh(loop.variable), names.fresh(loop.variable)
    work = Costs.of(kernel, machine).of_iteration((loop,), frozenset(kernel.sizes))
    most = maximum(1, minimum(MOST_PARTS, floordiv(n * work, PART_WORK)))
    size = maximum(1, ceildiv(n, most))
    count = ceildiv(n, size)  # no part begins behind the end; none if nothing is summed
    first = var(part) * size
    inner: Node = replace(loop, lower=first, upper=minimum(n, first + size))
    before: list[Node] = []
    after: list[Node] = []
    combined: list[Node] = []
    for x in targets:
        source = kernel.buffer(x.buffer)
        shape = (*source.shape, maximum(1, count))
        at, end = (*x.subscripts, var(part)), (*x.subscripts, var(last))
        own, kept = names.fresh(source.name), names.fresh(f"{source.name}_parts")
        private = source.private | {part}
        kernel = kernel.with_buffer(replace(source, name=own, shape=shape, private=private))
        kernel = kernel.with_buffer(replace(source, name=kept, shape=shape))
        before.append(Store(own, at, identity(x.op, source.dtype), x.name))
        after.append(Store(kept, at, Read(own, at, source.dtype), x.name))
        total = replace(x, value=Read(kept, end, source.dtype))
        combined.append(conditional(_needed(loop, x.buffer, frozenset(kernel.sizes)), total))
        inner = _redirected(inner, x, own, at)
    parts = Loop(part, ZERO, count, block(*before, inner, *after), "serial", "parallel")
    totals = Loop(last, ZERO, count, block(*combined))
    body = replace_loop(kernel.body, loop.variable, lambda _: block(parts, totals))
    return replace_private(replace(kernel, body=body), {loop.variable: (loop.variable, part)})


def _needed(node: Node, buffer: str, sizes: frozenset[str]) -> Condition:
    """What sizes fulfil at which the buffer is updated: at others it may not even begin."""
    users = [x for x in children(node) if buffer in {a.buffer for a in accesses(x)}]
    match users:
        case [Loop() as x]:
            return _needed(x.body, buffer, sizes)
        case [Branch(c, x, None)]:
            inside = _needed(x, buffer, sizes)
            return all_of((c, inside)) if condition_variables(c) <= sizes else inside
        case _:
            return TRUE


def _redirected(node: Node, target: Update, buffer: str, subscripts: tuple[Index, ...]) -> Node:
    def statement(x: Node) -> Node:
        if isinstance(x, Update) and x.buffer == target.buffer:
            return replace(x, buffer=buffer, subscripts=subscripts)
        return x

    return map_node(node, statement)
