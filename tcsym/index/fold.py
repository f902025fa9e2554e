# SPDX-License-Identifier: Apache-2.0
"""The meaning of index expressions: for each operator a value, from the values of its parts.

Numbers, arrays, other expressions, source text, functions of isl and JSON are such meanings. Each
is a subclass of `Fold` that says what a variable, a sum or a quotient is; this module alone
knows how expressions are built. A quotient and a remainder by zero are zero everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, assert_never

from tcsym.index.expr import (
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

Value = TypeVar("Value")
Truth = TypeVar("Truth")


class Fold(ABC, Generic[Value, Truth]):
    """`index` and `condition` give the meaning of a whole; the other methods that of an operator.

    A subclass that remembers values, or looks at parts before they have one, overrides `index`,
    `atom`, `condition` or `choice`. Conjunctions and disjunctions get their parts one by one, so
    that those behind the deciding one need have no value.
    """

    def index(self, e: Index) -> Value:
        return self.total([(self.atom(atom), c) for atom, c in e.terms], e.constant)

    def atom(self, atom: Atom) -> Value:
        match atom:
            case str():
                return self.variable(atom)
            case Product(factors):
                return self.product([self.atom(f) for f in factors])
            case FloorDiv(a, b):
                return self.quotient(self.index(a), self.index(b))
            case Mod(a, b):
                return self.remainder(self.index(a), self.index(b))
            case Min(args):
                return self.minimum([self.index(a) for a in args])
            case Max(args):
                return self.maximum([self.index(a) for a in args])
            case Choose(c, a, b):
                return self.choice(c, a, b)
            case _:
                assert_never(atom)

    def condition(self, c: Condition) -> Truth:
        match c:
            case NonNegative(i):
                return self.nonnegative(self.index(i))
            case IsZero(i):
                return self.zero(self.index(i))
            case Not(inner):
                return self.negation(self.condition(inner))
            case All(cs):
                return self.every(self.condition(x) for x in cs)
            case Any_(cs):
                return self.some(self.condition(x) for x in cs)
            case _:
                assert_never(c)

    def choice(self, c: Condition, a: Index, b: Index) -> Value:
        return self.choose(self.condition(c), self.index(a), self.index(b))

    @abstractmethod
    def variable(self, name: str) -> Value: ...

    @abstractmethod
    def total(self, terms: Sequence[tuple[Value, int]], constant: int) -> Value:
        """The sum of values times their coefficients, and a number."""

    @abstractmethod
    def product(self, factors: Sequence[Value]) -> Value: ...

    @abstractmethod
    def quotient(self, a: Value, b: Value) -> Value:
        """Rounded towards minus infinity."""

    @abstractmethod
    def remainder(self, a: Value, b: Value) -> Value:
        """Of that quotient: with the sign of `b`."""

    @abstractmethod
    def minimum(self, args: Sequence[Value]) -> Value: ...

    @abstractmethod
    def maximum(self, args: Sequence[Value]) -> Value: ...

    @abstractmethod
    def choose(self, c: Truth, a: Value, b: Value) -> Value: ...

    @abstractmethod
    def nonnegative(self, value: Value) -> Truth: ...

    @abstractmethod
    def zero(self, value: Value) -> Truth: ...

    @abstractmethod
    def negation(self, truth: Truth) -> Truth: ...

    @abstractmethod
    def every(self, truths: Iterator[Truth]) -> Truth: ...

    @abstractmethod
    def some(self, truths: Iterator[Truth]) -> Truth: ...
