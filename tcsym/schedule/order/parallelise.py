# SPDX-License-Identifier: Apache-2.0
"""Outermost loops proved parallel -> loops on threads, with the estimated time of an iteration."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import ONE
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node
from tcsym.ir.traverse import map_inner, map_node, walk
from tcsym.schedule.analysis.cost import Costs
from tcsym.schedule.analysis.loops import scatters
from tcsym.target.machine import Machine


def independent_as_parallel(node: Node, of_lengths: bool = True) -> Node:
    """`node` in which loops that were taken iteration by iteration count as parallel again;
    of_lengths: also those around ranges that tensors hold."""

    def again(x: Node) -> Node:
        if isinstance(x, Loop) and x.independent and (of_lengths or not _reads_lengths(x)):
            return replace(x, order="parallel", independent=False)
        return x

    return map_node(node, again)


def _reads_lengths(loop: Loop) -> bool:
    inside = (x for x, _ in walk(loop.body) if isinstance(x, Loop))
    return any(x.value is not None or x.at is not None for x in inside)


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
    if isinstance(node, Loop):
        if is_free(node) and extent(node) != ONE:
            noted = node.work != ONE
            work = node.work if noted else costs.of_iteration((node,), known)
            return replace(node, kind="parallel", work=work)
        if scatters(node):
            return node
        known |= {node.variable}
    return map_inner(node, lambda x: _outermost(x, costs, known))
