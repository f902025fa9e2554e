# SPDX-License-Identifier: Apache-2.0
"""Order of loops: perfect chains rearranged, point loops sunk to the statements."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import condition_variables, var
from tcsym.index.values import substitute
from tcsym.ir.loops import Allocate, Block, Branch, Loop, Node
from tcsym.ir.traverse import map_inner, substitute_node
from tcsym.schedule.analysis.names import Names


def reorder_chain(top: Loop, order: tuple[str, ...]) -> Loop:
    """The perfect chain of `top` that consists of the loops `order`, in that order.

    Contract: the loops may be permuted (parallel or reduction), and no bound uses another of them.
    """
    loops: dict[str, Loop] = {}
    body: Node = top
    while isinstance(body, Loop) and body.variable in order:
        loops[body.variable] = body
        body = body.body
    assert set(loops) == set(order), (order, list(loops))
    for v in reversed(order):
        body = replace(loops[v], body=body)
    assert isinstance(body, Loop)
    return body


def sink_points(top: Loop, points: tuple[str, ...], names: Names) -> Node:
    """The perfect chain `points` at `top`, pushed into every statement below.

    Distributed over sequences, interchanged with loops. Contract: the points are parallel in the
    whole subtree and no bound or branch inside uses them (see `can_sink`). Each copy gets fresh
    names.
    """
    loops: list[Loop] = []
    body: Node = top
    for v in points:
        assert isinstance(body, Loop) and body.variable == v, (v, body)
        loops.append(body)
        body = body.body
    return _push(tuple(loops), body, names)


def _push(points: tuple[Loop, ...], node: Node, names: Names) -> Node:
    around = isinstance(node, Loop) and node.kind in ("serial", "parallel")
    if around or isinstance(node, Block | Branch | Allocate):
        return map_inner(node, lambda x: _push(points, x, names))
    return _wrap(points, node, names)


def _wrap(points: tuple[Loop, ...], node: Node, names: Names) -> Node:
    new = {p.variable: var(names.fresh(p.variable)) for p in points}
    out = substitute_node(node, new)
    for p in reversed(points):
        mask = None if p.mask is None else substitute(p.mask, new)
        (name,) = new[p.variable].variables()
        out = replace(p, variable=name, mask=mask, body=out)
    return out


def can_sink(node: Node, variables: frozenset[str]) -> bool:
    """No bound and no branch inside `node` uses one of `variables`."""
    match node:
        case Block(body):
            return all(can_sink(x, variables) for x in body)
        case Branch(c, a, b):
            inner = can_sink(a, variables) and (b is None or can_sink(b, variables))
            return inner and not condition_variables(c) & variables
        case Loop():
            used = node.lower.variables() | node.upper.variables()
            return not used & variables and can_sink(node.body, variables)
        case Allocate(_, body):
            return can_sink(body, variables)
        case _:
            return True
