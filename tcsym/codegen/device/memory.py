# SPDX-License-Identifier: Apache-2.0
"""The memory of one thread: an element at a time, each at its address."""

from __future__ import annotations

from math import gcd

from msgspec import Struct

from tcsym.codegen.device.instructions import Instructions
from tcsym.codegen.scalar.addresses import Address, address
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.control import statement
from tcsym.codegen.scalar.memory import load_element, store_element
from tcsym.codegen.scalar.stores import converted, element_of, store_statement, update_statement
from tcsym.codegen.scalar.values import Val, bits_of
from tcsym.frontend.program import Read
from tcsym.index.expr import Index, var
from tcsym.index.values import substitute
from tcsym.ir.compiled import ARENA_LINE
from tcsym.ir.loops import Buffer, Node, Store, Update
from tcsym.ir.traverse import loads
from tcsym.sizes.multiples import divisor

MOST_ALIGNED = 16  # bytes that one access moves
_ANY_ORDER = 'syncscope("device") monotonic'  # of updates by threads of one device


class ThreadMemory(Struct):
    """No lanes, so no masks and no order of them. line: of the program, of what is being written;
    0 if that is not known."""

    instructions: Instructions
    line: int = 0

    def of_another(self) -> ThreadMemory:
        return ThreadMemory(self.instructions)

    def load(self, context: Context, at: Address, buffer: Buffer, mask: Val | None) -> Val:
        self._note(context, at, buffer, 0)
        return load_element(context, at, buffer, alignment(context, at, buffer))

    def store(
        self,
        context: Context,
        at: Address,
        buffer: Buffer,
        value: Val,
        mask: Val | None,
        streamed: int = 0,
    ) -> None:
        self._note(context, at, buffer, 1)
        store_element(context, at, buffer, value, alignment(context, at, buffer))

    def read(self, context: Context, r: Read) -> Val | None:
        return None

    def assign(self, context: Context, n: Store | Update) -> None:
        self.line = next((r.span.line for r in loads(n.value)), 0)
        if isinstance(n, Update) and n.atomic:
            self.update_at_once(context, n)
        elif isinstance(n, Store):
            store_statement(context, n, element_of(context, n))
        else:
            update_statement(context, n)

    def update_at_once(self, context: Context, n: Update) -> None:
        """So that no order of threads is seen. Reference: LLVM, `atomicrmw`."""
        buffer = context.buffers[n.buffer]
        at, term = address(context, buffer, n.subscripts), converted(context, n.value, buffer.dtype)
        self.instructions.touch(context, at.pointer, buffer, 2, self.line)
        if n.op != "add" and buffer.dtype.is_float:
            _exchange(context, at.pointer, {"min": "minimum", "max": "maximum"}[n.op], term)
        else:
            op = n.op if n.op == "add" or buffer.dtype.is_signed else f"u{n.op}"
            context.function.result(f"atomicrmw {op} ptr {at.pointer}, {term.typed} {_ANY_ORDER}")
        context.note_store(n.buffer)

    def block(self, context: Context, body: tuple[Node, ...]) -> None:
        for n in body:
            statement(context, n)

    def finish(self, context: Context, body: Node) -> None:
        """Stores are seen as they are done."""

    def _note(self, context: Context, at: Address, buffer: Buffer, use: int) -> None:
        if buffer.space not in ("register", "stack"):
            self.instructions.touch(context, at.pointer, buffer, use, self.line)


def _exchange(context: Context, pointer: str, extreme: str, term: Val) -> None:
    """What is there becomes the least or greatest of it and a number, NaN where one is; zeros are
    ordered by sign. (`atomicrmw fmaximum` is of LLVM 21.)"""
    f, kind = context.function, f"i{bits_of(term.kind)}"
    again, change, end = (f.new_label(x) for x in ("again", "change", "least"))
    f.jump(again)
    with f.scope():
        f.start_block(again)
        size = bits_of(term.kind) // 8
        old = f.result(f"load atomic {kind}, ptr {pointer} {_ANY_ORDER}, align {size}")
        there = Val(f.result(f"bitcast {kind} {old} to {term.kind}"), term.kind)
        best = context.code.intrinsic(extreme, there, term)
        new = f.result(f"bitcast {best.typed} to {kind}")
        f.branch(f.result(f"icmp eq {kind} {old}, {new}"), end, change)
        f.start_block(change)
        exchange = f"cmpxchg ptr {pointer}, {kind} {old}, {kind} {new} {_ANY_ORDER} monotonic"
        done = f.result(f"extractvalue {{ {kind}, i1 }} {f.result(exchange)}, 1")
        f.branch(done, end, again)
    f.start_block(end)


def alignment(context: Context, at: Address, buffer: Buffer) -> int:
    """Bytes, a power of two, that the address is a multiple of: neighbours become one access.

    The host has decided what it is to be aligned for (`Context.multiples`).
    """
    if buffer.space == "register" or at.index is None:
        return 1
    size, known = buffer.dtype.bytes, context.multiples
    first = ARENA_LINE
    if buffer.space == "argument":
        first = size * (known.get(buffer.phase, 1) if buffer.phase else 1)
    whole = gcd(first, size * divisor(_unrolled(context, at.index), known))
    return min(whole & -whole, MOST_ALIGNED)


def _unrolled(context: Context, e: Index) -> Index:
    """With what variables of unrolled loops stand for, and what copies of a step add."""
    bounds = {n: context.variables[n] for n in e.variables() if n in context.variables}
    values = {n: Index((), b.offset) for n, b in bounds.items() if b.text is None}
    values |= {n: var(n) + b.offset for n, b in bounds.items() if b.text is not None and b.offset}
    return substitute(e, values) if values else e
