# SPDX-License-Identifier: Apache-2.0
"""The memory of vectors: lanes side by side, apart or in turns, and in another order.

A statement works in shuffled order if what it writes is kept so (`lane_order`), or if its value is
computed so and put right before it is stored.
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.codegen.cpu import memory
from tcsym.codegen.cpu.lane_order import lane_order
from tcsym.codegen.cpu.pairs import Shuffled, in_order, load_pairs, steps_by_two, takes_pairs
from tcsym.codegen.cpu.permute import is_permuted, permuted
from tcsym.codegen.cpu.streams import end_streams
from tcsym.codegen.cpu.woven_stores import grouped, store_woven
from tcsym.codegen.scalar.addresses import Address
from tcsym.codegen.scalar.casts import from_memory
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.control import statement
from tcsym.codegen.scalar.stores import element_of, store_statement, update_statement
from tcsym.codegen.scalar.values import Val
from tcsym.frontend.program import Read
from tcsym.ir.loops import Buffer, Kernel, Node, Store, Update
from tcsym.ir.traverse import loads
from tcsym.target.machine import Machine
from tcsym.types import DType


class VectorMemory(Struct):
    """`lanes`: in which order they lie, in the statement being written."""

    lanes: Shuffled

    def of_another(self) -> VectorMemory:
        return VectorMemory(Shuffled(self.lanes.order))

    def load(self, context: Context, at: Address, buffer: Buffer, mask: Val | None) -> Val:
        element = memory.load(context, at, buffer, mask)
        kept = buffer.name in self.lanes.order.buffers and buffer.dtype is not DType.BOOL
        return in_order(context, element) if kept and not self.lanes.is_shuffled else element

    def store(
        self,
        context: Context,
        at: Address,
        buffer: Buffer,
        value: Val,
        mask: Val | None,
        streamed: int = 0,
    ) -> None:
        memory.store(context, at, buffer, value, mask, streamed)

    def read(self, context: Context, r: Read) -> Val | None:
        buffer = context.buffers[r.tensor]
        if is_permuted(context, buffer, r):
            return permuted(context, buffer, r)
        if self.lanes.is_shuffled and steps_by_two(context, r):
            pairs = load_pairs(context, buffer, r, self.lanes)
            return from_memory(context.code, pairs, buffer.dtype)
        return None

    def assign(self, context: Context, n: Store | Update) -> None:
        lanes = self.lanes
        lanes.is_shuffled = n.buffer in lanes.order.buffers
        if isinstance(n, Update):
            update_statement(context, n)
        else:
            store_statement(context, n, self._element(context, n))
        lanes.is_shuffled = False

    def _element(self, context: Context, n: Store) -> Val:
        """What it stores; the value alone may be computed in shuffled order."""
        lanes = self.lanes
        if lanes.is_shuffled or not takes_pairs(context, n):
            return element_of(context, n)

        def settled(value: Val) -> Val:
            lanes.is_shuffled, lanes.together = False, frozenset()
            return in_order(context, value)

        lanes.is_shuffled, lanes.together = True, frozenset(loads(n.value))
        return element_of(context, n, settled)

    def block(self, context: Context, body: tuple[Node, ...]) -> None:
        for x in grouped(context, body, self.lanes.order):
            if isinstance(x, tuple):
                store_woven(context, x, [self._element(context, n) for n in x])
            else:
                statement(context, x)

    def finish(self, context: Context, body: Node) -> None:
        end_streams(context, body)


def vector_memory(kernel: Kernel, machine: Machine) -> VectorMemory:
    """That of a kernel's first function."""
    order = lane_order(kernel.body, {b.name: b for b in kernel.buffers}, machine)
    return VectorMemory(Shuffled(order))
