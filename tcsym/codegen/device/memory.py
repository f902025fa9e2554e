"""The memory of one thread: an element at a time, each at its address."""

from __future__ import annotations

from tcsym.codegen.scalar.addresses import Address
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.control import statement
from tcsym.codegen.scalar.memory import load_element, store_element
from tcsym.codegen.scalar.stores import element_of, store_statement, update_statement
from tcsym.codegen.scalar.values import Val
from tcsym.frontend.program import Read
from tcsym.ir.loops import Buffer, Kernel, Node, Store, Update
from tcsym.target.machine import Machine


class ThreadMemory:
    """No lanes, so no masks and no order of them."""

    def of_another(self) -> ThreadMemory:
        return self

    def load(self, context: Context, at: Address, buffer: Buffer, mask: Val | None) -> Val:
        _note(context, at, buffer, writes=False)
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
        _note(context, at, buffer, writes=True)
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


def _note(context: Context, at: Address, buffer: Buffer, writes: bool) -> None:
    """Tells the host's blocks which bytes of shared memory are used: races are found so."""
    if buffer.space == "shared":
        context.module.declare("void", "tcsym_simt_touch", "ptr, ptr, i64, i64")
        what = f"i64 {buffer.dtype.bytes}, i64 {int(writes)}"
        context.function.do(f"call void @tcsym_simt_touch(ptr %simt, ptr {at.pointer}, {what})")


def thread_memory(kernel: Kernel, machine: Machine) -> ThreadMemory:
    return ThreadMemory()
