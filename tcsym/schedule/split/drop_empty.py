# SPDX-License-Identifier: Apache-2.0
"""Loops and branches that never run, whatever the sizes -> nothing (substituted sizes leave such
main loops, and statements of sums without terms). Sums of one term -> that. Whole sums -> those of
a single point, which are nests like others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from tcsym.index.expr import FALSE, ONE, TRUE, ZERO
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Block, Branch, Kernel, Loop, Node
from tcsym.ir.traverse import map_node, substitute_node
from tcsym.schedule.analysis.loops import find_loop, loops_in, replace_loop
from tcsym.schedule.analysis.names import Names, replace_private

EMPTY = Block(())


def drop_empty(kernel: Kernel) -> Kernel:
    """Without loops whose extent is a constant <= 0, without branches that are known never to be
    taken, and what has nothing else inside."""
    return replace(kernel, body=map_node(kernel.body, _kept))


def _kept(n: Node) -> Node | None:
    match n:
        case Loop():
            points = extent(n).as_int()
            never = points is not None and points <= 0
            return None if never or n.body == EMPTY else n
        case Branch(condition, then, orelse) if condition in (TRUE, FALSE):
            return then if condition == TRUE else orelse
        case Branch(_, then, orelse):
            return None if then == EMPTY and orelse in (None, EMPTY) else n
        case _:
            return n


def drop_single(kernel: Kernel) -> Kernel:
    """Reduction loops of one iteration replaced by it."""
    return _without_single(kernel, lambda x: x.order == "reduction")


def with_points(kernel: Kernel, tops: Iterable[str], names: Names) -> tuple[Kernel, list[str]]:
    """Those of the loops that are sums by themselves inside of a parallel loop of one point; and
    these loops."""
    body, made = kernel.body, list[str]()
    for v in tops:
        top = find_loop(body, v)
        if top.order == "reduction":
            made.append(names.fresh(f"all_{v}"))
            point = Loop(made[-1], ZERO, ONE, top, "serial", "parallel")
            body = replace_loop(body, v, lambda _, point=point: point)  # type: ignore[misc]
    return replace(kernel, body=body), made


def without_points(kernel: Kernel, points: Iterable[str]) -> Kernel:
    """What such loops were made into, without those of one iteration."""
    stems = tuple(p.rpartition(".")[0] for p in points)
    return _without_single(kernel, lambda x: x.variable.partition(".")[0] in stems)


def _without_single(kernel: Kernel, may: Callable[[Loop], bool]) -> Kernel:
    def is_single(x: Node) -> bool:
        return isinstance(x, Loop) and x.kind == "serial" and may(x) and extent(x) == ONE

    def change(x: Node) -> Node:
        if isinstance(x, Loop) and is_single(x):
            return substitute_node(x.body, {x.variable: x.lower})
        return x

    gone = {x.variable for x in loops_in(kernel.body) if is_single(x)}
    if not gone:
        return kernel
    kernel = replace(kernel, body=map_node(kernel.body, change))
    return replace_private(kernel, dict.fromkeys(gone, ()))
