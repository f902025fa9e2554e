# SPDX-License-Identifier: Apache-2.0
"""Formulas in sizes -> steps that native code takes at each call (tcsym/native/formulas.c).

A call has an array of 64-bit values: its sizes first, then constants and what is computed of them.
A step is five numbers: an operation, and the places of its result and of up to three operands.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import reduce
from typing import assert_never

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

SIZE_BOUND = 2**31  # sizes of native calls are below it
(ADD, MULTIPLY, QUOTIENT, REMAINDER, LEAST, GREATEST) = range(6)
(CHOOSE, NON_NEGATIVE, IS_ZERO, NOT, AND, OR, REQUIRE) = range(6, 13)


class Formulas:
    """Steps being written. `values`: before a call; `names`: of the first ones, which are sizes.

    Each subexpression is computed once. Both arms of a choice are: an overflow in the one that is
    not taken only costs the native way.
    """

    def __init__(self, names: Sequence[str], values: Sequence[int]) -> None:
        self.values = list(values)
        self.steps: list[int] = []
        self._places: dict[Atom | Condition | int, int] = {name: k for k, name in enumerate(names)}

    def index(self, e: Index) -> int:
        """Place of the expression's value."""
        terms = [self._scaled(atom, c) for atom, c in e.terms]
        if e.constant or not terms:
            terms.append(self.number(e.constant))
        return reduce(lambda a, b: self._step(ADD, a, b), terms)

    def number(self, n: int) -> int:
        """Place of a constant. One that does not fit 64 bits makes no call native."""
        if not -(2**63) <= n < 2**63:
            self._steps(REQUIRE, 0, self.number(0))
            return self.number(0)
        # a key that no size's name has, and no atom either
        if n not in self._places:
            self._places[n] = len(self.values)
            self.values.append(n)
        return self._places[n]

    def require(self, c: Condition) -> None:
        """Calls for which it does not hold are not native."""
        self._steps(REQUIRE, 0, self.condition(c))

    def choose(self, condition: int, then: int, otherwise: int) -> int:
        """Place of one of two values."""
        return self._step(CHOOSE, condition, then, otherwise)

    def condition(self, c: Condition) -> int:
        """Place of 1 where it holds, else 0."""
        if c not in self._places:
            self._places[c] = self._condition(c)
        return self._places[c]

    def _condition(self, c: Condition) -> int:
        match c:
            case NonNegative(i):
                return self._step(NON_NEGATIVE, self.index(i))
            case IsZero(i):
                return self._step(IS_ZERO, self.index(i))
            case Not(inner):
                return self._step(NOT, self.condition(inner))
            case All(cs):
                parts = [self.condition(part) for part in cs] or [self.number(1)]
                return reduce(lambda a, b: self._step(AND, a, b), parts)
            case Any_(cs):
                parts = [self.condition(part) for part in cs] or [self.number(0)]
                return reduce(lambda a, b: self._step(OR, a, b), parts)
            case _:
                assert_never(c)

    def _scaled(self, atom: Atom, coefficient: int) -> int:
        value = self._atom(atom)
        return value if coefficient == 1 else self._step(MULTIPLY, value, self.number(coefficient))

    def _atom(self, atom: Atom) -> int:
        if atom not in self._places:
            self._places[atom] = self._compound(atom)
        return self._places[atom]

    def _compound(self, atom: Atom) -> int:
        match atom:
            case str():
                raise KeyError(atom)
            case Product(factors):
                return reduce(lambda a, b: self._step(MULTIPLY, a, b), map(self._atom, factors))
            case FloorDiv(a, b):
                return self._step(QUOTIENT, self.index(a), self.index(b))
            case Mod(a, b):
                return self._step(REMAINDER, self.index(a), self.index(b))
            case Min(args):
                return reduce(lambda a, b: self._step(LEAST, a, b), map(self.index, args))
            case Max(args):
                return reduce(lambda a, b: self._step(GREATEST, a, b), map(self.index, args))
            case Choose(c, a, b):
                return self.choose(self.condition(c), self.index(a), self.index(b))
            case _:
                assert_never(atom)

    def _step(self, operation: int, a: int, b: int = 0, c: int = 0) -> int:
        self.values.append(0)
        self._steps(operation, len(self.values) - 1, a, b, c)
        return len(self.values) - 1

    def _steps(self, operation: int, to: int, a: int, b: int = 0, c: int = 0) -> None:
        self.steps += (operation, to, a, b, c)


def packed_words(words: Sequence[int]) -> bytes:
    """Numbers as native code reads them."""
    return struct.pack(f"{len(words)}q", *words)
