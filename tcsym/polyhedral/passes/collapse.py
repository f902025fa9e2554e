"""The outermost parallel loops of a nest -> one loop over all their iterations."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import mul

from tcsym.index import ZERO, Index, floordiv, index, maximum, minimum, mod, var
from tcsym.loop_ir import Allocate, Block, Branch, Kernel, Loop, Node, block
from tcsym.polyhedral.passes.common.bounds import extent
from tcsym.polyhedral.passes.common.cost import PER_CYCLE, Costs
from tcsym.polyhedral.passes.common.loops import chain_of, loops_in
from tcsym.polyhedral.passes.common.names import Names
from tcsym.polyhedral.passes.parallelise import is_free
from tcsym.records import dataclass
from tcsym.target import Target

MOST_LOOPS = 3
PARTS = 256
PART_WORK = 256 * PER_CYCLE  # beside which a part's divisions are nothing


def collapse_outermost(kernel: Kernel, target: Target, names: Names) -> Kernel:
    """Perfectly nested parallel loops, where more loops follow inside, become loops over parts.

    A part is a run of their iterations in order, long enough to pay for its divisions. The new
    outermost loop is over at most about 256 parts; in a part, the innermost of the loops runs over
    a range of its own, and only the loops around it are found by division. What was private to all
    of them is private to the new loops.
    """
    found: dict[str, frozenset[str]] = {}
    make = _Collapse(Costs.of(kernel, target), names, found)
    body = make.outermost(kernel.body, frozenset((*kernel.sizes, *kernel.launched)))
    kernel = replace(kernel, body=body)
    for new, loops in found.items():
        for b in kernel.buffers:
            if loops <= b.private:
                kernel = kernel.with_buffer(replace(b, private=b.private | {new}))
    return kernel


@dataclass(frozen=True, slots=True)
class _Collapse:
    """One run of the pass. found: new loops, with the ones that each stands for."""

    costs: Costs
    names: Names
    found: dict[str, frozenset[str]]

    def outermost(self, node: Node, known: frozenset[str]) -> Node:
        match node:
            case Loop() if is_free(node):
                loops = _collapsible(node)
                return node if len(loops) < 2 else self._collapsed(loops, known)
            case Loop():
                return replace(node, body=self.outermost(node.body, known | {node.variable}))
            case Block(body):
                return block(*(self.outermost(x, known) for x in body)) if body else node
            case Branch(c, a, b):
                orelse = b and self.outermost(b, known)
                return Branch(c, self.outermost(a, known), orelse)
            case Allocate(name, body):
                return Allocate(name, self.outermost(body, known))
            case _:
                return node

    def _collapsed(self, loops: tuple[Loop, ...], known: frozenset[str]) -> Node:
        names = self.names
        part, row = names.fresh(loops[0].variable), names.fresh(loops[0].variable)
        self.found[part] = self.found[row] = frozenset(x.variable for x in loops)
        *outer, inner = loops
        n = extent(inner)
        total = reduce(mul, (extent(x) for x in loops))
        each = self.costs.of_iteration(loops, known)
        size = maximum(1, floordiv(total, PARTS), floordiv(index(PART_WORK), maximum(1, each)))
        first = var(part) * size
        end = minimum(total, first + size)
        before, after = first - var(row) * n, end - var(row) * n
        lower, upper = inner.lower + maximum(0, before), inner.lower + minimum(n, after)
        node: Node = _at_row(outer, var(row), replace(inner, lower=lower, upper=upper))
        by = maximum(1, n)  # known not to be 0, so that a division is one instruction
        bounds = floordiv(first, by), floordiv(end - 1, by) + 1
        rows = Loop(row, *bounds, node, "serial", "parallel")
        work = size * each
        count = floordiv(total + size - 1, size)
        return Loop(part, ZERO, count, rows, "serial", "parallel", work=work)


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


def _at_row(outer: list[Loop], rest: Index, node: Node) -> Node:
    """`node` inside the loops `outer`, each with the one iteration that makes up the row `rest`."""
    for loop in reversed(outer):
        n = maximum(1, extent(loop))
        at = loop.lower + (rest if loop is outer[0] else mod(rest, n))
        rest = floordiv(rest, n)
        node = replace(loop, lower=at, upper=at + 1, body=node)
    return node
