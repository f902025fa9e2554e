# SPDX-License-Identifier: Apache-2.0
"""Kernel -> where its temporaries lie: in the arena of all, of each task, or of a device's block.

A function of the kernel alone, made before code is. Buffers whose lifetimes (`Allocate` nodes) do
not overlap share their place; those of a device's block live as long as it does. Offsets and bytes
are expressions in the kernel's sizes. Buffers in registers and on the stack have no place here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from msgspec import Struct

from tcsym.index.expr import ZERO, Index, ceildiv, index, maximum
from tcsym.ir.compiled import ARENA_LINE
from tcsym.ir.device import DeviceNode
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Verify,
)
from tcsym.ir.traverse import grids, walk


class Storage(Struct, frozen=True):
    """Offsets of buffers in their memory, in bytes; bytes of the shared arena and of a task's."""

    offsets: Mapping[str, Index]
    shared_bytes: Index
    private_bytes: Index


def allocate(kernel: Kernel) -> Storage:
    """The storage of all buffers with space `arena` or `shared`."""
    offsets: dict[str, Index] = {}
    shared, private = _bytes(kernel, kernel.body, ZERO, offsets)
    for region, _ in grids(kernel.body):
        used = 0
        for name, n_bytes in _shared_by_block(kernel, region):
            offsets[name] = index(used)
            used += n_bytes
    return Storage(offsets, shared, private)


def block_bytes(kernel: Kernel, region: Loop) -> int:
    """Of what the threads of a block of that grid share; side by side, as all of it is alive. Nests
    of blocks that stay come one after the other."""
    nests = (_shared_by_block(kernel, nest) for nest, _ in grids(region))
    return max(sum(n_bytes for _, n_bytes in nest) for nest in nests)


def _shared_by_block(kernel: Kernel, region: Loop) -> Iterator[tuple[str, int]]:
    for n, _ in walk(region):
        for name in n.buffers if isinstance(n, Allocate) else ():
            if kernel.buffer(name).space == "shared":
                own = buffer_bytes(kernel.buffer(name)).as_int()
                assert own is not None, f"`{name}` is shared, but not of constant shape"
                yield name, own


def buffer_bytes(buffer: Buffer) -> Index:
    """Size of an arena or shared buffer, a multiple of an arena's line."""
    total = index(buffer.dtype.bytes)
    for extent in buffer.shape:
        total = total * extent
    return ceildiv(total, ARENA_LINE) * ARENA_LINE


def _bytes(kernel: Kernel, n: Node, used: Index, offsets: dict[str, Index]) -> tuple[Index, Index]:
    """Bytes that a node needs of the arena around it, beside those used, and of a task's arena."""
    match n:
        case Loop() if n.kind == "parallel":
            shared, private = _bytes(kernel, n.body, ZERO, offsets)
            return ZERO, shared + private
        case Loop():
            return _bytes(kernel, n.body, used, offsets)
        case Allocate(names, body):
            own = ZERO
            for buffer in map(kernel.buffer, names):
                if buffer.space == "arena":
                    at = used + own
                    before = offsets.setdefault(buffer.name, at)
                    assert before == at, f"`{buffer.name}` would lie at {before} and at {at}"
                    own += buffer_bytes(buffer)
            shared, private = _bytes(kernel, body, used + own, offsets)
            return shared + own, private
        case Branch(_, then, orelse):
            sides = [then] if orelse is None else [then, orelse]
            return _larger(_bytes(kernel, x, used, offsets) for x in sides)
        case Block(body):
            return _larger(_bytes(kernel, x, used, offsets) for x in body)
        case Store() | Update() | Verify() | TransposeBlock() | DeviceNode():
            return ZERO, ZERO
        case _:
            assert_never(n)


def _larger(needed: Iterable[tuple[Index, Index]]) -> tuple[Index, Index]:
    shared, private = ZERO, ZERO
    for s, p in needed:
        shared, private = maximum(shared, s), maximum(private, p)
    return shared, private
