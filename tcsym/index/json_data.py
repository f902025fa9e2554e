# SPDX-License-Identifier: Apache-2.0
"""Index expressions <-> JSON data, exactly: for manifests in the code cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

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
from tcsym.index.fold import Fold


class _Data(Fold[Any, Any]):
    """Plain lists: what it is, then its parts."""

    def variable(self, name: str) -> Any:
        return name

    def total(self, terms: Sequence[tuple[Any, int]], constant: int) -> Any:
        return [constant, *map(list, terms)]

    def product(self, factors: Sequence[Any]) -> Any:
        return ["*", *factors]

    def quotient(self, a: Any, b: Any) -> Any:
        return ["/", a, b]

    def remainder(self, a: Any, b: Any) -> Any:
        return ["%", a, b]

    def minimum(self, args: Sequence[Any]) -> Any:
        return ["min", *args]

    def maximum(self, args: Sequence[Any]) -> Any:
        return ["max", *args]

    def choose(self, c: Any, a: Any, b: Any) -> Any:
        return ["?", c, a, b]

    def nonnegative(self, value: Any) -> Any:
        return [">=", value]

    def zero(self, value: Any) -> Any:
        return ["==", value]

    def negation(self, truth: Any) -> Any:
        return ["!", truth]

    def every(self, truths: Iterator[Any]) -> Any:
        return ["&&", *truths]

    def some(self, truths: Iterator[Any]) -> Any:
        return ["||", *truths]


def to_json(e: Index) -> Any:
    """Plain lists, strings and integers; `from_json` is the inverse."""
    return _Data().index(e)


def condition_to_json(c: Condition) -> Any:
    return _Data().condition(c)


def from_json(data: Any) -> Index:
    return Index(tuple((_atom_from_json(a), c) for a, c in data[1:]), data[0])


def _atom_from_json(data: Any) -> Atom:
    if isinstance(data, str):
        return data
    tag, args = data[0], data[1:]
    if tag == "*":
        return Product(tuple(map(_atom_from_json, args)))
    if tag == "?":
        return Choose(condition_from_json(args[0]), from_json(args[1]), from_json(args[2]))
    parts = tuple(map(from_json, args))
    if tag == "/":
        return FloorDiv(*parts)
    if tag == "%":
        return Mod(*parts)
    return Min(parts) if tag == "min" else Max(parts)


def condition_from_json(data: Any) -> Condition:
    tag, args = data[0], data[1:]
    if tag == ">=":
        return NonNegative(from_json(args[0]))
    if tag == "==":
        return IsZero(from_json(args[0]))
    if tag == "!":
        return Not(condition_from_json(args[0]))
    parts = tuple(map(condition_from_json, args))
    return All(parts) if tag == "&&" else Any_(parts)
