"""Index expressions and conditions at many choices of sizes: arrays in place of integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

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

Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]


class Column:
    """Values of one variable or expression, for each choice of sizes, or one for all of them.

    Equal if it is the same object: so what depends on columns can be looked up by them.
    """

    __slots__ = ("array",)

    def __init__(self, array: Integers) -> None:
        self.array = array


class Columns:
    """Columns by variable. Expressions of the same columns are evaluated once, in any scope."""

    def __init__(
        self, columns: Mapping[str, Column], made: dict[tuple[object, ...], Column] | None = None
    ) -> None:
        self._columns = columns
        self._made = {} if made is None else made

    def with_variable(self, name: str, column: Column) -> Columns:
        return Columns({**self._columns, name: column}, self._made)

    def know(self, names: frozenset[str]) -> bool:
        return names <= self._columns.keys()

    def of_names(self, names: Iterable[str]) -> tuple[object, ...]:
        """What stands for these variables here: a key."""
        return tuple(sorted((n, self._columns.get(n)) for n in names))

    def of(self, e: Index) -> Column:
        """Values of `e`; KeyError for an unbound variable."""
        if not e.terms:
            return self._kept((e,), lambda: np.full(1, e.constant, np.int64))
        return self._kept((e, *self.of_names(e.variables())), lambda: self._sum(e))

    def holds(self, c: Condition) -> Truths:
        match c:
            case NonNegative(i):
                return np.asarray(self.of(i).array >= 0, np.bool_)
            case IsZero(i):
                return np.asarray(self.of(i).array == 0, np.bool_)
            case Not(inner):
                return np.asarray(~self.holds(inner), np.bool_)
            case All(cs):
                return reduce(np.logical_and, map(self.holds, cs), np.ones(1, np.bool_))
            case Any_(cs):
                return reduce(np.logical_or, map(self.holds, cs), np.zeros(1, np.bool_))
            case _:
                assert_never(c)

    def _kept(self, key: tuple[object, ...], make: Callable[[], Integers]) -> Column:
        if key not in self._made:
            self._made[key] = Column(make())
        return self._made[key]

    def _sum(self, e: Index) -> Integers:
        parts = (c * self._atom(atom) for atom, c in e.terms)
        return reduce(np.add, parts, np.full(1, e.constant, np.int64))

    def _atom(self, atom: Atom) -> Integers:
        match atom:
            case str():
                return self._columns[atom].array
            case Product(factors):
                return reduce(np.multiply, map(self._atom, factors))
            case FloorDiv(a, b):
                divisor = self.of(b).array
                quotient = self.of(a).array // np.where(divisor == 0, 1, divisor)
                return np.where(divisor == 0, 0, quotient)
            case Mod(a, b):
                divisor = self.of(b).array
                rest = self.of(a).array % np.where(divisor == 0, 1, divisor)
                return np.where(divisor == 0, 0, rest)
            case Min(args):
                return reduce(np.minimum, (self.of(x).array for x in args))
            case Max(args):
                return reduce(np.maximum, (self.of(x).array for x in args))
            case Choose(c, a, b):
                return np.where(self.holds(c), self.of(a).array, self.of(b).array)
            case _:
                assert_never(atom)
