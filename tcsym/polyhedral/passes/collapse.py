"""The outermost parallel loops of a nest -> one loop over all their iterations."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import mul

from tcsym.index import ZERO, Index, floordiv, index, maximum, minimum, mod, var
from tcsym.loop_ir import Allocate, Block, Branch, Kernel, Loop, Node, block
from tcsym.polyhedral.passes.bounds import extent
from tcsym.polyhedral.passes.loops import chain_of, loops_in
from tcsym.polyhedral.passes.names import Names
from tcsym.polyhedral.passes.parallelise import is_free, loop_work

MOST_LOOPS = 3
PARTS = 256
PART_WORK = 4096  # operations, beside which a part's divisions are nothing


def collapse_outermost(kernel: Kernel, names: Names) -> Kernel:
    """Perfectly nested parallel loops, where more loops follow inside, become loops over parts.

    A part is a run of their iterations in order, long enough to pay for its divisions. The new
    outermost loop is over at most about 256 parts; in a part, the innermost of the loops runs over
    a range of its own, and only the loops around it are found by division. What was private to all
    of them is private to the new loops.
    """
    found: dict[str, frozenset[str]] = {}
    body = _outermost(kernel.body, names, found, frozenset(kernel.sizes))
    kernel = replace(kernel, body=body)
    for new, loops in found.items():
        for b in kernel.buffers:
            if loops <= b.private:
                kernel = kernel.with_buffer(replace(b, private=b.private | {new}))
    return kernel


def _outermost(
    node: Node, names: Names, found: dict[str, frozenset[str]], known: frozenset[str]
) -> Node:
    match node:
        case Loop() if is_free(node):
            loops = _collapsible(node)
            return node if len(loops) < 2 else _collapsed(loops, names, found, known)
        case Loop():
            inside = _outermost(node.body, names, found, known | {node.variable})
            return replace(node, body=inside)
        case Block(body):
            return block(*(_outermost(x, names, found, known) for x in body)) if body else node
        case Branch(c, a, b):
            orelse = b and _outermost(b, names, found, known)
            return Branch(c, _outermost(a, names, found, known), orelse)
        case Allocate(name, body):
            return Allocate(name, _outermost(body, names, found, known))
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


def _collapsed(
    loops: tuple[Loop, ...],
    names: Names,
    found: dict[str, frozenset[str]],
    known: frozenset[str],
) -> Node:
    part, row = names.fresh(loops[0].variable), names.fresh(loops[0].variable)
    found[part] = found[row] = frozenset(x.variable for x in loops)
    *outer, inner = loops
    n = extent(inner)
    total = reduce(mul, (extent(x) for x in loops))
    each = loop_work(loops, known)
    size = maximum(1, floordiv(total, PARTS), floordiv(index(PART_WORK), maximum(1, each)))
    first = var(part) * size
    end = minimum(total, first + size)
    before, after = first - var(row) * n, end - var(row) * n
    lower, upper = inner.lower + maximum(0, before), inner.lower + minimum(n, after)
    node: Node = _at_row(outer, var(row), replace(inner, lower=lower, upper=upper))
    rows = Loop(row, floordiv(first, n), floordiv(end - 1, n) + 1, node, "serial", "parallel")
    work = size * each
    count = floordiv(total + size - 1, size)
    return Loop(part, ZERO, count, rows, "serial", "parallel", work=work)


def _at_row(outer: list[Loop], rest: Index, node: Node) -> Node:
    """`node` inside the loops `outer`, each with the one iteration that makes up the row `rest`."""
    for loop in reversed(outer):
        n = extent(loop)
        at = loop.lower + (rest if loop is outer[0] else mod(rest, n))
        rest = floordiv(rest, n)
        node = replace(loop, lower=at, upper=at + 1, body=node)
    return node
