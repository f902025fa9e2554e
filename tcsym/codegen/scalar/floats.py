# SPDX-License-Identifier: Apache-2.0
"""Numbers with operators, so that the mathematics of the built-ins reads as formulas.

A `Num` is a scalar or vector being computed (float, double, or integer bits); Python numbers in
formulas become constants of its type.
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.codegen.scalar.values import Code, Val, constant


class Num(Struct, frozen=True):
    code: Code
    val: Val

    @property
    def is_float(self) -> bool:
        return self.val.kind in ("float", "double")

    def like(self, value: Num | float) -> Num:
        """`value` as a number of this type."""
        if isinstance(value, Num):
            return value
        return Num(self.code, constant(value, self.val.kind))

    def _op(self, name: str, other: Num | float, swapped: bool = False) -> Num:
        a, b = self.val, self.like(other).val
        if swapped:
            a, b = b, a
        return Num(self.code, self.code.binary(name, a, b))

    def __add__(self, other: Num | float) -> Num:
        return self._op("fadd" if self.is_float else "add", other)

    def __sub__(self, other: Num | float) -> Num:
        return self._op("fsub" if self.is_float else "sub", other)

    def __mul__(self, other: Num | float) -> Num:
        return self._op("fmul" if self.is_float else "mul", other)

    def __truediv__(self, other: Num | float) -> Num:
        return self._op("fdiv", other)

    def __radd__(self, other: float) -> Num:
        return self + other

    def __rmul__(self, other: float) -> Num:
        return self * other

    def __rsub__(self, other: float) -> Num:
        return self._op("fsub" if self.is_float else "sub", other, swapped=True)

    def __rtruediv__(self, other: float) -> Num:
        return self._op("fdiv", other, swapped=True)

    def __neg__(self) -> Num:
        return Num(self.code, self.code.unary("fneg", self.val))

    def __and__(self, other: Num | int) -> Num:
        return self._op("and", other)

    def __or__(self, other: Num | int) -> Num:
        return self._op("or", other)

    def __xor__(self, other: Num | int) -> Num:
        return self._op("xor", other)

    def __lshift__(self, n: int) -> Num:
        return self._op("shl", n)

    def __rshift__(self, n: int) -> Num:
        """Arithmetic shift."""
        return self._op("ashr", n)

    def shifted_right(self, n: int) -> Num:
        """Logical shift: vectors of 64 bits have no arithmetic one before AVX-512."""
        return self._op("lshr", n)

    def _compare(self, name: str, other: Num | float) -> Num:
        prefix = "fcmp o" if self.is_float else "icmp " + ("" if name == "eq" else "s")
        other = self.like(other)
        return Num(self.code, self.code.compare(prefix + name, self.val, other.val))

    def __lt__(self, other: Num | float) -> Num:
        return self._compare("lt", other)

    def __le__(self, other: Num | float) -> Num:
        return self._compare("le", other)

    def __gt__(self, other: Num | float) -> Num:
        return self._compare("gt", other)

    def __ge__(self, other: Num | float) -> Num:
        return self._compare("ge", other)

    def equals(self, other: Num | float) -> Num:
        return self._compare("eq", other)

    def is_nan(self) -> Num:
        return Num(self.code, self.code.compare("fcmp uno", self.val, self.val))

    def to(self, kind: str, op: str) -> Num:
        return Num(self.code, self.code.convert(op, self.val, kind))

    def bits(self) -> Num:
        return self.to("i32" if self.val.kind == "float" else "i64", "bitcast")

    def as_float(self) -> Num:
        return self.to("float" if self.val.kind == "i32" else "double", "bitcast")

    def double(self) -> Num:
        return self.to("double", "fpext")

    def single(self) -> Num:
        return self.to("float", "fptrunc")

    def intrinsic(self, name: str, *others: Num | float) -> Num:
        """llvm.`name` of this number and others."""
        args = [self.like(o).val for o in others]
        return Num(self.code, self.code.intrinsic(name, self.val, *args))

    def each(self, name: str, *others: Num | float) -> Num:
        """A function of the C library lane by lane (its name for double)."""
        args = [self.like(o).val for o in others]
        full = name if self.val.kind == "double" else name + "f"
        return Num(self.code, self.code.call_each(full, self.val, *args))

    def magnitude(self) -> Num:
        return self.intrinsic("fabs")

    def with_sign(self, sign: Num) -> Num:
        return self.intrinsic("copysign", sign)

    def times_plus(self, factor: Num | float, term: Num | float) -> Num:
        """self*factor + term, fused where that is fast."""
        factor, term = self.like(factor), self.like(term)
        return Num(self.code, self.code.fma(self.val, factor.val, term.val))


def where(condition: Num, a: Num | float, b: Num | float) -> Num:
    """`a` where the condition holds, else `b`; at least one is a Num."""
    kind = a if isinstance(a, Num) else b
    assert isinstance(kind, Num)
    code = condition.code
    return Num(code, code.select(condition.val, kind.like(a).val, kind.like(b).val))


def polynomial(x: Num, coefficients: tuple[float, ...]) -> Num:
    """sum(c[k] x^k) by Horner's rule, lowest coefficient first."""
    total = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total.times_plus(x, c)
    return total


def in_pairs(x: Num, coefficients: tuple[float, ...]) -> Num:
    """`polynomial` by Horner's rule in x^2: a chain half as long, one product more."""
    low = [x.times_plus(b, a) for a, b in zip(coefficients[::2], coefficients[1::2])]
    terms: list[Num | float] = [*low, *coefficients[2 * len(low) :]]
    square, total = x * x, x.like(terms[-1])
    for term in reversed(terms[:-1]):
        total = total.times_plus(square, term)
    return total
