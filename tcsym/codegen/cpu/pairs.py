# SPDX-License-Identifier: Apache-2.0
"""Every second element of a row, in the order in which one shuffle leaves them.

Two copies of an unrolled statement that read neighbours, such as x[2*w] and x[2*w + 1], load the
same two vectors: all elements of both are read in any case.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.codegen.cpu.lane_order import (
    HALVES,
    LaneOrder,
    is_elementwise,
    is_strided_row,
    restored,
    shuffled,
)
from tcsym.codegen.cpu.memory import load_run
from tcsym.codegen.scalar.addresses import address, step_by
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.values import Val, constant
from tcsym.frontend.program import Read
from tcsym.index.expr import Index
from tcsym.ir.loops import Buffer, Store
from tcsym.ir.traverse import loads, subvalues


class Shuffled(Struct):
    """What is in shuffled order: buffers, and for a moment the statement being written.

    `together`: all that this statement reads, if it does so in any case.
    """

    order: LaneOrder
    is_shuffled: bool = False
    together: frozenset[Read] = frozenset()


def steps_by_two(context: Context, r: Read) -> bool:
    lane = context.lane_variable
    return lane is not None and is_strided_row(r, lane, context.buffers)


def load_pairs(context: Context, buffer: Buffer, r: Read, lanes: Shuffled) -> Val:
    """The lanes of a read that `steps_by_two`, shuffled."""
    subscripts = tuple([s for s in r.subscripts if isinstance(s, Index)])
    near = _neighbour(context, r, subscripts, lanes)
    first = 1 if near < 0 else 0  # the first lane's element in the first vector
    at = address(context, buffer, (*subscripts[:-1], subscripts[-1] - first))
    context.registers.forget()
    width, epoch = context.width, context.memory_state(buffer.name)
    apart = width if near else width - 1  # alone, the second vector ends at the last element
    later = step_by(context, at.pointer, constant(apart, "i64"), at.kind)
    low = load_run(context, at.pointer, at.kind, None, epoch)
    high = load_run(context, later, at.kind, None, epoch)
    places = [2 * lane + first for lane in shuffled(width)]
    picks = tuple(p if p < width else p + width - apart for p in places)
    return context.code.shuffle(low, high, picks)


def _neighbour(context: Context, r: Read, subscripts: tuple[Index, ...], lanes: Shuffled) -> int:
    """1: the next element is read too, perhaps by the next copy of a loop. -1: the one before."""
    *outer, last = subscripts
    if lanes.together:
        ahead = replace(r, subscripts=(*outer, last + 1)) in lanes.together
        back = replace(r, subscripts=(*outer, last - 1)) in lanes.together
        if ahead and back:
            return -1 if last.constant % 2 else 1
        return int(ahead) - int(back)
    for v, trips in lanes.order.whole:
        bound = context.variables.get(v)
        if bound is None or bound.text is not None or last.coefficient(v) != 1:
            continue
        rest = Index(tuple(t for t in last.terms if t[0] != v), 0)
        if any(v in s.variables() for s in (*outer, rest)):
            continue
        if bound.offset % 2:
            return -1
        return 1 if bound.offset + 1 < trips else 0
    return 0


def in_order(context: Context, element: Val) -> Val:
    """A shuffled vector put right."""
    # Hidden from LLVM, which would shuffle the operands of the last maximum instead.
    text = f'call {element.type} asm "", "=x,0"({element.typed})'
    hidden = Val(context.function.pure(text), element.kind, element.lanes)
    return context.code.shuffle(hidden, None, restored(context.width))


def takes_pairs(context: Context, n: Store) -> bool:
    """The value can be computed in shuffled order: whole vectors, of every second element each."""
    lanes, machine = context.lanes, context.machine
    if lanes is None or context.mask is not None or machine.vector_bits != HALVES:
        return False
    dtype = context.buffers[n.buffer].dtype
    if dtype.bits < 32 or lanes.width * dtype.bits != HALVES:
        return False
    strided = [r for r in loads(n.value) if is_strided_row(r, lanes.variable, context.buffers)]
    return bool(strided) and all(
        is_elementwise(v, dtype, lanes.variable, context.buffers) for v in subvalues(n.value)
    )
