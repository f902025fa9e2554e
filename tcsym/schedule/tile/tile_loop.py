# SPDX-License-Identifier: Apache-2.0
"""One loop -> a tile loop and a point loop; a constant point loop -> registers x lanes."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import ZERO, Index, ceildiv, index, minimum, var
from tcsym.ir.loops import Loop, Node
from tcsym.ir.traverse import substitute_node


def tile_loop(loop: Loop, size: int, tile: str, point: str) -> Loop:
    """v in lower:upper -> tile in 0:ceil(n / size) { point in 0:size, masked where ragged }.

    v = lower + size*tile + point. Both loops keep the kind of proof that v had.
    """
    n = loop.upper - loop.lower
    start = loop.lower + var(tile) * size
    body = substitute_node(loop.body, {loop.variable: start + var(point)})
    mask = None if is_multiple(n, size) else n - var(tile) * size
    points = Loop(point, ZERO, index(size), body, "unrolled", loop.order, mask)
    return Loop(tile, ZERO, ceildiv(n, size), points, loop.kind, loop.order)


def tile_loop_overlapping(loop: Loop, size: int, tile: str, point: str) -> Loop:
    """As `tile_loop`, but the last tile starts early enough to be whole: no mask.

    Contract: the loop has at least `size` iterations, and may make some of them twice.
    """
    n = loop.upper - loop.lower
    if is_multiple(n, size):
        return tile_loop(loop, size, tile, point)
    start = loop.lower + minimum(var(tile) * size, n - size)
    body = substitute_node(loop.body, {loop.variable: start + var(point)})
    points = Loop(point, ZERO, index(size), body, "unrolled", loop.order)
    return Loop(tile, ZERO, ceildiv(n, size), points, loop.kind, loop.order)


def split_point(loop: Loop, lanes: int, register: str, lane: str) -> Loop:
    """point in 0:T -> register in 0:T/lanes unrolled { lane in 0:lanes vector }, mask carried."""
    total = loop.upper.as_int()
    assert total is not None and total % lanes == 0 and loop.lower == ZERO
    start = var(register) * lanes
    body: Node = substitute_node(loop.body, {loop.variable: start + var(lane)})
    mask = None if loop.mask is None else loop.mask - start
    vector = Loop(lane, ZERO, index(lanes), body, "vector", loop.order, mask)
    return replace(
        loop,
        variable=register,
        upper=index(total // lanes),
        body=vector,
        kind="unrolled",
        mask=None,
    )


def is_multiple(n: Index, size: int) -> bool:
    """True if `n` is plainly a multiple of `size`."""
    return n.constant % size == 0 and all(c % size == 0 for _, c in n.terms)
