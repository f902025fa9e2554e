"""Outermost loops proved parallel -> loops on threads, with the estimated time of an iteration."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import ONE
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Allocate, Block, Branch, Kernel, Loop, Node, block
from tcsym.ir.traverse import map_node
from tcsym.schedule.analysis.cost import Costs
from tcsym.schedule.analysis.loops import scatters
from tcsym.target.machine import Machine


def independent_as_parallel(node: Node) -> Node:
    """`node` in which loops that were taken iteration by iteration count as parallel again."""

    def again(x: Node) -> Node:
        if isinstance(x, Loop) and x.independent:
            return replace(x, order="parallel", independent=False)
        return x

    return map_node(node, again)


def parallelise(kernel: Kernel, machine: Machine) -> Kernel:
    """Every outermost serial loop with order `parallel` gets kind `parallel`, and a work."""
    costs = Costs.of(kernel, machine)
    return replace(
        kernel, body=_outermost(kernel.body, costs, frozenset((*kernel.sizes, *kernel.launched)))
    )


def is_free(loop: Loop) -> bool:
    """May become a loop on threads."""
    return loop.kind == "serial" and loop.order == "parallel"


def _outermost(node: Node, costs: Costs, known: frozenset[str]) -> Node:
    match node:
        case Loop():
            if is_free(node) and extent(node) != ONE:
                noted = node.work != ONE
                work = node.work if noted else costs.of_iteration((node,), known)
                return replace(node, kind="parallel", work=work)
            if scatters(node):
                return node
            return replace(node, body=_outermost(node.body, costs, known | {node.variable}))
        case Block(body):
            return block(*(_outermost(x, costs, known) for x in body)) if body else node
        case Branch(c, a, b):
            then = _outermost(a, costs, known)
            return Branch(c, then, b and _outermost(b, costs, known))
        case Allocate(name, body):
            return Allocate(name, _outermost(body, costs, known))
        case _:
            return node
