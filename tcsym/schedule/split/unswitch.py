# SPDX-License-Identifier: Apache-2.0
"""Branches inside loops -> loops inside branches, where the condition does not use the loop."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import all_of, condition_variables
from tcsym.index.values import conjuncts
from tcsym.ir.loops import Block, Branch, Kernel, Loop, Node, Store, block, conditional
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.analysis.loops import children
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.version.versioning import Copies


def unswitch(kernel: Kernel, names: Names) -> Kernel:
    """Every condition stands outside all loops that it does not depend on.

    Only where the branch is the whole body of the loop. Conditions are pure and total, so that
    evaluating one for a loop without iterations has no effect. Of a branch that is not, the stores
    with which both arms begin stand before it: reductions then start alike in both.
    """

    copies = Copies(kernel, names)

    def hoist(x: Node) -> Node:
        if isinstance(x, Block):
            return block(*map(_with_common_start, x.body)) if x.body else x
        if not (isinstance(x, Loop) and isinstance(x.body, Branch)):
            return x
        return _hoist(x, x.body) if x.body.orelse is None else _unswitch(x, x.body, copies)

    body = map_node(kernel.body, hoist)
    return replace(copies.kernel, body=body)


def unswitch_serial(kernel: Kernel, names: Names) -> Kernel:
    """Choices made inside parallel loops move out of the serial ones that they do not depend on,
    and choices beside other work out of innermost ones: what follows them in an iteration then is
    in the same block of code, which keeps in registers what they stored."""

    copies = Copies(kernel, names)

    def hoist(x: Node) -> Node:
        if not isinstance(x, Loop) or x.kind != "serial":
            return x
        if isinstance(x.body, Branch):
            return _unswitch(x, x.body, copies) if x.order == "parallel" else x
        choices = [c for c in children(x.body) if isinstance(c, Branch)]
        if len(choices) != 1 or _has_serial_loops(x.body):
            return x
        then, orelse = [
            block(*[arm if c is choices[0] else c for c in children(x.body)])
            for arm in (choices[0].then, choices[0].orelse or Block(()))
        ]
        return _unswitch(x, Branch(choices[0].condition, then, orelse), copies)

    body = map_node(kernel.body, hoist)
    return replace(copies.kernel, body=body)


def _has_serial_loops(node: Node) -> bool:
    return any(isinstance(x, Loop) and x.kind == "serial" for x, _ in walk(node))


def _hoist(loop: Loop, branch: Branch) -> Node:
    parts = conjuncts(branch.condition)
    outer = all_of(c for c in parts if loop.variable not in condition_variables(c))
    inner = all_of(c for c in parts if loop.variable in condition_variables(c))
    return conditional(outer, replace(loop, body=conditional(inner, branch.then)))


def _unswitch(loop: Loop, branch: Branch, copies: Copies) -> Node:
    if branch.orelse is None or loop.variable in condition_variables(branch.condition):
        return loop
    other = copies.of(replace(loop, body=branch.orelse))
    return Branch(branch.condition, replace(loop, body=branch.then), other)


def _with_common_start(x: Node) -> Node:
    if not isinstance(x, Branch) or x.orelse is None:
        return x
    n, pairs = 0, tuple(zip(children(x.then), children(x.orelse)))
    while n < len(pairs) and _same_store(*pairs[n]):
        n += 1
    then, orelse = children(x.then)[n:], children(x.orelse)[n:]
    if n == 0 or not then or not orelse:
        return x
    return block(*children(x.then)[:n], Branch(x.condition, block(*then), block(*orelse)))


def _same_store(a: Node, b: Node) -> bool:
    return isinstance(a, Store) and isinstance(b, Store) and replace(b, name=a.name) == a
