"""Loads and stores of one element."""

from __future__ import annotations

from tcsym.codegen.scalar.addresses import Address
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.values import Val, bits_of, type_text
from tcsym.ir.loops import Buffer


def load_element(context: Context, at: Address, buffer: Buffer) -> Val:
    """The element that an address has for all lanes."""
    if buffer.space == "register":
        known = context.registers.load(buffer.name, at.place, 1)
        if known is not None:
            return known
    return load_plain(context, at.pointer, at.kind, 1, context.memory_state(buffer.name))


def store_element(context: Context, at: Address, buffer: Buffer, value: Val) -> None:
    """Write the element, of its memory type."""
    context.function.do(f"store {value.typed}, ptr {at.pointer}, align {at.alignment}")
    if buffer.space == "register":
        context.registers.store(buffer.name, at.place, value)
    context.note_store(buffer.name)


def load_plain(context: Context, pointer: str, kind: str, lanes: int, epoch: str) -> Val:
    """Elements side by side. `epoch`: as of `Function.pure`."""
    align = bits_of(kind) // 8
    text = f"load {type_text(kind, lanes)}, ptr {pointer}, align {align}"
    return Val(context.function.pure(text, epoch), kind, lanes)
