# SPDX-License-Identifier: Apache-2.0
"""Typed scalars and vectors in registers, and the elementwise instructions on them.

A `Val` is an LLVM operand with its scalar type and its number of lanes (1: a scalar). Instructions
accept a mixture of scalars and vectors; scalars are spread. Which register type a language type has
is decided here: bool is i1, half and bfloat16 are float.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from tcsym.codegen.scalar.text import Function
from tcsym.target.machine import Machine
from tcsym.types import DType


class Val(NamedTuple):
    """`text`: an LLVM operand; `kind`: its scalar type (i1, i32, float, ...)."""

    text: str
    kind: str
    lanes: int = 1

    @property
    def type(self) -> str:
        return self.kind if self.lanes == 1 else f"<{self.lanes} x {self.kind}>"

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def is_constant(self) -> bool:
        return not self.text.startswith("%")


def type_text(kind: str, lanes: int) -> str:
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


@lru_cache(maxsize=1024)
def suffix(kind: str, lanes: int) -> str:
    """How intrinsics name a type: f32, v8i64."""
    scalar = {"float": "f32", "double": "f64", "half": "f16"}.get(kind, kind)
    return scalar if lanes == 1 else f"v{lanes}{scalar}"


_REGISTER = {DType.BOOL: "i1", DType.FLOAT64: "double"}
_MEMORY = {DType.FLOAT32: "float", DType.FLOAT64: "double"}


def register_kind(dtype: DType) -> str:
    """Type of a value in registers."""
    if dtype.is_float:
        return _REGISTER.get(dtype, "float")
    return _REGISTER.get(dtype, f"i{dtype.bits}")


def memory_kind(dtype: DType) -> str:
    """Type of an element in memory."""
    return _MEMORY.get(dtype, f"i{dtype.bits}")


def bits_of(kind: str) -> int:
    return {"float": 32, "double": 64, "half": 16, "bfloat": 16}.get(kind) or int(kind[1:])


def float_text(value: float, kind: str) -> str:
    """A floating literal: LLVM wants the bits of the double, exactly representable in `kind`."""
    if kind == "float" and value == value and abs(value) != float("inf"):
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def constant(value: int | float, kind: str) -> Val:
    """A scalar literal; integers are wrapped to their type."""
    if kind in ("float", "double"):
        return Val(float_text(float(value), kind), kind)
    if kind == "i1":
        return Val("true" if value else "false", kind)
    bits = int(kind[1:])
    wrapped = int(value) & ((1 << bits) - 1)
    return Val(str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped), kind)


class Code(Struct):
    """Elementwise instructions appended to `function`."""

    function: Function
    machine: Machine

    def spread(self, a: Val, lanes: int) -> Val:
        """`a` in every lane."""
        if a.lanes == lanes:
            return a
        if a.is_constant:
            return Val(f"splat ({a.kind} {a.text})", a.kind, lanes)
        key = ("spread", a, lanes)
        known: Val | None = self.function.recall(key)
        if known is None:
            kind = type_text(a.kind, lanes)
            first = self.function.pure(f"insertelement {kind} poison, {a.typed}, i64 0")
            known = self.shuffle(Val(first, a.kind, lanes), None, (0,) * lanes)
            self.function.remember(key, known)
        return known

    def level(self, *values: Val) -> list[Val]:
        """All with the same number of lanes."""
        lanes = max(v.lanes for v in values)
        return [self.spread(v, lanes) for v in values]

    def shuffle(self, a: Val, b: Val | None, lanes: tuple[int, ...]) -> Val:
        """The named lanes of a followed by b, as a vector."""
        second = "poison" if b is None else b.text
        picks = ", ".join(f"i32 {i}" for i in lanes)
        text = f"shufflevector {a.typed}, {a.type} {second}, <{len(lanes)} x i32> <{picks}>"
        return Val(self.function.pure(text), a.kind, len(lanes))

    def lane(self, a: Val, index: int) -> Val:
        if a.lanes == 1:
            return a
        return Val(self.function.pure(f"extractelement {a.typed}, i64 {index}"), a.kind)

    def from_lanes(self, scalars: list[Val]) -> Val:
        """Scalars as a vector (one scalar stays one)."""
        if len(scalars) == 1:
            return scalars[0]
        kind = scalars[0].kind
        vector = "poison"
        for i, x in enumerate(scalars):
            whole = type_text(kind, len(scalars))
            vector = self.function.pure(f"insertelement {whole} {vector}, {x.typed}, i64 {i}")
        return Val(vector, kind, len(scalars))

    def lane_numbers(self, lanes: int, kind: str) -> Val:
        if lanes == 1:
            return constant(0, kind)
        numbers = ", ".join(f"{kind} {i}" for i in range(lanes))
        return Val(f"<{numbers}>", kind, lanes)

    def binary(self, op: str, a: Val, b: Val) -> Val:
        if a.lanes != b.lanes:
            a, b = self.level(a, b)
        return Val(self.function.pure(f"{op} {a.type} {a.text}, {b.text}"), a.kind, a.lanes)

    def unary(self, op: str, a: Val) -> Val:
        return Val(self.function.pure(f"{op} {a.typed}"), a.kind, a.lanes)

    def compare(self, predicate: str, a: Val, b: Val) -> Val:
        """`predicate` with its instruction: "icmp slt", "fcmp olt"."""
        if a.lanes != b.lanes:
            a, b = self.level(a, b)
        return Val(self.function.pure(f"{predicate} {a.type} {a.text}, {b.text}"), "i1", a.lanes)

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        if a.text == b.text and a.lanes == b.lanes:
            return a
        lanes = max(condition.lanes, a.lanes, b.lanes)
        a, b = self.spread(a, lanes), self.spread(b, lanes)
        text = f"select {condition.typed}, {a.typed}, {b.typed}"
        return Val(self.function.pure(text), a.kind, lanes)

    def convert(self, op: str, a: Val, kind: str) -> Val:
        """trunc, zext, sitofp, bitcast, ... to the scalar type `kind`."""
        if a.kind == kind:
            return a
        to = type_text(kind, a.lanes)
        return Val(self.function.pure(f"{op} {a.typed} to {to}"), kind, a.lanes)

    def intrinsic(self, name: str, *args: Val, flags: str = "") -> Val:
        """llvm.`name` on arguments of one type, giving that type."""
        first = args[0]
        if any(a.lanes != first.lanes for a in args):
            args = tuple(self.level(*args))
            first = args[0]
        full = f"llvm.{name}.{suffix(first.kind, first.lanes)}"
        self.function.module.declare(first.type, full, ", ".join(a.type for a in args))
        operands = ", ".join(a.typed for a in args)
        text = self.function.pure(f"call {flags}{first.type} @{full}({operands})")
        return Val(text, first.kind, first.lanes)

    def call_each(self, name: str, *args: Val) -> Val:
        """A function of scalars from the C library (or of this module), lane by lane."""
        lanes = max(a.lanes for a in args)
        kind = args[0].kind
        if name not in self.function.module.names:
            self.function.module.declare(kind, name, ", ".join(a.kind for a in args))
        results = []
        for i in range(lanes):
            operands = ", ".join(self.lane(a, i).typed for a in args)
            results.append(Val(self.function.pure(f"call {kind} @{name}({operands})"), kind))
        return self.from_lanes(results)

    def not_(self, a: Val) -> Val:
        return self.binary("xor", a, constant(1, "i1"))

    def and_(self, a: Val | None, b: Val | None) -> Val | None:
        """Conjunction of masks, where None is true."""
        if a is None or b is None:
            return b if a is None else a
        return self.binary("and", a, b)

    def any_lane(self, mask: Val) -> Val:
        """True if some lane is."""
        if mask.lanes == 1:
            return mask
        name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
        self.function.module.declare("i1", name, mask.type)
        return Val(self.function.pure(f"call i1 @{name}({mask.typed})"), "i1")

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        """a*b + c, rounded once where the target can do it fast."""
        if self.machine.has_fma:
            return self.intrinsic("fma", a, b, c)
        return self.binary("fadd", self.binary("fmul", a, b), c)
