# SPDX-License-Identifier: Apache-2.0
"""What the emitter knows while it walks a kernel: variables, places of buffers, lanes, faults.

Mutable, but local to one `emit`. A variable is bound to an integer (unrolled loops), to an i64
register plus a constant (serial loops; i32 where a device's numbers fit), or is the lane variable
of the innermost vector loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.codegen.scalar.alike import Call
from tcsym.codegen.scalar.backend import Backend, Memory
from tcsym.codegen.scalar.registers import Registers
from tcsym.codegen.scalar.text import Function, Module
from tcsym.codegen.scalar.values import Code, Val
from tcsym.errors import Span
from tcsym.index.expr import ZERO, Atom, Condition, Index
from tcsym.ir.allocate import Storage
from tcsym.ir.compiled import CONTEXT_FIELDS, Fault
from tcsym.ir.device import BeginCopy, LoadMatrices, MatrixMultiply
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, TransposeBlock, Update, Value
from tcsym.ir.regions import Host
from tcsym.ir.traverse import value_children, walk
from tcsym.sizes.context import Interval, Ranges, narrowed
from tcsym.sizes.multiples import Multiples, multiples_in
from tcsym.target.machine import Machine

Question = Callable[["Context", Value], bool]  # that `Context.holds_inside` asks
_ANY = ""  # in `Context.stores`, of stores into whichever buffer


class Bound(NamedTuple):
    """Value of a variable: register `text` + offset (no text: the offset alone).

    `depth`: number of loops around the place where the register is set. `kind`: of the register.
    """

    text: str | None
    offset: int = 0
    depth: int = 0
    kind: str = "i64"


class Lanes(Struct, frozen=True):
    """The vector loop being emitted. `mask` None: all lanes are active.

    `ragged`: variables of the loop's own mask. `guarded`: the mask also comes from conditions.
    `active`: how many lanes, the first ones, if the mask is the loop's own.
    """

    variable: str
    width: int
    mask: Val | None = None
    ragged: frozenset[str] = frozenset()
    guarded: bool = False
    active: Val | None = None


class Faults(Struct):
    """Faults of the kernel so far; a code is 1 + the index."""

    found: dict[tuple[str, Span, str], int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def code(self, fault: Fault) -> int:
        named = fault.message if fault.span.line == 0 else ""
        key = (fault.kind, fault.span, named)
        if key not in self.found:
            self.faults.append(fault)
            self.found[key] = len(self.faults)
        return self.found[key]


class Context(Struct):
    """State of the emission of one function of the kernel.

    `arena`: register of the address that offsets of `storage` start from.
    `pointers`: base address of each visible buffer. `error`: address of the cell that receives a
    fault's code. `host`: whose body is being written; None inside a region. `calls`: of functions,
    for loops by identity.
    `formulas`: values of atoms that were computed outside the function.
    `ranges`: of variables. `intervals`: of expressions, as far as asked for.
    `facts`: ranges of sizes where this code runs, by the conditions around it. Only control flow
    may rest on them: values may be computed in front of what the conditions guard.
    `multiples`: sizes that are multiples of numbers, by conditions of the host around the function.
    """

    kernel: Kernel
    machine: Machine
    module: Module
    buffers: dict[str, Buffer]
    faults: Faults
    backend: Backend
    memory: Memory
    code: Code
    registers: Registers
    error: str
    storage: Storage
    arena: str
    host: Host | None
    calls: Mapping[int, Call]
    variables: dict[str, Bound] = field(default_factory=dict)
    ranges: dict[str, Interval] = field(default_factory=dict)
    intervals: dict[Index, Interval] = field(default_factory=dict)
    facts: Ranges = field(default_factory=dict)
    multiples: Multiples = field(default_factory=dict)
    pointers: dict[str, str] = field(default_factory=dict)
    formulas: Mapping[Atom, Val] = field(default_factory=dict)
    depth: int = 0
    lanes: Lanes | None = None
    stores: dict[str, int] = field(default_factory=dict)
    epoch: int = 0
    offsets: dict[tuple[str, tuple[Index, ...]], Index] = field(default_factory=dict)
    zeros: str = ""
    body: Node | None = None  # of the innermost loop around what is being written
    index_kind: str = "i64"  # of what sizes alone decide
    thread: Bound = Bound("%thread")  # of a device's block
    in_copies: bool = False  # of an unrolled loop, in front of which they share what they can
    # Keyed by identity; the second part of an entry keeps the object, and so its id, alive.
    stored_in: dict[int, tuple[frozenset[str], Loop]] = field(default_factory=dict)
    depths: dict[tuple[int, int, int, Val | None], tuple[int, Value]] = field(default_factory=dict)
    answers: dict[tuple[Question, int], tuple[bool, Value]] = field(default_factory=dict)
    row_groups: dict[int, tuple[Any, Node]] = field(default_factory=dict)

    @property
    def function(self) -> Function:
        return self.code.function

    @property
    def width(self) -> int:
        return self.lanes.width if self.lanes else 1

    @property
    def lane_variable(self) -> str | None:
        return self.lanes.variable if self.lanes else None

    @property
    def mask(self) -> Val | None:
        return self.lanes.mask if self.lanes else None

    @contextmanager
    def bound(self, variable: str, value: Bound) -> Iterator[None]:
        self.variables[variable] = value
        yield
        del self.variables[variable]

    @contextmanager
    def known(self, sizes: Mapping[str, int]) -> Iterator[None]:
        """Sizes that have these values inside."""
        before = {n: self.variables[n] for n in sizes}
        self.variables.update((n, Bound(None, value)) for n, value in sizes.items())
        yield
        self.variables.update(before)

    @contextmanager
    def where(self, c: Condition) -> Iterator[None]:
        """What is written inside runs only where `c` holds."""
        before = self.facts, self.multiples
        self.facts = narrowed(c, self.facts)
        if self.host is not None:
            self.multiples = {**self.multiples, **dict(multiples_in(c))}
        yield
        self.facts, self.multiples = before

    @contextmanager
    def in_lanes(self, lanes: Lanes | None) -> Iterator[None]:
        before, self.lanes = self.lanes, lanes
        yield
        self.lanes = before

    @contextmanager
    def masked(self, mask: Val) -> Iterator[None]:
        """Only the lanes of `mask` are active inside."""
        assert self.lanes is not None
        both = self.code.and_(self.lanes.mask, mask)
        with self.in_lanes(replace(self.lanes, mask=both, guarded=True, active=None)):
            yield

    def stored(self, loop: Loop) -> frozenset[str]:
        """Buffers written in the loop."""
        found = self.stored_in.get(id(loop))
        if found is None:
            targets = Store | Update | TransposeBlock | BeginCopy | LoadMatrices | MatrixMultiply
            names = frozenset(
                n.buffer if isinstance(n, Store | Update) else n.target
                for n, _ in walk(loop.body)
                if isinstance(n, targets)
            )
            found = self.stored_in[id(loop)] = (names, loop)
        return found[0]

    def offset_of(self, buffer: Buffer, subscripts: tuple[object, ...]) -> Index:
        """Sum of the indices among the subscripts times their strides."""
        plain = tuple(s if isinstance(s, Index) else ZERO for s in subscripts)
        key = (buffer.name, plain)
        total = self.offsets.get(key)
        if total is None:
            total = ZERO
            for s, step in zip(plain, buffer.element_strides()):
                total = total + s * step
            self.offsets[key] = total
        return total

    @contextmanager
    def inside(self, loop: Loop) -> Iterator[None]:
        """The body of a loop is being written."""
        before, self.body = self.body, loop.body
        yield
        self.body = before

    def holds_inside(self, holds: Question, v: Value) -> bool:
        """True if it holds for `v` or some value inside; each is asked once."""
        order, todo = list[Value](), [v]
        while todo:
            x = todo.pop()
            if (holds, id(x)) not in self.answers:
                order.append(x)
                todo += value_children(x)
        for x in reversed(order):  # those inside first
            inside = any(self.answers[holds, id(c)][0] for c in value_children(x))
            self.answers[holds, id(x)] = (inside or holds(self, x), x)
        return self.answers[holds, id(v)][0]

    def nowhere(self) -> str:
        """Address of zeros in the frame, for lanes that must not read."""
        if not self.zeros:
            self.zeros = self.function.alloca("i64", 8)
            self.function.entry.append(f"  store i64 0, ptr {self.zeros}, align 8")
        return self.zeros

    def bounds(self, names: tuple[str, ...]) -> tuple[Bound | None, ...]:
        """What variables stand for here (the lane variable: None)."""
        return tuple([self.variables.get(n) for n in names])

    def memory_state(self, buffer: str) -> str:
        """Differs whenever the buffer may have been written in between."""
        stores = self.stores.get(buffer, 0) + self.stores.get(_ANY, 0)
        return f" ; {buffer} {stores} {self.epoch}"

    def note_store(self, buffer: str) -> None:
        self.stores[buffer] = self.stores.get(buffer, 0) + 1

    def note_stores(self) -> None:
        """Tasks may have stored into any buffer."""
        self.note_store(_ANY)

    def forget_loads(self) -> None:
        """At a loop's entry and exit: loads before it do not stand for loads after it."""
        self.epoch += 1


def launch_field(context: Context, name: str, kind: str) -> str:
    """In the host: a field of the launch's context struct."""
    place, f = CONTEXT_FIELDS.index(name), context.function
    address = f.pure(f"getelementptr i64, ptr %context, i64 {place}")
    return f.pure(f"load {kind}, ptr {address}, align 8")
