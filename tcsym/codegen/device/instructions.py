# SPDX-License-Identifier: Apache-2.0
"""What differs between devices: how threads begin, wait, exchange values, copy and multiply.

`Instructions` is the table; code for regions asks nothing else of a device. The twin has a function
for each in tcsym/native/simt.c, whose state `%simt` each thread is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.control import statement
from tcsym.codegen.scalar.text import Function, Module
from tcsym.codegen.scalar.values import Code, Val, constant
from tcsym.frontend.program import Read
from tcsym.ir.device import LoadMatrices
from tcsym.ir.loops import Buffer, Store
from tcsym.types import DType


class Fragments(Struct, frozen=True):
    """What a thread of a warp holds of matrices, see `ir.device.held`. dtype: of both factors,
    whose elements are values of registers."""

    sums: Sequence[Val]
    left: Sequence[Val]
    right: Sequence[Val]
    dtype: DType


class Instructions(Protocol):
    """Each method but the first writes code into the function of the context."""

    def entry(
        self, module: Module, name: str, words: Sequence[str], threads: int, resident: int
    ) -> None:
        """Adds the function that is launched, with words of these types as its parameters. So many
        blocks of so many threads are to have room on a multiprocessor.

        It calls `NAME.body` with the first, the block's shared memory, the numbers of the block and
        of the thread (i64), `%simt`, and the other words.
        """

    def barrier(self, context: Context) -> None:
        """All threads of the block wait for each other."""

    def blocks(self, context: Context) -> Val:
        """How many blocks the grid has (i64)."""

    def grid_barrier(self, context: Context, counter: str) -> None:
        """All threads of a grid wait for each other. counter: a pointer to its int32."""

    def shuffle(self, context: Context, value: Val, lane: Val) -> Val:
        """The value that the thread of that lane (i64) gives; if there is none, this one's."""

    def begin_copy(
        self, context: Context, to: str, source: str, n_bytes: int, reads: Val | None
    ) -> None:
        """From global to shared memory; zeros if `reads` does not hold."""

    def commit_copies(self, context: Context) -> None: ...

    def wait_copies(self, context: Context, pending: int) -> None: ...

    def load_matrices(self, context: Context, n: LoadMatrices) -> None: ...

    def multiply(self, context: Context, held: Fragments, depth: int) -> list[Val]:
        """The sums, greater by what this thread holds of the product."""

    def touch(self, context: Context, pointer: str, buffer: Buffer, use: int, line: int) -> None:
        """This thread is about to use an element of memory that others see.

        use: 0, it reads; 1, it writes; 2, it updates it as a whole."""


class OfTwin(Struct):
    """Calls, by which the host sees all that threads do to each other.

    sites: places where they wait, so far.
    """

    sites: int = 0

    def entry(
        self, module: Module, name: str, words: Sequence[str], threads: int, resident: int
    ) -> None:
        place = "ptr %shared, i64 %block, i64 %thread, ptr %simt"
        f = Function(module, f"define void @{name}(ptr %data, {place}) #0")
        given = []
        for k, kind in enumerate(word.split(" ")[0] for word in words):
            at = f.pure(f"getelementptr i64, ptr %data, i64 {k}")
            given.append(f"{kind} " + f.pure(f"load {kind}, ptr {at}, align 8"))
        f.do(f"call void @{name}.body({', '.join([given[0], place, *given[1:]])})")
        f.do("ret void")
        f.finish()

    def barrier(self, context: Context) -> None:
        _call(context, "barrier", self._site())

    def blocks(self, context: Context) -> Val:
        return Val(context.function.call("i64", "tcsym_simt_blocks", "ptr %simt"), "i64")

    def grid_barrier(self, context: Context, counter: str) -> None:
        _call(context, "grid_barrier", f"ptr {counter}", self._site())

    def shuffle(self, context: Context, value: Val, lane: Val) -> Val:
        bits = as_bits(context.code, value, 64)
        given = "ptr %simt", bits.typed, lane.typed, self._site()
        text = context.function.call("i64", "tcsym_simt_shuffle", *given)
        return of_bits(context.code, Val(text, "i64"), value.kind)

    def begin_copy(
        self, context: Context, to: str, source: str, n_bytes: int, reads: Val | None
    ) -> None:
        wanted = context.code.convert("zext", reads or constant(1, "i1"), "i64")
        _call(context, "copy", f"ptr {to}", f"ptr {source}", f"i64 {n_bytes}", wanted.typed)

    def commit_copies(self, context: Context) -> None:
        _call(context, "commit")

    def wait_copies(self, context: Context, pending: int) -> None:
        _call(context, "wait", f"i64 {pending}")

    def load_matrices(self, context: Context, n: LoadMatrices) -> None:
        """Each thread loads its elements, of rows at multiples as `verify` has seen to."""
        dtype = context.buffers[n.source].dtype
        for target, source in n.elements(dtype.bytes):
            statement(context, Store(n.target, target, Read(n.source, source, dtype)))

    def _site(self) -> str:
        self.sites += 1
        return f"i64 {self.sites}"

    def multiply(self, context: Context, held: Fragments, depth: int) -> list[Val]:
        f, given = context.function, [*held.sums, *held.left, *held.right]
        memory = f.alloca(f"[{len(given)} x float]", 16)
        places = [f.pure(f"getelementptr float, ptr {memory}, i64 {k}") for k in range(len(given))]
        for at, x in zip(places, given, strict=True):
            f.do(f"store {x.typed}, ptr {at}, align 4")
        _call(context, "multiply", f"ptr {memory}", f"i64 {depth}", self._site())
        loads = [f.result(f"load float, ptr {at}, align 4") for at in places[: len(held.sums)]]
        return [Val(x, "float") for x in loads]

    def touch(self, context: Context, pointer: str, buffer: Buffer, use: int, line: int) -> None:
        given = f"ptr {pointer}", f"i64 {buffer.dtype.bytes}", f"i64 {use}"
        if buffer.space == "shared":
            _call(context, "touch", *given, f"i64 {line}")
        else:
            number = list(context.pointers).index(buffer.name)  # as in `Region.pointers`
            _call(context, "global", *given, f"i64 {number}", f"i64 {line}")


def _call(context: Context, name: str, *arguments: str) -> None:
    context.function.call("void", f"tcsym_simt_{name}", "ptr %simt", *arguments)


_WHOLE = {"half": "i16", "float": "i32", "double": "i64"}


def as_bits(code: Code, v: Val, bits: int) -> Val:
    """A value of at most so many bits as an integer of that many."""
    whole = code.convert("bitcast", v, _WHOLE[v.kind]) if v.kind in _WHOLE else v
    return code.convert("zext", whole, f"i{bits}")


def of_bits(code: Code, bits: Val, kind: str) -> Val:
    """The inverse of `as_bits`."""
    part = code.convert("trunc", bits, _WHOLE.get(kind, kind))
    return code.convert("bitcast", part, kind)
