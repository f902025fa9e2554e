# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of one element."""

from __future__ import annotations

from tcsym.codegen.scalar.addresses import Address
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.values import Val, bits_of, type_text
from tcsym.ir.loops import Buffer


def load_element(context: Context, at: Address, buffer: Buffer, alignment: int = 1) -> Val:
    """The element that an address has for all lanes. alignment: of the address, in bytes, if that
    is more than the element's."""
    if buffer.space == "register":
        known = context.registers.load(buffer.name, at.place, 1)
        if known is not None:
            return known
    state = context.memory_state(buffer.name)
    return load_plain(context, at.pointer, at.kind, 1, state, alignment)


def store_element(
    context: Context, at: Address, buffer: Buffer, value: Val, alignment: int = 1
) -> None:
    """Write the element, of its memory type."""
    align = max(alignment, at.alignment)
    context.function.do(f"store {value.typed}, ptr {at.pointer}, align {align}")
    if buffer.space == "register":
        context.registers.store(buffer.name, at.place, value)
    context.note_store(buffer.name)


def load_plain(
    context: Context, pointer: str, kind: str, lanes: int, epoch: str, alignment: int = 1
) -> Val:
    """Elements side by side. `epoch`: as of `Function.pure`."""
    align = max(alignment, bits_of(kind) // 8)
    text = f"load {type_text(kind, lanes)}, ptr {pointer}, align {align}"
    return Val(context.function.pure(text, epoch), kind, lanes)
