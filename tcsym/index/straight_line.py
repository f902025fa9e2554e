# SPDX-License-Identifier: Apache-2.0
"""Straight-line programs: numbers computed from a few variables, each common part once.

What a plan takes is a sum of such numbers in the sizes of a call. The same program is evaluated
here, at many choices of sizes at once, and by compiled code at those of a call. Numbers are
doubles: integers below 2**53 are exact, their quotients too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tcsym.index.expr import Index
from tcsym.index.fold import Fold

(ADD, MULTIPLY, QUOTIENT, LEAST, GREATEST, CHOOSE, NON_NEGATIVE, IS_ZERO) = range(8)
OPERATORS = ("+", "*", "/", "min", "max", "choose", ">= 0", "== 0")
Number = float | tuple[float, ...]  # or several side by side
Numbers = NDArray[np.float64]
Step = tuple[int, int, int, int]  # an operator and the places of its operands


class StraightLine(Struct, frozen=True):
    """Places are counted through variables, constants and steps. Truths are 1 and 0; a quotient is
    rounded towards minus infinity, and 0 where the divisor is."""

    variables: tuple[str, ...]
    constants: tuple[Number, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def evaluate(self, values: Mapping[str, Any]) -> list[Numbers]:
        """The results, for columns of values: shaped (n, 1), or (n, how many numbers each is)."""
        found = [_column(values[name]) for name in self.variables]
        found += [np.atleast_1d(np.array(c, np.float64))[None] for c in self.constants]
        for operator, a, b, c in self.steps:
            found.append(_MEANING[operator](found[a], found[b], found[c]))
        return [found[k] for k in self.results]

    def at(self, values: Mapping[str, int]) -> list[float]:
        """The results for one value of each variable."""
        found = [float(values[name]) for name in self.variables]
        for x in self.constants:
            assert isinstance(x, float)
            found.append(x)
        for operator, a, b, c in self.steps:
            found.append(_OF_ONE[operator](found[a], found[b], found[c]))
        return [found[k] for k in self.results]


def joined(programs: Sequence[StraightLine]) -> StraightLine:
    """One program with the results of all, one after the other."""
    variables = tuple(dict.fromkeys(v for p in programs for v in p.variables))
    constants = tuple(dict.fromkeys(c for p in programs for c in p.constants))
    places = {x: k for k, x in enumerate((*variables, *constants))}
    steps, results = list[Step](), list[int]()
    for p in programs:
        at = [places[x] for x in (*p.variables, *p.constants)]
        for operator, a, b, c in p.steps:
            steps.append((operator, at[a], at[b], at[c]))
            at.append(len(places) + len(steps) - 1)
        results += [at[k] for k in p.results]
    return StraightLine(variables, constants, tuple(steps), tuple(results))


def of_multiples(program: StraightLine, sizes: Mapping[str, tuple[str, int]]) -> StraightLine:
    """The program of sizes, from one of their quotients: each the size and its divisor."""
    divided = [k for k, v in enumerate(program.variables) if v in sizes]
    divisors = [float(sizes[program.variables[k]][1]) for k in divided]
    n, first = len(program.variables), len(program.variables) + len(program.constants)
    start = first + len(divided)
    moved = {k: start + d for d, k in enumerate(divided)}
    quotients = [(QUOTIENT, k, first + d, k) for d, k in enumerate(divided)]

    def at(k: int) -> int:
        return moved.get(k, k) if k < n else k if k < first else k + 2 * len(divided)

    return StraightLine(
        tuple(sizes[v][0] if v in sizes else v for v in program.variables),
        (*program.constants, *divisors),
        (*quotients, *((o, at(a), at(b), at(c)) for o, a, b, c in program.steps)),
        tuple(map(at, program.results)),
    )


def _column(values: Any) -> Numbers:
    return np.asarray(values, np.float64).reshape(-1, 1)


def _quotient(a: Any, b: Any) -> Any:
    return np.where(b == 0, 0.0, np.floor(a / np.where(b == 0, 1.0, b)))


_MEANING: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda a, b, _: a + b,
    lambda a, b, _: a * b,
    lambda a, b, _: _quotient(a, b),
    lambda a, b, _: np.minimum(a, b),
    lambda a, b, _: np.maximum(a, b),
    lambda a, b, c: np.where(a != 0, b, c),
    lambda a, b, _: (a >= 0) * 1.0,
    lambda a, b, _: (a == 0) * 1.0,
)


_OF_ONE: tuple[Callable[[float, float, float], float], ...] = (
    lambda a, b, _: a + b,
    lambda a, b, _: a * b,
    lambda a, b, _: 0.0 if b == 0 else float(math.floor(a / b)),
    lambda a, b, _: min(a, b),
    lambda a, b, _: max(a, b),
    lambda a, b, c: b if a else c,
    lambda a, b, _: float(a >= 0),
    lambda a, b, _: float(a == 0),
)


class Writer:
    """A program being written, and its values at samples of the variables: columns of equal length.

    What has equal values at all samples counts as equal: it is written once, as a constant if it
    never changes. (Gulwani, Necula: Global value numbering using random interpretation, 2004.) So
    the columns are exact, and the program is wrong elsewhere as far as the samples lack a case.
    """

    def __init__(self, samples: Mapping[str, Any]) -> None:
        self.columns = list[Numbers]()
        self.variables = dict[str, int]()
        self._keys = list[str | Step | None]()  # None: a constant
        self._known = dict[bytes, int]()
        self._steps = dict[Step, int]()
        self._constants = dict[float, int]()
        for name, values in samples.items():
            self.variables[name] = self._part(name, np.asarray(values, np.float64).reshape(-1, 1))

    def constant(self, value: float | Numbers) -> int:
        if isinstance(value, np.ndarray):
            return self._part(None, np.array(value, np.float64)[None])
        if value not in self._constants:
            self._constants[value] = self._part(None, np.array([[value]], np.float64))
        return self._constants[value]

    def value(self, part: int) -> float | None:
        """Of what is always the same number."""
        column = self.columns[part]
        return float(column[0, 0]) if column.shape == (1, 1) else None

    def add(self, a: int, b: int) -> int:
        return self._step(ADD, a, b, a)

    def less(self, a: int, b: int) -> int:
        """a - b"""
        return self.add(a, self.multiply(self.constant(-1), b))

    def multiply(self, a: int, b: int) -> int:
        return self._step(MULTIPLY, a, b, a)

    def quotient(self, a: int, b: int) -> int:
        return self._step(QUOTIENT, a, b, a)

    def least(self, a: int, b: int) -> int:
        return self._step(LEAST, a, b, a)

    def greatest(self, a: int, b: int) -> int:
        return self._step(GREATEST, a, b, a)

    def choose(self, truth: int, a: int, b: int) -> int:
        return self._step(CHOOSE, truth, a, b)

    def non_negative(self, a: int) -> int:
        return self._step(NON_NEGATIVE, a, a, a)

    def is_zero(self, a: int) -> int:
        return self._step(IS_ZERO, a, a, a)

    def written(self, results: Sequence[int]) -> StraightLine:
        """The program of these parts, and of what they need."""
        used = set(results)
        for part in range(len(self._keys) - 1, -1, -1):
            key = self._keys[part]
            if part in used and isinstance(key, tuple):
                used.update(key[1:])
        parts = sorted(used)
        variables = [(p, k) for p in parts if isinstance(k := self._keys[p], str)]
        constants = [p for p in parts if self._keys[p] is None]
        steps = [(p, k) for p in parts if isinstance(k := self._keys[p], tuple)]
        order = (*(p for p, _ in variables), *constants, *(p for p, _ in steps))
        at = {part: place for place, part in enumerate(order)}
        rows = (self.columns[p][0] for p in constants)
        return StraightLine(
            tuple(name for _, name in variables),
            tuple(float(r[0]) if len(r) == 1 else tuple(r.tolist()) for r in rows),
            tuple((operator, at[a], at[b], at[c]) for _, (operator, a, b, c) in steps),
            tuple(at[p] for p in results),
        )

    def _step(self, operator: int, a: int, b: int, c: int) -> int:
        step = operator, a, b, c
        known = self._steps.get(step)
        if known is None:
            column = _MEANING[operator](self.columns[a], self.columns[b], self.columns[c])
            known = self._steps[step] = self._part(step, column)
        return known

    def _part(self, key: str | Step | None, column: Numbers) -> int:
        text = column.tobytes()
        if len(column) > 1 and text == text[: len(text) // len(column)] * len(column):
            key, column, text = None, column[:1], text[: len(text) // len(column)]
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = len(self._keys)
            self._keys.append(key)
            self.columns.append(column)
        return known


class Written(Fold[int, int]):
    """Index expressions and conditions as parts of a program, where variables are such parts.

    Expressions of the same parts are written once, in any scope.
    """

    def __init__(
        self,
        writer: Writer,
        parts: Mapping[str, int],
        made: dict[tuple[object, ...], int] | None = None,
    ) -> None:
        self.writer = writer
        self._parts = parts
        self._made = {} if made is None else made

    def with_variable(self, name: str, part: int) -> Written:
        return Written(self.writer, {**self._parts, name: part}, self._made)

    def know(self, names: frozenset[str]) -> bool:
        return names <= self._parts.keys()

    def parts_of(self, names: Iterable[str]) -> tuple[int | None, ...]:
        """What stands for these variables here: a key."""
        return tuple([self._parts.get(n) for n in names])

    def index(self, e: Index) -> int:
        """KeyError for a variable that is not known."""
        key = (e, *self.parts_of(e.variables()))
        if key not in self._made:
            self._made[key] = super().index(e)
        return self._made[key]

    def variable(self, name: str) -> int:
        return self._parts[name]

    def total(self, terms: Sequence[tuple[int, int]], constant: int) -> int:
        w = self.writer
        parts = (w.multiply(w.constant(c), a) for a, c in terms)
        return reduce(w.add, parts, w.constant(constant))

    def product(self, factors: Sequence[int]) -> int:
        return reduce(self.writer.multiply, factors)

    def quotient(self, a: int, b: int) -> int:
        return self.writer.quotient(a, b)

    def remainder(self, a: int, b: int) -> int:
        w = self.writer
        whole = w.multiply(b, w.quotient(a, b))
        rest = w.less(a, whole)
        return w.choose(w.is_zero(b), w.constant(0), rest)

    def minimum(self, args: Sequence[int]) -> int:
        return reduce(self.writer.least, args)

    def maximum(self, args: Sequence[int]) -> int:
        return reduce(self.writer.greatest, args)

    def choose(self, c: int, a: int, b: int) -> int:
        return self.writer.choose(c, a, b)

    def nonnegative(self, value: int) -> int:
        return self.writer.non_negative(value)

    def zero(self, value: int) -> int:
        return self.writer.is_zero(value)

    def negation(self, truth: int) -> int:
        return self.writer.is_zero(truth)

    def every(self, truths: Iterator[int]) -> int:
        return reduce(self.writer.multiply, truths, self.writer.constant(1))

    def some(self, truths: Iterator[int]) -> int:
        return reduce(self.writer.greatest, truths, self.writer.constant(0))
