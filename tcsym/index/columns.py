# SPDX-License-Identifier: Apache-2.0
"""Index expressions and conditions at many choices of sizes: arrays in place of integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from tcsym.index.expr import Condition, Index
from tcsym.index.fold import Fold

Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]


class Column:
    """Values of one variable or expression, for each choice of sizes, or one for all of them.

    Equal if it is the same object: so what depends on columns can be looked up by them.
    """

    __slots__ = ("array",)

    def __init__(self, array: Integers) -> None:
        self.array = array


class Columns(Fold[Integers, Truths]):
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
        return self._kept((e, *self.of_names(e.variables())), lambda: super(Columns, self).index(e))

    def holds(self, c: Condition) -> Truths:
        return np.asarray(self.condition(c), np.bool_)

    def _kept(self, key: tuple[object, ...], make: Callable[[], Integers]) -> Column:
        if key not in self._made:
            self._made[key] = Column(make())
        return self._made[key]

    def index(self, e: Index) -> Integers:
        return self.of(e).array

    def variable(self, name: str) -> Integers:
        return self._columns[name].array

    def total(self, terms: Sequence[tuple[Integers, int]], constant: int) -> Integers:
        return reduce(np.add, (c * a for a, c in terms), np.full(1, constant, np.int64))

    def product(self, factors: Sequence[Integers]) -> Integers:
        return reduce(np.multiply, factors)

    def quotient(self, a: Integers, b: Integers) -> Integers:
        return np.where(b == 0, 0, a // np.where(b == 0, 1, b))

    def remainder(self, a: Integers, b: Integers) -> Integers:
        return np.where(b == 0, 0, a % np.where(b == 0, 1, b))

    def minimum(self, args: Sequence[Integers]) -> Integers:
        return reduce(np.minimum, args)

    def maximum(self, args: Sequence[Integers]) -> Integers:
        return reduce(np.maximum, args)

    def choose(self, c: Truths, a: Integers, b: Integers) -> Integers:
        return np.where(c, a, b)

    def nonnegative(self, value: Integers) -> Truths:
        return np.greater_equal(value, 0)

    def zero(self, value: Integers) -> Truths:
        return np.equal(value, 0)

    def negation(self, truth: Truths) -> Truths:
        return ~truth

    def every(self, truths: Iterator[Truths]) -> Truths:
        return reduce(np.logical_and, truths, np.ones(1, np.bool_))

    def some(self, truths: Iterator[Truths]) -> Truths:
        return reduce(np.logical_or, truths, np.zeros(1, np.bool_))
