# SPDX-License-Identifier: Apache-2.0
"""Conditions on positions that data know -> truth here: an i1, or a mask.

Positions are registers, whatever they were computed from; all else is as index code has it. They
lie inside of a tensor where it matters, so that nothing wraps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tcsym.codegen.scalar.arithmetic import floor_divide, floor_modulo
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.index_code import Number, add, alike, multiply, number, smallest
from tcsym.codegen.scalar.values import Val
from tcsym.index.expr import Atom, Condition, Index, of_atom
from tcsym.index.fold import Fold


def condition_at(context: Context, c: Condition, positions: Mapping[str, Val]) -> Val:
    """Truth of `c`, in which names stand for `positions`."""
    return _AtPositions(context, positions).condition(c)


class _AtPositions(Fold[Number, Val]):
    def __init__(self, context: Context, positions: Mapping[str, Val]) -> None:
        self.context, self.code, self.positions = context, context.code, positions

    def index(self, e: Index) -> Number:
        return super().index(e) if self._has(e) else number(self.context, e)

    def atom(self, atom: Atom) -> Number:
        e = of_atom(atom)
        return super().atom(atom) if self._has(e) else number(self.context, e)

    def _has(self, e: Index) -> bool:
        return not e.variables().isdisjoint(self.positions)

    def variable(self, name: str) -> Number:
        return self.positions[name]

    def total(self, terms: Sequence[tuple[Number, int]], constant: int) -> Number:
        found: Number = constant
        for value, factor in terms:
            found = add(self.code, found, multiply(self.code, value, factor))
        return found

    def product(self, factors: Sequence[Number]) -> Number:
        found: Number = 1
        for value in factors:
            found = multiply(self.code, found, value)
        return found

    def quotient(self, a: Number, b: Number) -> Number:
        return floor_divide(self.code, *alike(self.code, a, b), True, None)

    def remainder(self, a: Number, b: Number) -> Number:
        return floor_modulo(self.code, *alike(self.code, a, b), True, None)

    def minimum(self, args: Sequence[Number]) -> Number:
        return self._extremum(args, "smin")

    def maximum(self, args: Sequence[Number]) -> Number:
        return self._extremum(args, "smax")

    def _extremum(self, args: Sequence[Number], op: str) -> Number:
        found, *others = args
        for value in others:
            found = smallest(self.code, found, value, op)
        return found

    def choose(self, c: Val, a: Number, b: Number) -> Number:
        return self.code.select(c, *alike(self.code, a, b))

    def nonnegative(self, value: Number) -> Val:
        return self.code.compare("icmp sge", *alike(self.code, value, 0))

    def zero(self, value: Number) -> Val:
        return self.code.compare("icmp eq", *alike(self.code, value, 0))

    def negation(self, truth: Val) -> Val:
        return self.code.not_(truth)

    def every(self, truths: Iterator[Val]) -> Val:
        return self._joined(truths, "and")

    def some(self, truths: Iterator[Val]) -> Val:
        return self._joined(truths, "or")

    def _joined(self, truths: Iterator[Val], op: str) -> Val:
        found = next(truths)
        for x in truths:
            found = self.code.binary(op, found, x)
        return found
