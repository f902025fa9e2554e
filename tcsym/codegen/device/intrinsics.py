# SPDX-License-Identifier: Apache-2.0
"""What threads of a device do beside loads, stores and arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from msgspec import Struct

from tcsym.codegen.device.instructions import Fragments, Instructions
from tcsym.codegen.scalar.addresses import Address, address
from tcsym.codegen.scalar.casts import from_memory
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.expressions import value
from tcsym.codegen.scalar.index_code import condition
from tcsym.codegen.scalar.values import Code, Val, constant
from tcsym.frontend.program import Call
from tcsym.index.expr import Index
from tcsym.ir.device import (
    WARP,
    Barrier,
    BeginCopy,
    CommitCopies,
    GridBarrier,
    LoadMatrices,
    MatrixMultiply,
    OnDevice,
    WaitCopies,
)
from tcsym.ir.loops import Shuffle, TransposeBlock, Update


class DeviceIntrinsics(Struct, frozen=True):
    """Nothing is packed, and nothing is fetched ahead by itself."""

    instructions: Instructions

    def value(self, context: Context, v: Call) -> Val | None:
        return None

    def term(self, context: Context, n: Update) -> Callable[[Val], Val] | None:
        return None

    def perform(self, context: Context, n: TransposeBlock | OnDevice) -> None:
        match n:
            case Barrier():
                self.instructions.barrier(context)
                _forget(context)
            case GridBarrier(counter):
                self.instructions.grid_barrier(context, context.pointers[counter])
                _forget(context)
            case BeginCopy():
                self.begin_copy(context, n)
            case CommitCopies():
                self.instructions.commit_copies(context)
            case WaitCopies(pending):
                self.instructions.wait_copies(context, pending)
                _forget(context)
            case LoadMatrices():
                self.instructions.load_matrices(context, n)
            case MatrixMultiply():
                self.multiply(context, n)
            case TransposeBlock():
                raise AssertionError(f"only a processor has this: {n}")  # as `verify` sees to
            case _:
                assert_never(n)

    def begin_copy(self, context: Context, n: BeginCopy) -> None:
        to, source = context.buffers[n.target], context.buffers[n.source]
        held = condition(context, n.condition)
        place = at = address(context, to, n.target_subscripts).pointer
        if held is not False:
            place = address(context, source, n.source_subscripts).pointer
        reads = constant(held, "i1") if isinstance(held, bool) else held
        n_bytes = n.elements * to.dtype.bytes
        self.instructions.begin_copy(context, at, place, n_bytes, None if held is True else reads)
        context.note_store(n.target)

    def multiply(self, context: Context, n: MatrixMultiply) -> None:
        places = [_held(context, *x) for x in n.operands]
        loaded = [_loaded(context, x[0], at) for x, at in zip(n.operands, places, strict=True)]
        terms, left, right = loaded
        held = Fragments(terms, left, right, context.buffers[n.left].dtype)
        sums, buffer = self.instructions.multiply(context, held, n.depth), context.buffers[n.target]
        for at, x in zip(places[0], sums, strict=True):
            context.memory.store(context, at, buffer, x, None)

    def shuffle(self, context: Context, v: Shuffle) -> Val:
        code, own = context.code, value(context, v.value)
        lane = code.binary("and", Val("%thread", "i64"), constant(WARP - 1, "i64"))
        return self.instructions.shuffle(context, own, _other(code, v, lane))


def _held(
    context: Context, buffer: str, subscripts: tuple[Index, ...], count: int
) -> list[Address]:
    """Of the elements from those subscripts on."""
    *rows, first = subscripts
    return [address(context, context.buffers[buffer], (*rows, first + k)) for k in range(count)]


def _loaded(context: Context, buffer: str, places: list[Address]) -> list[Val]:
    b = context.buffers[buffer]
    found = [context.memory.load(context, at, b, None) for at in places]
    if b.space == "register":
        return found
    return [from_memory(context.code, x, b.dtype) for x in found]


def _other(code: Code, v: Shuffle, lane: Val) -> Val:
    """The lane from which one takes: its own where there is none in that direction.

    Devices count lanes modulo their number, so that they may not be given another.
    """
    step = constant(v.lanes, "i64")
    match v.direction:
        case "across":
            return code.binary("xor", lane, step)
        case "up":
            other = code.binary("sub", lane, step)
            return code.select(code.compare("icmp sge", lane, step), other, lane)
        case "down":
            other = code.binary("add", lane, step)
            return code.select(code.compare("icmp slt", other, constant(WARP, "i64")), other, lane)
        case _:
            assert_never(v.direction)


def _forget(context: Context) -> None:
    """Other threads may have written anything."""
    context.registers.forget()
    context.forget_loads()
    for buffer in context.buffers:
        context.note_store(buffer)
