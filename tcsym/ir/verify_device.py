# SPDX-License-Identifier: Apache-2.0
"""Checks of what only a device's kernel has: its grid, its threads, what they do together.

A region is a perfect nest of block loops. In it, shared buffers are allocated around everything
else; nests of thread loops, all of one shape, hold all statements; serial loops, branches and
barriers may stand around these nests as well, and every thread executes them. A grid loop is around
such nests, each of which has a barrier of the grid behind it. A barrier is where no
condition differs between the threads of a block; what a warp does together, where none differs
between its threads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from itertools import dropwhile, pairwise
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import (
    ONE,
    ZERO,
    Condition,
    Index,
    condition_variables,
    ge,
    index,
    lt,
    mod,
    var,
)
from tcsym.index.values import condition_substitute
from tcsym.ir.device import (
    COPIED_BYTES,
    HELD_BYTES,
    ROW_BYTES,
    WARP,
    Barrier,
    BeginCopy,
    CommitCopies,
    DeviceNode,
    GridBarrier,
    LoadMatrices,
    MatrixMultiply,
    OnDevice,
    WaitCopies,
    is_atomic,
)
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Shuffle,
    Store,
    TransposeBlock,
    Update,
    Verify,
)
from tcsym.ir.regions import buffers_used
from tcsym.ir.traverse import block_shape, grids, subvalues, thread_extents, walk
from tcsym.sizes.multiples import divisor
from tcsym.types import DType

MOST_DIMENSIONS = 3  # of a grid, and of a block
_FACTORS = {16: (DType.FLOAT16, DType.BFLOAT16), 8: (DType.FLOAT32,)}  # of a depth

Require = Callable[[bool, Node, str], None]


def verify_device(kernel: Kernel, require: Require) -> None:
    """Calls `require(holds, node, what)` for all that must hold beside what must of any kernel."""
    regions = [r for r, _ in grids(kernel.body)]
    inside = {id(x) for r in regions for x, _ in walk(r)}
    for n, around in walk(kernel.body):
        if id(n) not in inside:
            staying = any(x.kind == "grid" for x in around)
            host = isinstance(n, Loop | Branch | Block | Allocate)
            require(host or (staying and isinstance(n, GridBarrier)), n, "no thread does this")
            kinds = ("serial",) if staying else ("serial", "grid")
            require(not isinstance(n, Loop) or n.kind in kinds, n, "a loop outside of a grid")
            require(not (staying and isinstance(n, Allocate)), n, "allocated by blocks that stay")
            if isinstance(n, Loop) and n.kind == "grid":
                _verify_staying(kernel, n, require)
            reads = isinstance(n, Loop) and (n.value is not None or n.at is not None)
            require(not reads, n, "the host reads what is on the device")
            names = n.buffers if isinstance(n, Allocate) else ()
            own = any(kernel.buffer(name).space != "arena" for name in names)
            require(not own, n, "allocated outside of a grid")
    buffers = {b.name: b for b in kernel.buffers}
    for region in regions:
        _Region(buffers, require, block_shape(region)).grid(region, ())


def _verify_staying(kernel: Kernel, loop: Loop, require: Require) -> None:
    """Blocks of a grid loop are of one shape, and wait for each other after each nest."""
    nests = [r for r, _ in grids(loop.body)]
    require(len({block_shape(r) for r in nests}) == 1, loop, "blocks of several shapes that stay")
    sequences = [n.body for n, _ in walk(loop.body) if isinstance(n, Block)]
    ordered = {id(a) for x in sequences for a, b in pairwise(x) if isinstance(b, GridBarrier)}
    for r in nests:
        require(id(r) in ordered, r, "blocks that stay do not wait for each other behind it")
    for n, _ in walk(loop.body):
        if isinstance(n, GridBarrier):
            b = kernel.buffer(n.counter)
            fits = (b.space, b.dtype, b.shape) == ("arena", DType.INT32, ())
            require(fits, n, f"{n.counter} does not count blocks")
    counters = {n.counter for n, _ in walk(loop.body) if isinstance(n, GridBarrier)}
    used = {a for r in nests for a in buffers_used(r)}
    require(not counters & used, loop, "what counts blocks is used otherwise")


class _Place(Struct, frozen=True):
    """Thread loops around a node, and conditions on it that differ between threads; those of a loop
    are that it runs."""

    threads: tuple[Loop, ...] = ()
    conditions: tuple[Condition, ...] = ()
    in_lanes: bool = False

    def under(self, *conditions: Condition) -> _Place:
        varying = {x.variable for x in self.threads}
        differ = [c for c in conditions if condition_variables(c) & varying]
        return replace(self, conditions=(*self.conditions, *differ))

    def inside(self, loop: Loop) -> _Place:
        at = var(loop.variable)
        if loop.kind == "thread":
            place = replace(self, threads=(*self.threads, loop))
            return place if loop.mask is None else place.under(lt(at, loop.mask))
        ends = [ge(at, loop.lower), lt(at, loop.upper)]
        if loop.mask is not None:
            ends.append(lt(at, loop.mask))
        in_lanes = self.in_lanes or loop.kind == "vector"
        return replace(self.under(*ends), in_lanes=in_lanes)


class _Region(Struct, frozen=True):
    buffers: dict[str, Buffer]
    require: Require
    shape: tuple[int, ...]

    def grid(self, loop: Loop, around: tuple[Loop, ...]) -> None:
        """A block loop; `around`: those of its nest outside of it."""
        require = self.require
        require(len(around) < MOST_DIMENSIONS, loop, "a grid of too many dimensions")
        require(loop.lower == ZERO, loop, "a block loop that does not run from 0")
        require(loop.mask is None, loop, "a mask on a block loop")
        require(loop.order == "parallel", loop, "a block loop that was not proved parallel")
        others = {x.variable for x in around}
        require(not loop.upper.variables() & others, loop, "a grid that is no box")
        if isinstance(loop.body, Loop) and loop.body.kind == "block":
            self.grid(loop.body, (*around, loop))
        else:
            require(self.shape != (), loop, "a grid without threads")
            self.shared(loop.body)

    def shared(self, n: Node) -> None:
        """What the threads share is allocated around all else that a block does."""
        if isinstance(n, Allocate):
            others = dropwhile(lambda name: self.buffers[name].space == "shared", n.buffers)
            rest = tuple(others)
            n = Allocate(rest, n.body) if rest else n.body
            if not rest:
                self.shared(n)
                return
        self.node(n, _Place())

    def allocated(self, n: Node, names: tuple[str, ...]) -> None:
        for space in (self.buffers[name].space for name in names):
            self.require(space in ("register", "stack"), n, f"{space} memory inside a block")

    def node(self, n: Node, place: _Place) -> None:
        match n:
            case Block(body):
                for x in body:
                    self.node(x, place)
            case Branch(c, then, orelse):
                for arm in (then, *(() if orelse is None else (orelse,))):
                    self.node(arm, place.under(c))
            case Allocate(names, body):
                self.allocated(n, names)
                self.node(body, place)
            case Loop():
                self.loop(n, place)
            case Store() | Update() | Verify():
                self.require(place.threads != (), n, "a statement of no thread")
                if isinstance(n, Update) and n.atomic:
                    self.atomic(n, place)
                if any(isinstance(x, Shuffle) for x in subvalues(n.value)):
                    self.shuffle(n, place)
            case DeviceNode():
                self.device_node(n, place)
            case TransposeBlock():
                self.require(False, n, "a device has no such thing")
            case _:
                assert_never(n)

    def loop(self, n: Loop, place: _Place) -> None:
        require = self.require
        if n.kind != "thread":
            require(n.kind != "block", n, "a block loop inside others")
            inside = n.kind == "serial" or place.threads != ()
            require(inside, n, "lanes or copies outside of a thread")
            self.node(n.body, place.inside(n))
            return
        require(not place.in_lanes, n, "a thread loop inside a vector loop")
        if not place.threads:
            require(
                thread_extents(n) == self.shape, n, f"threads of another shape than {self.shape}"
            )
            require(len(self.shape) <= MOST_DIMENSIONS, n, "a block of too many dimensions")
        in_nest = len(place.threads) < len(self.shape)
        require(in_nest, n, "a thread loop that is not part of a nest of them")
        self.node(n.body, place.inside(n))

    def atomic(self, n: Update, place: _Place) -> None:
        b = self.buffers[n.buffer]
        self.require(b.space in ("argument", "arena"), n, "an atomic update of a thread's own")
        self.require(is_atomic(n.op, b.dtype), n, f"no atomic {n.op} of {b.dtype}")
        self.require(not place.in_lanes, n, "this is not done in lanes")

    def device_node(self, n: OnDevice, place: _Place) -> None:
        require = self.require
        require(not place.in_lanes, n, "this is not done in lanes")
        require(not isinstance(n, GridBarrier), n, "a barrier of the grid in a block")
        if not isinstance(n, Barrier):
            require(place.threads != (), n, "a statement of no thread")
        match n:
            case Barrier():
                require(place.conditions == (), n, "a barrier that not all threads reach")
            case GridBarrier():
                pass
            case CommitCopies() | WaitCopies():
                require(place.conditions == (), n, "not all threads count the same copies")
                require(not isinstance(n, WaitCopies) or n.pending >= 0, n, "fewer than no copies")
            case BeginCopy():
                target, source = self.buffers[n.target], self.buffers[n.source]
                spaces = target.space == "shared" and source.space in ("argument", "arena")
                require(spaces, n, "a copy that is not from global into shared memory")
                require(target.dtype is source.dtype, n, "a copy that changes the type")
                require(target.shape != () != source.shape, n, "a copy of a single number")
                moved = n.elements * target.dtype.bytes in COPIED_BYTES
                require(moved, n, f"a copy of other than {COPIED_BYTES} bytes")
                require(source.element_strides()[-1:] == (ONE,), n, "a copy across rows")
            case LoadMatrices():
                self.together(n, place)
                self.matrices(n, place)
            case MatrixMultiply():
                self.together(n, place)
                self.factors(n)
            case _:
                assert_never(n)

    def matrices(self, n: LoadMatrices, place: _Place) -> None:
        require = self.require
        target, source = self.buffers[n.target], self.buffers[n.source]
        spaces = target.space == "register" and source.space == "shared"
        require(spaces, n, "matrices that are not loaded from shared memory into registers")
        (*_, thread) = place.threads
        require(n.lane == mod(var(thread.variable), WARP), n, "the lane of another thread")
        size = source.dtype.bytes
        require(target.dtype is source.dtype, n, "matrices that change their type")
        widths = (2,) if n.transposed else (2, HELD_BYTES)
        require(size in widths, n, f"elements of other than {widths} bytes")
        require(len(n.steps) in (1, 2), n, "other than two or four matrices")
        strides = zip(n.row, source.element_strides(), strict=True)
        apart = divisor(sum((at * s for at, s in strides), ZERO), {}) * size
        require(apart % ROW_BYTES == 0, n, f"rows that are not at multiples of {ROW_BYTES} bytes")
        self.holds(n, target, n.target_subscripts, HELD_BYTES // size << len(n.steps))

    def holds(self, n: Node, b: Buffer, at: tuple[Index, ...], count: int) -> None:
        first, extent = at[-1].as_int(), b.shape[-1].as_int() or 0
        inside = first is not None and 0 <= first <= extent - count
        self.require(inside, n, f"{b.name} does not hold all elements of a thread")

    def factors(self, n: MatrixMultiply) -> None:
        require = self.require
        require(n.depth in _FACTORS, n, f"a depth that is none of {tuple(_FACTORS)}")
        target, left, right = (self.buffers[name] for name, *_ in n.operands)
        require(target.dtype is DType.FLOAT32, n, "sums in another type than float32")
        fits = left.dtype is right.dtype and left.dtype in _FACTORS[n.depth]
        require(fits, n, f"factors of another type than {_FACTORS[n.depth]}")
        for name, at, count in n.operands:
            require(self.buffers[name].space == "register", n, f"{name} is not in registers")
            require(self.buffers[name].shape != (), n, f"{name} is a single number")
            self.holds(n, self.buffers[name], at, count)

    def shuffle(self, n: Store | Update | Verify, place: _Place) -> None:
        v = n.value
        inside = [x for x in subvalues(v) if isinstance(x, Shuffle)]
        self.require(inside == [v], n, "a shuffle inside another value")
        assert isinstance(v, Shuffle)
        self.require(not place.in_lanes, n, "this is not done in lanes")
        self.require(1 <= v.lanes < WARP, n, "a shuffle from outside the warp")
        self.together(n, place)

    def together(self, n: Node, place: _Place) -> None:
        uniform = all(_same_in_warps(c, place.threads) for c in place.conditions)
        self.require(uniform, n, "a warp that is not together")
        self.require(math.prod(self.shape) % WARP == 0, n, "a warp of fewer threads")


def _same_in_warps(c: Condition, threads: tuple[Loop, ...]) -> bool:
    """Each thread's numbers put in its place make one condition for all threads of a warp."""
    for warp in _warps(threads):
        if len({condition_substitute(c, values) for values in warp}) > 1:
            return False
    return True


def _warps(threads: tuple[Loop, ...]) -> Iterator[list[dict[str, Index]]]:
    names = [x.variable for x in threads]
    places = itertools.product(*(range(x.upper.as_int() or 0) for x in threads))
    numbered = [dict(zip(names, map(index, at), strict=True)) for at in places]
    for first in range(0, len(numbered), WARP):
        yield numbered[first : first + WARP]
