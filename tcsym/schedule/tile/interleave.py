# SPDX-License-Identifier: Apache-2.0
"""Small products -> vectors of a lane for each of them, on copies of their operands.

A copy of an operand has a row of lanes for each element of one product: the transposition of two
dimensions, products and all others as if they were one, whatever shape an operand has. Results go
back the same way. The last group of products starts early enough to be whole.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import (
    ONE,
    ZERO,
    Index,
    ceildiv,
    index,
    maximum,
    minimum,
    var,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Value,
    block,
)
from tcsym.ir.traverse import map_node
from tcsym.schedule.analysis.band import Band, band_of
from tcsym.schedule.analysis.loops import (
    find_loop,
    loops_around,
    loops_in,
    replace_loop,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.order.interchange import can_sink
from tcsym.schedule.plan import Interleave
from tcsym.schedule.tile.register_tile import TileShape, tile_registers
from tcsym.schedule.tile.tile_loop import is_multiple
from tcsym.schedule.version.interleaving import Interleaving


def schedule_interleave(kernel: Kernel, nest: str, x: Interleave, setting: Setting) -> Kernel:
    """The nest with the plan's loop in the lanes. Contract: it fills a vector."""
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    sums = [y.variable for y in loops_in(band.body) if _is_loop_of_sums(y)]
    found = Interleaving(x.loop, x.outer, dict(x.moved), x.rows, x.height)
    kernel = schedule_interleaved(kernel, nest, found, lanes, setting.names)
    shape = TileShape(1, x.together, 1)
    for v in sums if x.together > 1 else ():
        loop = find_loop(kernel.body, v)
        inner = Band((loop,), loop.body)
        kernel = tile_registers(kernel, inner, v, None, (), shape, setting.names).kernel
    return kernel


def _is_loop_of_sums(x: Loop) -> bool:
    """Each iteration sums some terms, and nothing else has a loop."""
    inside = loops_in(x.body)
    alike = inside and all(y.order == "reduction" for y in inside)
    return bool(alike) and x.order == "parallel" and can_sink(x.body, frozenset((x.variable,)))


def schedule_interleaved(
    kernel: Kernel, nest: str, x: Interleaving, lanes: int, names: Names
) -> Kernel:
    """Contract: the loop has `lanes` iterations or more."""
    band = band_of(find_loop(kernel.body, nest))
    loop = band.loop(x.loop)
    shape = TileShape(1 if x.rows is None else x.height, 1, lanes)
    tiled = tile_registers(kernel, band, x.loop, x.rows, x.outer, shape, names, True)
    kernel, tile = tiled.kernel, tiled.column_tile
    n, start = extent(loop), var(tile) * lanes
    start = loop.lower + (start if is_multiple(n, lanes) else minimum(start, n - lanes))
    top = find_loop(kernel.body, tile)
    around = frozenset(y.variable for y in loops_around(kernel.body, tile)) | {tile}
    copies = _Copies(kernel, x.moved, start, lanes, around, names)
    body = map_node(top.body, copies.statement, copies.value)
    whole = replace(top, body=block(*copies.before, body, *copies.after))
    kernel = replace(kernel, body=replace_loop(kernel.body, tile, lambda _: whole))
    for b in copies.made.values():
        kernel = kernel.with_buffer(b)
    return kernel


class _Copies(Struct):
    """`made`: by buffer and place outside the dimension, its interleaved copy."""

    kernel: Kernel
    moved: dict[str, int]
    start: Index
    lanes: int
    private: frozenset[str]
    names: Names
    made: dict[tuple[str, tuple[Index, ...]], Buffer] = field(default_factory=dict)
    before: list[Node] = field(default_factory=list)
    after: list[Node] = field(default_factory=list)

    def value(self, v: Value) -> Value:
        if not isinstance(v, Read) or v.tensor not in self.moved:
            return v
        subscripts = tuple(s for s in v.subscripts if isinstance(s, Index))
        copy, at = self.copy(v.tensor, subscripts, False)
        return Read(copy.name, at, v.dtype)

    def statement(self, x: Node) -> Node:
        if not isinstance(x, Store | Update) or x.buffer not in self.moved:
            return x
        copy, at = self.copy(x.buffer, x.subscripts, True)
        return replace(x, buffer=copy.name, subscripts=at)

    def copy(
        self, name: str, subscripts: tuple[Index, ...], written: bool
    ) -> tuple[Buffer, tuple[Index, ...]]:
        b, d = self.kernel.buffer(name), self.moved[name]
        n = product_of(b.shape[d + 1 :])
        key = name, subscripts[:d]
        if key not in self.made:
            own = self.names.fresh(f"{name}_lanes")
            shape = (n, index(self.lanes))
            self.made[key] = Buffer(own, b.dtype, shape, "arena", private=self.private)
            moves = self.moves(self.made[key], b, subscripts[:d], n, written)
            (self.after if written else self.before).append(moves)
        place, step = ZERO, ONE
        for s, size in reversed(list(zip(subscripts[d + 1 :], b.shape[d + 1 :]))):
            place, step = place + s * step, step * size
        return self.made[key], (place, subscripts[d] - self.start)

    def moves(
        self, copy: Buffer, b: Buffer, first: tuple[Index, ...], n: Index, back: bool
    ) -> Node:
        """Blocks of as many elements as lanes; the last one is whole where the others are."""
        tile, size = self.names.fresh(copy.name), self.lanes
        at = var(tile) * size
        at = at if is_multiple(n, size) else minimum(at, maximum(ZERO, n - size))
        inside = len(b.shape) - len(first) - 2
        there = (*first, self.start, *(ZERO for _ in range(inside)), at)
        own, row = (at, ZERO), -inside - 2
        if back:
            node = TransposeBlock(b.name, there, copy.name, own, n - at, index(size), size, -2, row)
        else:
            node = TransposeBlock(copy.name, own, b.name, there, index(size), n - at, size, row, -2)
        return Loop(tile, ZERO, ceildiv(n, size), node, "serial", "parallel")
