"""The memory of one thread: an element at a time, each at its address."""

from __future__ import annotations

from dataclasses import dataclass

from tcsym.codegen.device.instructions import Instructions
from tcsym.codegen.scalar.addresses import Address
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.control import statement
from tcsym.codegen.scalar.memory import load_element, store_element
from tcsym.codegen.scalar.stores import element_of, store_statement, update_statement
from tcsym.codegen.scalar.values import Val
from tcsym.frontend.program import Read
from tcsym.ir.loops import Buffer, Node, Store, Update


@dataclass(frozen=True, slots=True)
class ThreadMemory:
    """No lanes, so no masks and no order of them."""

    instructions: Instructions

    def of_another(self) -> ThreadMemory:
        return self

    def load(self, context: Context, at: Address, buffer: Buffer, mask: Val | None) -> Val:
        self._note(context, at, buffer, writes=False)
        return load_element(context, at, buffer)

    def store(
        self,
        context: Context,
        at: Address,
        buffer: Buffer,
        value: Val,
        mask: Val | None,
        streamed: int = 0,
    ) -> None:
        self._note(context, at, buffer, writes=True)
        store_element(context, at, buffer, value)

    def read(self, context: Context, r: Read) -> Val | None:
        return None

    def assign(self, context: Context, n: Store | Update) -> None:
        if isinstance(n, Store):
            store_statement(context, n, element_of(context, n))
        else:
            update_statement(context, n)

    def block(self, context: Context, body: tuple[Node, ...]) -> None:
        for n in body:
            statement(context, n)

    def finish(self, context: Context, body: Node) -> None:
        """Stores are seen as they are done."""

    def _note(self, context: Context, at: Address, buffer: Buffer, writes: bool) -> None:
        if buffer.space == "shared":
            self.instructions.touch(context, at.pointer, buffer.dtype.bytes, writes)
