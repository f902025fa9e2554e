"""Kernel -> where its temporaries lie: an offset in the shared arena, or in that of each task.

A function of the kernel alone, made before code is. Buffers whose lifetimes (`Allocate` nodes) do
not overlap share their place. Offsets and bytes are expressions in the kernel's sizes. Buffers in
registers and on the stack have no place here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from tcsym.index.expr import ZERO, Index, floordiv, index, maximum
from tcsym.ir.compiled import ARENA_LINE
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Prefetch,
    Store,
    TransposeBlock,
    Update,
    Verify,
)


@dataclass(frozen=True, slots=True)
class Storage:
    """Offsets of buffers in their arena, in bytes; bytes of the shared arena and of a task's."""

    offsets: Mapping[str, Index]
    shared_bytes: Index
    private_bytes: Index


def allocate(kernel: Kernel) -> Storage:
    """The storage of all buffers with space `arena`."""
    offsets: dict[str, Index] = {}
    shared, private = _bytes(kernel, kernel.body, ZERO, offsets)
    return Storage(offsets, shared, private)


def buffer_bytes(buffer: Buffer) -> Index:
    """Size of an arena buffer, a multiple of an arena's line."""
    total = index(buffer.dtype.bytes)
    for extent in buffer.shape:
        total = total * extent
    return floordiv(total + (ARENA_LINE - 1), ARENA_LINE) * ARENA_LINE


def _bytes(kernel: Kernel, n: Node, used: Index, offsets: dict[str, Index]) -> tuple[Index, Index]:
    """Bytes that a node needs of the arena around it, beside those used, and of a task's arena."""
    match n:
        case Loop() if n.kind == "parallel":
            shared, private = _bytes(kernel, n.body, ZERO, offsets)
            return ZERO, shared + private
        case Loop():
            return _bytes(kernel, n.body, used, offsets)
        case Allocate(name, body):
            buffer = kernel.buffer(name)
            own = buffer_bytes(buffer) if buffer.space == "arena" else ZERO
            if buffer.space == "arena":
                before = offsets.setdefault(name, used)
                assert before == used, f"`{name}` would lie at {before} and at {used}"
            shared, private = _bytes(kernel, body, used + own, offsets)
            return shared + own, private
        case Branch(_, then, orelse):
            sides = [then] if orelse is None else [then, orelse]
            return _larger(_bytes(kernel, x, used, offsets) for x in sides)
        case Block(body):
            return _larger(_bytes(kernel, x, used, offsets) for x in body)
        case Store() | Update() | Verify() | Prefetch() | TransposeBlock():
            return ZERO, ZERO
        case _:
            assert_never(n)


def _larger(needed: Iterable[tuple[Index, Index]]) -> tuple[Index, Index]:
    shared, private = ZERO, ZERO
    for s, p in needed:
        shared, private = maximum(shared, s), maximum(private, p)
    return shared, private
