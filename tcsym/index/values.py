# SPDX-License-Identifier: Apache-2.0
"""Index expressions and conditions with values for variables: other expressions, or numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import mul

from tcsym.index.expr import (
    ONE,
    All,
    Atom,
    Condition,
    Index,
    all_of,
    any_of,
    choose,
    eq,
    floordiv,
    ge,
    maximum,
    minimum,
    mod,
    negate,
    of_atom,
    weighted_sum,
)
from tcsym.index.fold import Fold

Values = Mapping[str, Index]


class _Mapped(Fold[Index, Condition]):
    """Expressions of expressions, normalised again; `f` may have another for an atom.

    Atoms repeat theirs, by powers of two where loops are merged: each is looked at once.
    """

    def __init__(self, f: Callable[[Atom], Index | None]) -> None:
        self._f = f
        self._found = dict[Atom, Index]()

    def atom(self, atom: Atom) -> Index:
        known = self._found.get(atom)
        if known is None:
            found = self._f(atom)
            known = self._found[atom] = super().atom(atom) if found is None else found
        return known

    def variable(self, name: str) -> Index:
        return of_atom(name)

    def total(self, terms: Sequence[tuple[Index, int]], constant: int) -> Index:
        return weighted_sum(terms, constant)

    def product(self, factors: Sequence[Index]) -> Index:
        return reduce(lambda a, b: a * b, factors)

    def quotient(self, a: Index, b: Index) -> Index:
        return floordiv(a, b)

    def remainder(self, a: Index, b: Index) -> Index:
        return mod(a, b)

    def minimum(self, args: Sequence[Index]) -> Index:
        return minimum(*args)

    def maximum(self, args: Sequence[Index]) -> Index:
        return maximum(*args)

    def choose(self, c: Condition, a: Index, b: Index) -> Index:
        return choose(c, a, b)

    def nonnegative(self, value: Index) -> Condition:
        return ge(value, 0)

    def zero(self, value: Index) -> Condition:
        return eq(value, 0)

    def negation(self, truth: Condition) -> Condition:
        return negate(truth)

    def every(self, truths: Iterator[Condition]) -> Condition:
        return all_of(truths)

    def some(self, truths: Iterator[Condition]) -> Condition:
        return any_of(truths)


class _Compared(_Mapped):
    """As `_Mapped`, with a function of whole expressions."""

    def __init__(self, f: Callable[[Index], Index]) -> None:
        self._of_whole = f

    def index(self, e: Index) -> Index:
        return self._of_whole(e)


class Substitution(_Mapped):
    """Expressions with variables replaced, normalised again; of those without them as they are."""

    def __init__(self, values: Values) -> None:
        super().__init__(lambda atom: values.get(atom) if isinstance(atom, str) else None)
        self._values = values
        self._whole = dict[Index, Index]()

    def index(self, e: Index) -> Index:
        if not e.terms or self._values.keys().isdisjoint(e.variables()):
            return e
        known = self._whole.get(e)
        if known is None:
            # as `Fold.index` has it: a call less for each level
            known = weighted_sum([(self.atom(a), c) for a, c in e.terms], e.constant)
            self._whole[e] = known
        return known


def substitute(e: Index, values: Values) -> Index:
    """`e` with variables replaced, normalised again."""
    return Substitution(values).index(e)


def map_atoms(e: Index, f: Callable[[Atom], Index | None]) -> Index:
    """`e` with what `f` has for an atom in its place, normalised again; None: look inside."""
    return _Mapped(f).index(e)


def condition_substitute(c: Condition, values: Values) -> Condition:
    return map_condition(c, Substitution(values).index)


def map_condition(c: Condition, f: Callable[[Index], Index]) -> Condition:
    """`c` with `f` applied to every compared expression, normalised again."""
    return _Compared(f).condition(c)


class _Evaluated(Fold[int, bool]):
    """Numbers; of a choice only the side that is taken needs one."""

    def __init__(self, values: Mapping[str, int], found: dict[Index, int] | None) -> None:
        self._values = values
        self._found = {} if found is None else found

    def index(self, e: Index) -> int:
        value = self._found.get(e)
        if value is None:
            value = self._found[e] = super().index(e)
        return value

    def choice(self, c: Condition, a: Index, b: Index) -> int:
        return self.index(a if self.condition(c) else b)

    def variable(self, name: str) -> int:
        return self._values[name]

    def total(self, terms: Sequence[tuple[int, int]], constant: int) -> int:
        return constant + sum([c * value for value, c in terms])

    def product(self, factors: Sequence[int]) -> int:
        return math.prod(factors)

    def quotient(self, a: int, b: int) -> int:
        return a // b if b else 0

    def remainder(self, a: int, b: int) -> int:
        return a % b if b else 0

    def minimum(self, args: Sequence[int]) -> int:
        return min(args)

    def maximum(self, args: Sequence[int]) -> int:
        return max(args)

    def choose(self, c: bool, a: int, b: int) -> int:
        return a if c else b

    def nonnegative(self, value: int) -> bool:
        return value >= 0

    def zero(self, value: int) -> bool:
        return value == 0

    def negation(self, truth: bool) -> bool:
        return not truth

    def every(self, truths: Iterator[bool]) -> bool:
        return all(truths)

    def some(self, truths: Iterator[bool]) -> bool:
        return any(truths)


def evaluate(e: Index, values: Mapping[str, int], found: dict[Index, int] | None = None) -> int:
    """Exact value of `e`; KeyError for an unbound variable.

    found: parts that were evaluated before with the same values; expressions repeat theirs.
    """
    return _Evaluated(values, found).index(e)


def holds(c: Condition, values: Mapping[str, int], found: dict[Index, int] | None = None) -> bool:
    """Truth of `c`; conjunctions and disjunctions stop early. `found`: as in `evaluate`."""
    return _Evaluated(values, found).condition(c)


def product_of(factors: Iterable[Index]) -> Index:
    return reduce(mul, factors, ONE)


def conjuncts(c: Condition) -> tuple[Condition, ...]:
    """The conditions of which all must hold."""
    return c.conditions if isinstance(c, All) else (c,)
