"""A nest -> what all plans make of it: loops over blocks and threads, and what is private to them.

Positions of loops are substituted: `m` becomes `64*tile + 4*(thread/16) + i`. What of a temporary's
subscripts moves with blocks and threads is dropped later (`storage.contract_storage`), and so sums
become registers.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.index.expr import ZERO, Index, ceildiv, floordiv, index, mod, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Space, block
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.schedule.device.nest import Nest
from tcsym.schedule.version.versioning import duplicate
from tcsym.types import DType


class Applied(Struct, frozen=True):
    """`node`: the grid in place of the nest."""

    kernel: Kernel
    node: Node


class Tiled(Struct, frozen=True):
    """Loops of a nest in blocks: the number of a block's tile along each, and where that begins."""

    grid: Grid
    outer: str
    chain: tuple[Loop, ...]
    start: dict[str, Index]
    numbers: tuple[str, ...]

    def applied(self, body: Node) -> Applied:
        """`body` for each block."""
        inside = at_iteration(self.chain, var(self.outer), body)
        blocks = product_of(map(extent, self.chain))
        return self.grid.applied(self.outer, blocks, inside, *self.numbers)


class Grid(Struct):
    """A grid in the making.

    own: thread loops so far. added: registers of each thread. private: temporaries of which each
    has a few elements.
    """

    nest: Nest
    names: Names
    own: list[str] = field(default_factory=list)
    added: list[Buffer] = field(default_factory=list)
    private: list[str] = field(default_factory=list)

    def applied(self, outer: str, blocks: Index, body: Node, *own: str) -> Applied:
        """What is private to all rows of the nest is private to threads, `own` and the block.

        What is private to some of them keeps an element for each: their iterations run at once.
        """
        kernel, loops = self.nest.kernel, {x.variable for x in self.nest.rows}
        own = (outer, *self.own, *own)
        for b in kernel.buffers:
            if loops <= b.private or b.name in self.private:
                kernel = kernel.with_buffer(replace(b, private=b.private | {*own}))
            elif b.space == "shared" and not b.private:
                kernel = kernel.with_buffer(replace(b, private=frozenset((outer,))))
            elif b.private & loops:
                kernel = kernel.with_buffer(replace(b, private=b.private - loops))
        for b in self.added:
            kernel = kernel.with_buffer(replace(b, private=b.private | {*own}))
        return Applied(kernel, Loop(outer, ZERO, blocks, body, "block", "parallel"))

    def tiled(self, sizes: Mapping[str, int]) -> Tiled:
        """Blocks of as many iterations of these loops, of one of each other loop."""
        tiles = {v: self.names.fresh(v) for v in sizes}
        chain, start = list[Loop](), dict[str, Index]()
        for x in self.nest.chain:
            if (v := x.variable) in sizes:
                start[v] = x.lower + var(tiles[v]) * sizes[v]
                x = Loop(tiles[v], ZERO, ceildiv(extent(x), sizes[v]), block(), order="parallel")
            chain.append(x)
        outer = self.names.fresh("block")
        return Tiled(self, outer, tuple(chain), start, tuple(tiles.values()))

    def threads(self, n: int, mask: Index | None = None) -> Loop:
        """A loop over threads, without a body yet."""
        thread = self.names.fresh("thread")
        self.own.append(thread)
        return Loop(thread, ZERO, index(n), block(), "thread", "parallel", mask=mask)

    def share(self, loop: str, step: str) -> None:
        """What is private to iterations of a loop is private to a thread's steps of it."""
        kernel = replace_private(self.nest.kernel, {loop: (loop, step)})
        self.nest = replace(self.nest, kernel=kernel)

    def copied(self, node: Node) -> Node:
        """`node` with loops and temporaries of its own."""
        kernel, copy, _ = duplicate(self.nest.kernel, node, self.names)
        self.nest = replace(self.nest, kernel=kernel)
        return copy

    def shared(self, name: str, dtype: DType, *shape: int) -> Buffer:
        """A new buffer of a block's threads."""
        b = Buffer(self.names.fresh(name), dtype, tuple(map(index, shape)), "shared")
        self.nest = replace(self.nest, kernel=self.nest.kernel.with_buffer(b))
        return b

    def register(self, name: str, dtype: DType, *shape: int) -> Buffer:
        """A new buffer of each thread."""
        space: Space = "register" if shape else "arena"
        b = Buffer(self.names.fresh(name), dtype, tuple(map(index, shape)), space)
        self.added.append(b)
        return b


def at_iteration(chain: tuple[Loop, ...], flat: Index, body: Node) -> Node:
    """`body` in the one iteration of the loops that has the number `flat`."""
    for loop in reversed(chain):
        n = extent(loop)
        at = loop.lower + (flat if loop is chain[0] else mod(flat, n))
        flat = floordiv(flat, n)
        below = loop.upper if loop.lower == ZERO else None
        body = Loop(loop.variable, at, at + 1, body, "serial", loop.order, below=below)
    return body
