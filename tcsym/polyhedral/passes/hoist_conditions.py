"""Branches inside loops -> loops inside branches, where the condition does not use the loop."""

from __future__ import annotations

from dataclasses import replace

from tcsym.index import All, Condition, all_of, condition_variables
from tcsym.loop_ir import Branch, Loop, Node, conditional, map_node
from tcsym.polyhedral.passes.names import Names, renamed_loops


def hoist_conditions(node: Node, names: Names) -> Node:
    """Every condition stands outside all loops that it does not depend on.

    Only where the branch is the whole body of the loop. Conditions are pure and total, so that
    evaluating one for a loop without iterations has no effect.
    """

    def hoist(x: Node) -> Node:
        if not (isinstance(x, Loop) and isinstance(x.body, Branch)):
            return x
        return _hoist(x, x.body) if x.body.orelse is None else _unswitch(x, x.body, names)

    return map_node(node, hoist)


def _hoist(loop: Loop, branch: Branch) -> Node:
    parts = _conjuncts(branch.condition)
    outer = all_of(c for c in parts if loop.variable not in condition_variables(c))
    inner = all_of(c for c in parts if loop.variable in condition_variables(c))
    return conditional(outer, replace(loop, body=conditional(inner, branch.then)))


def _unswitch(loop: Loop, branch: Branch, names: Names) -> Node:
    if branch.orelse is None or loop.variable in condition_variables(branch.condition):
        return loop
    other = renamed_loops(replace(loop, body=branch.orelse), names)
    return Branch(branch.condition, replace(loop, body=branch.then), other)


def _conjuncts(c: Condition) -> tuple[Condition, ...]:
    return c.conditions if isinstance(c, All) else (c,)
