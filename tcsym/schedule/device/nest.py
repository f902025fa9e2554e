# SPDX-License-Identifier: Apache-2.0
"""A parallel loop -> the nest that becomes a grid, and what all plans make of it: loops over blocks
and threads, and what is private to them.

Positions of loops are substituted: `m` becomes `64*tile + 4*(thread/16) + i`. What of a temporary's
subscripts moves with blocks and threads is dropped later (`storage.contract_storage`), and so sums
become registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.index.expr import ZERO, Index, ceildiv, index, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent, iteration
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Space, block
from tcsym.ir.traverse import map_node
from tcsym.schedule.analysis.access import accesses, subscript_variables
from tcsym.schedule.analysis.loops import loops_in
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.schedule.order.parallelise import independent_as_parallel
from tcsym.schedule.version.versioning import duplicate
from tcsym.types import DType


class Nest(Struct, frozen=True):
    """A parallel loop of the host, and the perfect chain of rectangular loops from it."""

    kernel: Kernel
    chain: tuple[Loop, ...]

    @property
    def top(self) -> Loop:
        return self.chain[0]

    @property
    def body(self) -> Node:
        return self.chain[-1].body

    def doing(self, body: Node, kernel: Kernel | None = None) -> Nest:
        """Another body in the loops, perhaps with new buffers."""
        *chain, last = self.chain
        return Nest(kernel or self.kernel, (*chain, replace(last, body=body)))

    @property
    def steps(self) -> Loop | None:
        """The loop in order, if one is the last of the chain (`through_steps`)."""
        return None if self.chain[-1].order == "parallel" else self.chain[-1]

    @property
    def rows(self) -> tuple[Loop, ...]:
        """The loops of the chain that are parallel."""
        return self.chain if self.steps is None else self.chain[:-1]

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(x.variable for x in self.chain)

    @property
    def known(self) -> frozenset[str]:
        """What the host knows before it launches a grid."""
        return frozenset((*self.kernel.sizes, *self.kernel.launched))

    @property
    def points(self) -> Index:
        """How many iterations there are."""
        return product_of(map(extent, self.chain))

    def blocks(self, sizes: Mapping[str, int]) -> Index:
        """Of as many iterations of these loops, of one of each other loop."""
        return product_of(ceildiv(extent(x), sizes.get(x.variable, 1)) for x in self.chain)

    def loop(self, variable: str) -> Loop:
        return next(x for x in self.chain if x.variable == variable)


def new_name(kernel: Kernel, name: str) -> str:
    """For a buffer, when there are no names for loops to be made."""
    while any(b.name == name for b in kernel.buffers):
        name += "_"
    return name


def is_parallel(n: Node | None) -> TypeGuard[Loop]:
    return isinstance(n, Loop) and n.order == "parallel"


def nest_of(kernel: Kernel, top: Loop) -> Nest:
    """The loops from `top` whose bounds do not move with each other."""
    chain, node = [top], top.body
    while is_parallel(node):
        around = {x.variable for x in chain}
        if node.end_variables & around:
            break
        chain.append(node)
        node = node.body
    return Nest(kernel, tuple(chain))


def through_steps(nest: Nest) -> Nest:
    """A loop in order that is all that rows do as the last of the chain: the body is of a step."""
    x = nest.body
    if nest.steps is not None or not isinstance(x, Loop) or not x.is_steps or x.at is not None:
        return nest
    is_plain = x.end_variables <= {*nest.kernel.sizes}
    return Nest(nest.kernel, (*nest.chain, x)) if is_plain else nest


def parallel_outside(node: Node) -> Node:
    """`node` with parallel loops around what is read of ranges that differ from row to row.

        for b: lo = off[b], hi = off[b + 1]: for d: sum over j in lo:hi
    ->  for b: for d: lo = off[b], hi = off[b + 1]: sum over j in lo:hi

    Each thread then reads the ends of its row's range. Checks of a range are made under the
    condition that all loops inside have iterations, so none is lost where those have none.
    """
    return map_node(independent_as_parallel(node), _swapped)


def _swapped(n: Node) -> Node:
    if not isinstance(n, Loop) or n.value is None or not is_parallel(n.body):
        return n
    inner = n.body
    if n.variable in inner.end_variables:
        return n
    return replace(inner, body=_swapped(replace(n, body=inner.body)))


def is_own(nest: Nest, buffer: str) -> bool:
    """A scalar of the row, with dimensions of nothing but the loops that it is private to."""
    b = nest.kernel.buffer(buffer)
    if b.space == "argument" or not b.private >= {*nest.variables}:
        return False
    return len(b.shape) <= len(b.private - {x.variable for x in loops_in(nest.body)})


def is_of_points(nest: Nest, buffer: str, *sides: str) -> bool:
    """A temporary of which each iteration has one element, by `sides` among the nest's loops.

    Other subscripts are those loops, or what no loop of the nest moves: a step around it.
    """
    b, plain = nest.kernel.buffer(buffer), {var(v) for v in nest.variables}
    uses = [a.subscripts for a in accesses(nest.body) if a.buffer == buffer]
    if b.space != "arena" or not b.private >= {*nest.variables} or not uses:
        return False
    moving = {*nest.variables, *(x.variable for x in loops_in(nest.body))}
    by_points = all({var(v) for v in sides} <= {*subscripts} for subscripts in uses)
    return by_points and all(
        {*column} <= plain or (len({*column}) == 1 and not subscript_variables(column) & moving)
        for column in zip(*uses)
    )


# ---- what all plans make of it


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
    at = iteration(chain, flat)
    for x in reversed(chain):
        below, place = x.upper if x.lower == ZERO else None, at[x.variable]
        body = Loop(x.variable, place, place + 1, body, "serial", x.order, below=below)
    return body
