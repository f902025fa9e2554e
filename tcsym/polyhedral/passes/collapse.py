"""The outermost parallel loops of a nest -> one loop over all their iterations."""

from __future__ import annotations

from dataclasses import replace

from tcsym.index import ZERO, Index, floordiv, mod, var
from tcsym.loop_ir import Allocate, Block, Branch, Kernel, Loop, Node, block
from tcsym.polyhedral.passes.bounds import extent
from tcsym.polyhedral.passes.loops import chain_of, loops_in
from tcsym.polyhedral.passes.names import Names
from tcsym.polyhedral.passes.parallelise import is_free

MOST_LOOPS = 3


def collapse_outermost(kernel: Kernel, names: Names) -> Kernel:
    """Perfectly nested parallel loops, where more loops follow inside, share one counter.

    The counter is a new outermost loop; the old loops remain below it with one iteration each, so
    that nothing inside changes. What was private to all of them is private to the counter.
    """
    found: dict[str, frozenset[str]] = {}
    body = _outermost(kernel.body, names, found)
    kernel = replace(kernel, body=body)
    for counter, loops in found.items():
        for b in kernel.buffers:
            if loops <= b.private:
                kernel = kernel.with_buffer(replace(b, private=b.private | {counter}))
    return kernel


def _outermost(node: Node, names: Names, found: dict[str, frozenset[str]]) -> Node:
    match node:
        case Loop() if is_free(node):
            loops = _collapsible(node)
            return node if len(loops) < 2 else _collapsed(loops, names, found)
        case Loop():
            return replace(node, body=_outermost(node.body, names, found))
        case Block(body):
            return block(*(_outermost(x, names, found) for x in body)) if body else node
        case Branch(c, a, b):
            return Branch(c, _outermost(a, names, found), b and _outermost(b, names, found))
        case Allocate(name, body):
            return Allocate(name, _outermost(body, names, found))
        case _:
            return node


def _collapsible(top: Loop) -> tuple[Loop, ...]:
    """Loops from `top` with bounds of their own, each with serial loops inside."""
    out: list[Loop] = []
    for loop in chain_of(top)[:MOST_LOOPS]:
        used = loop.lower.variables() | loop.upper.variables()
        heavy = any(x.kind == "serial" for x in loops_in(loop.body))
        if not is_free(loop) or used & {x.variable for x in out} or not heavy:
            break
        out.append(loop)
    return tuple(out)


def _collapsed(loops: tuple[Loop, ...], names: Names, found: dict[str, frozenset[str]]) -> Node:
    counter = names.fresh(loops[0].variable)
    found[counter] = frozenset(x.variable for x in loops)
    node, rest = loops[-1].body, var(counter)
    total = Index((), 1)
    for loop in reversed(loops):
        n = extent(loop)
        last = loop is loops[0]
        at = loop.lower + (rest if last else mod(rest, n))
        rest, total = floordiv(rest, n), total * n
        node = replace(loop, lower=at, upper=at + 1, body=node)
    return Loop(counter, ZERO, total, node, "serial", "parallel")
