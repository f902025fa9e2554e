# SPDX-License-Identifier: Apache-2.0
"""A loop -> the function it is an instance of, and the values of the function's parameters.

Loops are alike if they differ in names of variables and buffers, in strides, in bounds that do not
change inside and in parts of expressions that are known outside the kernel's loops. Those become
parameters, numbered in the order of their use, so that alike loops give equal functions. Offsets
are simplified first: parameters hide that a quotient times its divisor is the dividend again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.codegen.scalar.parameters import Parameters
from tcsym.frontend.program import Expr, IndexValue, Read
from tcsym.index.expr import (
    ONE,
    ZERO,
    Index,
    var,
)
from tcsym.ir.device import DeviceNode
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    Holds,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
    allocated,
)
from tcsym.ir.traverse import map_value, subvalues, walk

LOCAL = ("register", "stack")


class Function(Struct, frozen=True):
    """A loop as a kernel: `sizes` and `variables` are numbers that it is called with.

    Buffers are pointers with strides; their shapes mean nothing.
    """

    kernel: Kernel
    variables: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.kernel.name


class Call(Struct, frozen=True):
    """What stands for a loop: values of the function's sizes and variables, and its buffers."""

    function: str
    numbers: tuple[Index, ...]
    buffers: tuple[str, ...]


class Alike(Parameters):
    """Names for what a loop uses, in the order in which it does: alike loops become equal."""

    def __init__(self, kernel: Kernel, buffers: dict[str, Buffer], loop: Loop) -> None:
        super().__init__(frozenset(kernel.sizes), _defined(loop))
        self.given = buffers
        self.buffers: dict[str, Buffer] = {}
        self.with_rows = _needing_rows(loop)

    def function(self, name: str, body: Node) -> Function:
        buffers = tuple(self.buffers.values())
        for b in buffers:
            body = allocated(b.name, body) if b.space in LOCAL else body
        arguments = tuple(b.name for b in buffers if b.space not in LOCAL)
        sizes = tuple(self.numbers.values())
        return Function(Kernel(name, sizes, arguments, buffers, body), tuple(self.outer.values()))

    def call(self, function: str) -> Call:
        passed = [n for n, b in self.buffers.items() if b.space not in LOCAL]
        numbers = (*self.values, *map(var, self.outer))
        return Call(function, numbers, tuple(passed))

    # ---- buffers

    def buffer(self, name: str) -> Buffer:
        if name not in self.buffers:
            b, new = self.given[name], f"b{len(self.buffers)}"
            if b.space in LOCAL:
                self.buffers[name] = replace(b, name=new, private=frozenset())
            else:
                strides = self.strides(b, new) if name in self.with_rows else (ONE,)
                shape = tuple(ONE for _ in strides)
                self.buffers[name] = Buffer(new, b.dtype, shape, "argument", strides, b.padded)
        return self.buffers[name]

    def strides(self, b: Buffer, new: str) -> tuple[Index, ...]:
        return tuple(
            s if s.is_constant else self.number(s, (new, d))
            for d, s in enumerate(b.element_strides())
        )

    def subscripts(self, name: str, subscripts: tuple[Index | Expr, ...]) -> tuple[Any, ...]:
        """Of one dimension, where that is possible: offsets simplify, and constants are alike."""
        b = self.given[name]
        if b.space in LOCAL:
            return tuple([self.index(s) if isinstance(s, Index) else s for s in subscripts])
        self.role = self.buffer(name).name
        places = [s if isinstance(s, Index) else None for s in subscripts]
        if name in self.with_rows:
            at: tuple[Any, ...] = tuple(
                [s if p is None else self.row(p) for s, p in zip(subscripts, places)]
            )
        else:
            steps = zip(places, b.element_strides())
            at = (self.place(sum((p * step for p, step in steps if p is not None), ZERO)),)
        self.role = ""
        return at

    def place(self, e: Index) -> Index:
        """As `index`, always with a parameter: element 0 of a row is like element k."""
        fixed = Index(self.parted(e.terms)[0])
        return self.number(fixed) + self.index(e - fixed)

    def row(self, e: Index) -> Index:
        return self.number(e, ("row", self.role, e)) if e.is_constant else self.index(e)

    # ---- statements

    def value(self, v: Value) -> Value:
        return map_value(v, self.one_value, lambda i: i)

    def one_value(self, v: Value) -> Value:
        match v:
            case Read():
                at = self.subscripts(v.tensor, v.subscripts)
                return Read(self.buffer(v.tensor).name, at, v.dtype)
            case IndexValue():
                return replace(v, index=self.index(v.index))
            case Holds(c):
                return Holds(self.condition(c))
            case HorizontalReduce():
                return replace(v, variable=self.bound[v.variable])
            case _:
                return v

    def node(self, n: Node) -> Node:
        match n:
            case Loop():
                kind = "serial" if n.kind == "parallel" else n.kind
                return Loop(
                    self.bound[n.variable],
                    self.limit(n.lower),
                    self.limit(n.upper),
                    self.node(n.body),
                    kind,
                    n.order,
                    n.mask and self.apart(n.mask, self.bound[n.variable]),
                    n.unroll,
                )
            case Block(body):
                return Block(tuple(map(self.node, body)))
            case Branch(c, a, b):
                return Branch(self.condition(c), self.node(a), None if b is None else self.node(b))
            case Store() | Update():
                v, at = self.value(n.value), self.subscripts(n.buffer, n.subscripts)
                name = self.buffer(n.buffer).name
                return replace(n, buffer=name, subscripts=at, value=v, name="")
            case TransposeBlock():
                return replace(
                    n,
                    target=self.buffer(n.target).name,
                    target_subscripts=self.subscripts(n.target, n.target_subscripts),
                    source=self.buffer(n.source).name,
                    source_subscripts=self.subscripts(n.source, n.source_subscripts),
                    rows=self.apart(n.rows, "rows"),
                    columns=self.apart(n.columns, "columns"),
                )
            case Allocate(_, body):
                return self.node(body)  # the function has them: `function`
            case Verify() | DeviceNode():
                raise AssertionError(f"not in a function: {n}")
            case _:
                assert_never(n)


def _defined(loop: Loop) -> Iterator[str]:
    """Variables of all loops and horizontal sums."""
    for n, _ in walk(loop):
        if isinstance(n, Loop):
            yield n.variable
        elif isinstance(n, Store | Update):
            for x in subvalues(n.value):
                if isinstance(x, HorizontalReduce):
                    yield x.variable


def _needing_rows(loop: Loop) -> frozenset[str]:
    """Buffers that are transposed or gathered from: their dimensions stay apart."""
    found: set[str] = set()
    for n, _ in walk(loop):
        if isinstance(n, TransposeBlock):
            found |= {n.target, n.source}
        elif isinstance(n, Store | Update):
            for x in subvalues(n.value):
                if isinstance(x, Read) and not all(isinstance(s, Index) for s in x.subscripts):
                    found.add(x.tensor)
    return frozenset(found)
