# SPDX-License-Identifier: Apache-2.0
"""The outermost parallel loops of a nest -> one loop over all their iterations."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import ZERO, Index, ceildiv, floordiv, index, maximum, minimum, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent, iteration
from tcsym.ir.loops import THREADS, Allocate, Block, Kernel, Loop, Node, Verify, block
from tcsym.ir.traverse import allocated_in, map_inner, walk
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.cost import PER_CYCLE, Costs
from tcsym.schedule.analysis.loops import chain_of, in_loops, loops_in, scatters
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.order.parallelise import is_free
from tcsym.target.machine import Machine

FEW_SHARED = 8  # iterations, known in number, for which no thread makes copies of its own
PARTS = 256  # at most, whatever threads there are
PARTS_EACH = 32  # of a thread: the last one ends this much of its work after the first at most
PART_WORK = 2048 * PER_CYCLE  # beside which a part's divisions and addresses are nothing


def coalesce_outermost(
    kernel: Kernel, machine: Machine, names: Names, min_work: int, most_loops: int
) -> Kernel:
    """Nested parallel loops, where more loops follow inside, become loops over parts.

    A part is a run of their iterations in order, long enough to pay for its divisions. The new
    outermost loop is over at most about 256 parts, or 32 for each thread; in a part, the innermost
    of the loops runs over a range of its own, and only the loops around it are found by division.
    What was private to all of them is private to the new loops. The loops nest perfectly, but that
    copies which inner ones use may stand in front of these: there is one part for each thread then,
    and the parts that share an iteration of the loops around make their own copies.
    """
    found: dict[str, frozenset[str]] = {}
    make = _Collapse(Costs.of(kernel, machine), names, min_work, most_loops, found, kernel)
    body = make.outermost(kernel.body, frozenset((*kernel.sizes, *kernel.launched)))
    kernel = replace(kernel, body=body)
    for new, loops in found.items():
        for b in kernel.buffers:
            if loops <= b.private:
                kernel = kernel.with_buffer(replace(b, private=b.private | {new}))
    return kernel


class _Loops(Struct, frozen=True):
    """Loops that become one, and what stands inside the first `outer` of them in front of others:
    these run for each of the threads' parts, whatever loops follow. own: buffers placed there."""

    loops: tuple[Loop, ...]
    before: tuple[Node, ...] = ()
    outer: int = 0
    own: tuple[str, ...] = ()

    def shared(self) -> frozenset[str]:
        """What is private to these loops is private to the new ones."""
        loops = self.loops[: self.outer] if self.before else self.loops
        return frozenset(x.variable for x in loops)


class _Collapse(Struct, frozen=True):
    """One run of the pass. found: new loops, with the ones that each stands for."""

    costs: Costs
    names: Names
    min_work: int
    most_loops: int
    found: dict[str, frozenset[str]]
    kernel: Kernel

    def outermost(self, node: Node, known: frozenset[str]) -> Node:
        if isinstance(node, Loop):
            if is_free(node):
                nest = self._collapsible(node)
                return node if len(nest.loops) < 2 else self._collapsed(nest, known)
            if scatters(node):
                return node
            known |= {node.variable}
        return map_inner(node, lambda x: self.outermost(x, known))

    def _collapsed(self, nest: _Loops, known: frozenset[str]) -> Node:
        names, loops = self.names, nest.loops
        part, row = names.fresh(loops[0].variable), names.fresh(loops[0].variable)
        self.found[part] = self.found[row] = nest.shared()
        total = product_of(extent(x) for x in loops)
        each = self.costs.of_iteration(loops, known)
        size, work = self._part(nest, total, each, known)
        first = var(part) * size
        rows = self._run(nest, first, minimum(total, first + size), row)
        count = ceildiv(total, size)
        return Loop(part, ZERO, count, rows, "serial", "parallel", work=work)

    def _run(self, nest: _Loops, first: Index, end: Index, row: str) -> Node:
        """Iterations from `first` to `end`: rows of the innermost loop, or of all loops behind what
        stands in front of them, which runs once in each row."""
        outer = nest.outer if nest.before else len(nest.loops) - 1
        around, inner = nest.loops[:outer], nest.loops[outer:]
        n = product_of(extent(x) for x in inner)
        start, stop = maximum(0, first - var(row) * n), minimum(n, end - var(row) * n)
        if len(inner) > 1:
            inside = self._run(_Loops(inner), start, stop, self.names.fresh(inner[0].variable))
        else:
            (x,) = inner
            inside = replace(x, lower=x.lower + start, upper=x.lower + stop)
        inside = block(*nest.before, inside)
        node = _at_row(around, var(row), Allocate(nest.own, inside) if nest.own else inside)
        upper = floordiv(end - 1, n) + 1
        return Loop(row, floordiv(first, n), upper, node, "serial", "parallel")

    def _part(
        self, nest: _Loops, total: Index, each: Index, known: frozenset[str]
    ) -> tuple[Index, Index]:
        """Iterations in a part, and its work."""
        if not nest.before:
            small = floordiv(index(PART_WORK), maximum(1, each))
            parts = minimum(PARTS, var(THREADS) * PARTS_EACH)
            size = maximum(1, floordiv(total, parts), small)
            return size, size * each
        around = nest.loops[:-1]
        first = (*around[:-1], replace(around[-1], body=block(*nest.before)))
        copies = self.costs.of_iteration(first, known)
        share = floordiv(total + var(THREADS) - 1, var(THREADS))
        size = maximum(1, share, floordiv(index(self.min_work), maximum(1, each)))
        return size, size * each + copies

    def _collapsible(self, top: Loop) -> _Loops:
        """Loops from `top` with bounds of their own, each with serial loops inside."""
        out: list[Loop] = []
        for loop in chain_of(top)[: self.most_loops]:
            if not _joins(loop, out):
                return _Loops(tuple(out))
            out.append(loop)
        body = out[-1].body if out else None
        own = body.buffers if isinstance(body, Allocate) else ()
        body = body.body if isinstance(body, Allocate) else body
        if not isinstance(body, Block):
            return _Loops(tuple(out))
        *before, last = body.body
        around = frozenset(x.variable for x in out)
        if len(out) == self.most_loops or not isinstance(last, Loop) or not _joins(last, out):
            return _Loops(tuple(out))
        if (extent(last).as_int() or FEW_SHARED) < FEW_SHARED:
            return _Loops(tuple(out))
        if not all(self._may_repeat(x, last, around, frozenset(own)) for x in before):
            return _Loops(tuple(out))
        outer = len(out)
        for loop in chain_of(last)[: self.most_loops - outer]:
            if not _joins(loop, out):
                break
            out.append(loop)
        return _Loops(tuple(out), tuple(before), outer, own)

    def _may_repeat(
        self, node: Node, last: Loop, loops: frozenset[str], own: frozenset[str]
    ) -> bool:
        """Nothing is left of the node but what is private to the loops, nor does `last` change what
        it reads of the rest."""
        if any(isinstance(x, Verify) for x, _ in walk(node)):
            return False
        own |= allocated_in(node)
        shared = {b.name for b in self.kernel.buffers if not loops <= b.private} - own
        changed = {a.buffer for a in accesses(last) if a.written}
        return all(
            a.buffer not in (shared if a.written else shared & changed) for a in accesses(node)
        )


def _joins(loop: Loop, around: list[Loop]) -> bool:
    used = loop.end_variables
    heavy = any(x.kind == "serial" for x in loops_in(loop.body))
    return is_free(loop) and not used & {x.variable for x in around} and heavy


def _at_row(outer: Sequence[Loop], rest: Index, node: Node) -> Node:
    """`node` inside the loops `outer`, each with the one iteration that makes up the row `rest`."""
    at = iteration(outer, rest)
    rows = [replace(x, lower=at[x.variable], upper=at[x.variable] + 1) for x in outer]
    return in_loops(rows, node)
