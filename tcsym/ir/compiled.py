# SPDX-License-Identifier: Apache-2.0
"""What compiling one variant yields: machine code and all a launch needs, serialisable as JSON.

Calling convention of the code, symbol `tcsym_kernel`:
    i32 tcsym_kernel(ptr buffers, ptr sizes, ptr context)
`buffers`: data pointers of `arguments` in order. `sizes`: 64-bit values of `sizes` in order.
`context` points to the struct of `CONTEXT_FIELDS`, all 64 bits wide. Returns 0, or 1 + the index in
`faults` of a failed run-time check (outputs are then unspecified).

`parallel_for(pool, function, data, n_tasks, work)` calls `void function(ptr data, i64 task, i64 n)`
for 0 <= task < n, each on its own thread, and returns when all are done. It chooses n <= n_tasks by
`work`, the estimated time of all tasks in sixteenths of a processor cycle; n_tasks <= threads.
Task t uses the private arena at private_arena + t * private_bytes.

For a device the same code is the host half. Buffers and arenas are then the device's memory, which
it does not touch, and `parallel_for` is
    i32 run(pool, i64 function, ptr words, i64 n_words, i64 blocks, i64 threads, i64 shared_bytes)
It begins function number `function` of `device_functions` on a grid of one dimension, and returns 0
or a negative code. `words` are the function's parameters, of 8 bytes each, and are read before it
returns; the first is `fault_word`: 32 bits in which a thread that finds a fault notes 1 + its index
if they are 0.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from tcsym.errors import NOWHERE, Span
from tcsym.index.expr import FALSE, Condition, Index, var
from tcsym.index.json_data import (
    condition_from_json,
    condition_to_json,
    from_json,
    to_json,
)
from tcsym.ir.archive import SYMBOL as SYMBOL

ARENA_LINE = 64  # bytes; arenas, and what lies in them, start at multiples
CONTEXT_FIELDS = (
    "parallel_for",  # pointer to the function above
    "pool",  # its first argument
    "threads",  # most tasks that may run at once, >= 1
    "shared_arena",  # at least shared_bytes, at a line
    "private_arena",  # at least threads * private_bytes, at a line
    "private_bytes",  # distance between the arenas of two tasks
    "fault_word",  # of a device: what its functions note faults in; 0 before a call
)

# dense: row-major by shape. rows: the last stride is 1, the others any. columns: the last but one
# is, as in a transposed matrix. any: all strides any.
Layout = Literal["dense", "rows", "columns", "any"]
BINDING = "call.binding"  # a size of kernels that hold something: 1: make it, of the constants


def stride_name(tensor: str, dimension: int) -> str:
    """Name of the run-time size that holds a stride in elements (cannot clash with user names)."""
    return f"{tensor}.stride{dimension}"


def layout_strides(tensor: str, rank: int, layout: Layout) -> tuple[Index, ...] | None:
    """Element strides of an argument in that layout; None for dense."""
    if layout == "dense" or rank == 0:
        return None
    strides = [var(stride_name(tensor, d)) for d in range(rank)]
    if layout in ("rows", "columns"):
        strides[-1 if layout == "rows" else -2] = Index((), 1)
    return tuple(strides)


def serves(layout: Layout, other: Layout) -> bool:
    """Code for arguments of `layout` is right for those whose strictest layout is `other`."""
    return layout in (other, "any") or (layout == "rows" and other == "dense")


LEFT_OUT = -4  # the result of a kernel that has no code for these sizes


class Fault(Struct, frozen=True):
    """A check made by the running kernel, and the error it raises."""

    kind: str
    message: str
    span: Span = NOWHERE


class Compiled(Struct, frozen=True):
    """One variant. `object_code`: an object file or an archive of them, the one with `SYMBOL` last;
    byte counts are expressions over `sizes`. `device_code`: what a device loads, which defines
    `device_functions`.
    """

    object_code: bytes
    sizes: tuple[str, ...]
    arguments: tuple[str, ...]
    faults: tuple[Fault, ...]
    shared_bytes: Index
    private_bytes: Index
    fallbacks: tuple[str, ...] = ()  # strategies given up for a simpler one, and why
    notes: tuple[str, ...] = ()  # decisions worth telling: the schedule of each nest
    warnings: tuple[str, ...] = ()  # what its options ask for in vain
    milliseconds: tuple[tuple[str, float], ...] = ()  # per stage, in order
    left_out: Condition = FALSE  # sizes that it leaves to another (`Kernel.left_out`)
    device_code: bytes = b""
    device_functions: tuple[str, ...] = ()
    held: tuple[tuple[str, Index], ...] = ()  # `Kernel.held`, and their bytes

    @property
    def leaves_out(self) -> bool:
        """True if there are sizes with which its result is LEFT_OUT."""
        return self.left_out != FALSE

    @property
    def scratch(self) -> tuple[Index, Index]:
        """Bytes that tasks share, and of each task."""
        return self.shared_bytes, self.private_bytes

    def manifest(self) -> dict[str, Any]:
        """Everything but the object code, as JSON data; `from_manifest` is the inverse."""
        return {
            "sizes": list(self.sizes),
            "arguments": list(self.arguments),
            "faults": [
                [f.kind, f.message, f.span.line, f.span.column, f.span.length] for f in self.faults
            ],
            "shared_bytes": to_json(self.shared_bytes),
            "private_bytes": to_json(self.private_bytes),
            "fallbacks": list(self.fallbacks),
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "left_out": condition_to_json(self.left_out),
            "device_code": self.device_code.decode("latin-1"),
            "device_functions": list(self.device_functions),
            "held": [[name, to_json(e)] for name, e in self.held],
        }

    @staticmethod
    def from_manifest(data: dict[str, Any], object_code: bytes) -> Compiled:
        return Compiled(
            object_code=object_code,
            sizes=tuple(data["sizes"]),
            arguments=tuple(data["arguments"]),
            faults=tuple(Fault(k, m, Span(*place)) for k, m, *place in data["faults"]),
            shared_bytes=from_json(data["shared_bytes"]),
            private_bytes=from_json(data["private_bytes"]),
            fallbacks=tuple(data["fallbacks"]),
            notes=tuple(data["notes"]),
            warnings=tuple(data["warnings"]),
            left_out=condition_from_json(data["left_out"]),
            device_code=data["device_code"].encode("latin-1"),
            device_functions=tuple(data["device_functions"]),
            held=tuple((name, from_json(e)) for name, e in data["held"]),
        )
