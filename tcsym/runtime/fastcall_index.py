"""Index expressions and conditions -> LLVM IR on 64-bit integers that never overflow unnoticed.

Every value carries a bound on its magnitude. Where an operation could leave +-2^62, code is added
that checks it and goes to label `slow` instead. Divisions are total, as in `tcsym.index`; both arms
of a choice are computed (an overflow in the arm not taken only costs the fast path).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import NamedTuple, assert_never

from tcsym.index import (
    All,
    Any_,
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    IsZero,
    Max,
    Min,
    Mod,
    NonNegative,
    Not,
    Product,
)

SIZE_BOUND = 2**31  # sizes are below it, by a check before
LIMIT = 2**62


class Value(NamedTuple):
    """An i64 operand and a bound on its magnitude."""

    text: str
    bound: int


class Lines:
    """Body of a function being written. Guards leave to label `slow`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def line(self, text: str) -> None:
        self.lines.append(text)

    def named(self, text: str) -> str:
        """A new register that holds the result of the instruction."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def label(self, name: str = "ok") -> str:
        self._count += 1
        return f"{name}{self._count}"

    def guard(self, condition: str, otherwise: str = "slow") -> None:
        """Goes on only if the i1 holds."""
        after = self.label()
        self.lines += [f"  br i1 {condition}, label %{after}, label %{otherwise}", f"{after}:"]


class IndexCode:
    """Writes the values of expressions over `sizes` into `out`, each subexpression once."""

    def __init__(self, out: Lines, sizes: Mapping[str, Value]) -> None:
        self.out = out
        self.sizes = sizes
        self._known: dict[Atom | Condition, Value] = {}

    # ---- expressions

    def index(self, e: Index) -> Value:
        terms = [self._scaled(atom, c) for atom, c in e.terms]
        if e.constant or not terms:
            terms.append(self._constant(e.constant))
        return reduce(lambda a, b: self._binary("add", a, b, a.bound + b.bound), terms)

    def _constant(self, n: int) -> Value:
        if abs(n) > LIMIT:
            self.out.guard("false")
            n = 0
        return Value(str(n), abs(n))

    def _scaled(self, atom: Atom, coefficient: int) -> Value:
        value = self.atom(atom)
        if coefficient == 1:
            return value
        factor = self._constant(coefficient)
        return self._binary("mul", value, factor, value.bound * factor.bound)

    def atom(self, atom: Atom) -> Value:
        if atom not in self._known:
            self._known[atom] = self._atom(atom)
        return self._known[atom]

    def _atom(self, atom: Atom) -> Value:
        match atom:
            case str():
                return self.sizes[atom]
            case Product(factors):
                values = [self.atom(f) for f in factors]
                return reduce(lambda a, b: self._binary("mul", a, b, a.bound * b.bound), values)
            case FloorDiv(a, b):
                return self._quotient(self.index(a), self.index(b))
            case Mod(a, b):
                return self._remainder(self.index(a), self.index(b))
            case Min(args):
                return reduce(lambda a, b: self._extremum("smin", a, b), map(self.index, args))
            case Max(args):
                return reduce(lambda a, b: self._extremum("smax", a, b), map(self.index, args))
            case Choose(c, a, b):
                return self._select(self.condition(c), self.index(a), self.index(b))
            case _:
                assert_never(atom)

    def _binary(self, op: str, a: Value, b: Value, bound: int) -> Value:
        out = self.out
        if bound <= LIMIT:
            return Value(out.named(f"{op} i64 {a.text}, {b.text}"), bound)
        call = f"call {{ i64, i1 }} @llvm.s{op}.with.overflow.i64(i64 {a.text}, i64 {b.text})"
        pair = out.named(call)
        overflow = out.named(f"extractvalue {{ i64, i1 }} {pair}, 1")
        out.guard(out.named(f"xor i1 {overflow}, true"))
        value = out.named(f"extractvalue {{ i64, i1 }} {pair}, 0")
        shifted = out.named(f"add i64 {value}, {LIMIT}")
        out.guard(out.named(f"icmp ule i64 {shifted}, {2 * LIMIT}"))
        return Value(value, LIMIT)

    def _quotient(self, a: Value, b: Value) -> Value:
        """floor(a / b), 0 where b is 0."""
        out = self.out
        zero = out.named(f"icmp eq i64 {b.text}, 0")
        divisor = out.named(f"select i1 {zero}, i64 1, i64 {b.text}")
        quotient = out.named(f"sdiv i64 {a.text}, {divisor}")
        rest = out.named(f"srem i64 {a.text}, {divisor}")
        inexact = out.named(f"icmp ne i64 {rest}, 0")
        signs = out.named(f"xor i64 {a.text}, {divisor}")
        opposite = out.named(f"icmp slt i64 {signs}, 0")
        below = out.named(f"and i1 {inexact}, {opposite}")
        one = out.named(f"zext i1 {below} to i64")
        floored = out.named(f"sub i64 {quotient}, {one}")
        return Value(out.named(f"select i1 {zero}, i64 0, i64 {floored}"), a.bound + 1)

    def _remainder(self, a: Value, b: Value) -> Value:
        out = self.out
        quotient = self._quotient(a, b)
        # |b * floor(a / b)| < |a| + |b|, so the product itself cannot overflow
        whole = out.named(f"mul i64 {quotient.text}, {b.text}")
        rest = out.named(f"sub i64 {a.text}, {whole}")
        zero = out.named(f"icmp eq i64 {b.text}, 0")
        return Value(out.named(f"select i1 {zero}, i64 0, i64 {rest}"), b.bound)

    def _extremum(self, which: str, a: Value, b: Value) -> Value:
        call = f"call i64 @llvm.{which}.i64(i64 {a.text}, i64 {b.text})"
        return Value(self.out.named(call), max(a.bound, b.bound))

    def _select(self, condition: str, a: Value, b: Value) -> Value:
        text = self.out.named(f"select i1 {condition}, i64 {a.text}, i64 {b.text}")
        return Value(text, max(a.bound, b.bound))

    # ---- conditions

    def condition(self, c: Condition) -> str:
        """An i1 that holds the truth of `c`."""
        match c:
            case NonNegative(i):
                return self.out.named(f"icmp sge i64 {self.index(i).text}, 0")
            case IsZero(i):
                return self.out.named(f"icmp eq i64 {self.index(i).text}, 0")
            case Not(inner):
                return self.out.named(f"xor i1 {self.condition(inner)}, true")
            case All(cs):
                return self._joined("and", "true", cs)
            case Any_(cs):
                return self._joined("or", "false", cs)
            case _:
                assert_never(c)

    def _joined(self, op: str, empty: str, conditions: tuple[Condition, ...]) -> str:
        join: Callable[[str, str], str] = lambda a, b: self.out.named(f"{op} i1 {a}, {b}")  # noqa: E731
        return reduce(join, map(self.condition, conditions), empty)


DECLARATIONS = """declare { i64, i1 } @llvm.sadd.with.overflow.i64(i64, i64)
declare { i64, i1 } @llvm.smul.with.overflow.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""
