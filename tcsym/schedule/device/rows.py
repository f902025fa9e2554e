"""A nest of rows, a plan -> a block for each row, whose threads share the loops inside.

What one thread writes and others read has a barrier between; sums are combined by shuffles within
warps, then through shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul

from tcsym.frontend.program import Binary, Read
from tcsym.index.expr import ZERO, Index, ceildiv, eq, floordiv, index, mod, var
from tcsym.ir.bounds import extent
from tcsym.ir.device import WARP, Barrier
from tcsym.ir.loops import Branch, Buffer, Loop, Node, Shuffle, Store, Update, block
from tcsym.ir.traverse import map_node, substitute_node, walk
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import children
from tcsym.schedule.device.grid import Applied, Grid, at_iteration
from tcsym.schedule.device.plan import BlockRows
from tcsym.schedule.device.propose import is_own


def apply_rows(plan: BlockRows, grid: Grid) -> Applied:
    """The nest by the plan, which was proposed for it."""
    return _Rows(plan, grid).applied()


@dataclass(frozen=True, slots=True)
class _Rows:
    plan: BlockRows
    grid: Grid

    def applied(self) -> Applied:
        grid, chain = self.grid, self.grid.nest.chain
        outer = grid.names.fresh("block")
        self.keep_between_phases()
        phases = [n for x in children(grid.nest.body) for n in self.phase(x)]
        body = at_iteration(chain, var(outer), block(*phases))
        return grid.applied(outer, reduce(mul, map(extent, chain)), body)

    def keep_between_phases(self) -> None:
        """Arrays that belong to a row are all threads': one may read what another wrote."""
        nest = self.grid.nest
        kernel, chain = nest.kernel, {*nest.variables}
        inside = {x.variable for x in children(nest.body) if isinstance(x, Loop)}
        for b in kernel.buffers:
            if chain <= b.private and not is_own(nest, b.name) and not inside & b.private:
                kernel = kernel.with_buffer(replace(b, private=b.private - chain))
        self.grid.nest = replace(nest, kernel=kernel)

    def threads(self, mask: Index | None = None) -> Loop:
        return self.grid.threads(self.plan.threads, mask)

    def phase(self, x: Node) -> list[Node]:
        """What the threads do of one part of the row, and a barrier."""
        if isinstance(x, Store):
            alone = None if is_own(self.grid.nest, x.buffer) else index(1)
            threads = replace(self.threads(alone), body=x)
            return [threads] if alone is None else [threads, Barrier()]
        assert isinstance(x, Loop)
        threads, n = self.threads(), self.plan.threads
        sums = [u for u, _ in walk(x.body) if isinstance(u, Update) and self.is_sum(u, x)]
        parts = {u.buffer: self.register(u.buffer, "part") for u in sums}
        step = self.grid.names.fresh(x.variable)
        count = ceildiv(extent(x) - var(threads.variable), n)
        at = x.lower + var(threads.variable) + var(step) * n
        body = substitute_node(x.body, {x.variable: at})
        body = map_node(body, lambda u: _into(u, parts))
        steps = Loop(step, ZERO, count, body, "serial", x.order)
        first = [Store(p.name, (), identity(u.op, p.dtype)) for u, p in _of(sums, parts)]
        self.grid.share(x.variable, step)
        out: list[Node] = [replace(threads, body=block(*first, steps))]
        out += [y for u, p in _of(sums, parts) for y in self.combined(u, p)]
        return out if sums else [*out, Barrier()]

    def is_sum(self, u: Update, x: Loop) -> bool:
        nest = self.grid.nest
        if not is_own(nest, u.buffer):
            return False
        moves = any(x.variable in s.variables() for s in u.subscripts)
        return not moves and x.variable not in nest.kernel.buffer(u.buffer).private

    def register(self, buffer: str, what: str) -> Buffer:
        """A number that each thread has, of the type of the buffer."""
        return self.grid.register(f"{buffer}_{what}", self.grid.nest.kernel.buffer(buffer).dtype)

    def combined(self, u: Update, part: Buffer) -> list[Node]:
        """The parts of all threads, added to the sum of each."""
        dtype, warps = part.dtype, self.plan.threads // WARP
        kept = self.grid.shared(f"{u.buffer}_warps", dtype, warps)
        got = self.register(u.buffer, "other")
        mine, other = Read(part.name, (), dtype), Read(got.name, (), dtype)
        steps: list[Node] = []
        lanes = WARP // 2
        while lanes:
            steps.append(Store(got.name, (), Shuffle("across", lanes, mine, dtype)))
            steps.append(Store(part.name, (), Binary(u.op, mine, other, dtype)))
            lanes //= 2
        warp, every = self.threads(), self.threads()
        at = var(warp.variable)
        note = Store(kept.name, (floordiv(at, WARP),), mine)
        steps.append(Branch(eq(mod(at, WARP), 0), note))
        w = self.grid.names.fresh("warp")
        add = Update(u.buffer, u.subscripts, u.op, Read(kept.name, (var(w),), dtype), u.name)
        total = Loop(w, ZERO, index(warps), add, "unrolled", "reduction")
        return [replace(warp, body=block(*steps)), Barrier(), replace(every, body=total)]


def _into(u: Node, parts: Mapping[str, Buffer]) -> Node:
    if isinstance(u, Update) and u.buffer in parts:
        return replace(u, buffer=parts[u.buffer].name, subscripts=())
    return u


def _of(sums: Sequence[Update], parts: Mapping[str, Buffer]) -> list[tuple[Update, Buffer]]:
    return [(u, parts[u.buffer]) for u in {u.buffer: u for u in sums}.values()]
