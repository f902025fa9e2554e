# SPDX-License-Identifier: Apache-2.0
"""Conditions and extents over sizes -> one Python function: what a call computes about its sizes.

Walking `Index` trees costs microseconds a node; this turns them into straight-line Python once per
program. Every quotient, minimum or choice becomes one assignment, so nesting in the program never
becomes nesting in Python, and a common subexpression is computed once.

Example: extents `(N/2, N/2 + 1)` over sizes `("N",)` become
    def f(s0):
        t0 = s0 // 2
        return (t0, t0 + 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from tcsym.index.expr import Condition, Index
from tcsym.index.fold import Fold

Shape = tuple[int, ...]


def first_failing(conditions: Sequence[Condition], sizes: Sequence[str]) -> Callable[..., int]:
    """Function of the values of `sizes`: index of the first condition that does not hold, or -1."""
    code = _Code(sizes)
    for k, condition in enumerate(conditions):
        code.lines.append(f"if not {code.condition(condition)}: return {k}")
    code.lines.append("return -1")
    return code.function()


def first_holding(conditions: Sequence[Condition], sizes: Sequence[str]) -> Callable[..., int]:
    """Function of the values of `sizes`: index of the first condition that holds, or how many."""
    code = _Code(sizes)
    for k, condition in enumerate(conditions):
        code.lines.append(f"if {code.condition(condition)}: return {k}")
    code.lines.append(f"return {len(conditions)}")
    return code.function()


def shapes_of(
    shapes: Iterable[Sequence[Index]], sizes: Sequence[str]
) -> Callable[..., tuple[Shape, ...]]:
    """Function of the values of `sizes`: all `shapes`."""
    code = _Code(sizes)
    texts = [_tuple_text([code.index(extent) for extent in shape]) for shape in shapes]
    code.lines.append(f"return {_tuple_text(texts)}")
    return code.function()


def _tuple_text(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


class _Code(Fold[str, str]):
    """Body of the function being written; every `index`/`condition` gives a name or a short sum."""

    def __init__(self, sizes: Sequence[str]) -> None:
        self.parameters = [f"s{k}" for k in range(len(sizes))]
        self.names: Mapping[str, str] = dict(zip(sizes, self.parameters))
        self.lines: list[str] = []
        self.known: dict[str, str] = {}

    def function(self) -> Callable[..., Any]:
        body = "\n    ".join(self.lines)
        source = f"def f({', '.join(self.parameters)}):\n    {body}\n"
        namespace: dict[str, Any] = {}
        exec(compile(source, "<tcsym sizes>", "exec"), namespace)
        function: Callable[..., Any] = namespace["f"]
        return function

    def named(self, text: str) -> str:
        """A variable that holds the value of `text`."""
        if text not in self.known:
            self.known[text] = f"t{len(self.known)}"
            self.lines.append(f"{self.known[text]} = {text}")
        return self.known[text]

    def value(self, e: Index) -> str:
        """A name or a number, usable in any place."""
        return str(e.constant) if e.is_constant else self.placed(self.index(e))

    def placed(self, text: str) -> str:
        """A name or a number for the value of `text`."""
        return text if text.isalnum() else self.named(text)

    def variable(self, name: str) -> str:
        return self.names[name]

    def total(self, terms: Sequence[tuple[str, int]], constant: int) -> str:
        parts = [text if c == 1 else f"{c}*{text}" for text, c in terms]
        return " + ".join([*parts, str(constant)] if constant or not parts else parts)

    def product(self, factors: Sequence[str]) -> str:
        return self.named("*".join(factors))

    def quotient(self, a: str, b: str) -> str:
        return self.divided("//", a, b)

    def remainder(self, a: str, b: str) -> str:
        return self.divided("%", a, b)

    def divided(self, operator: str, a: str, b: str) -> str:
        divisor = self.placed(b)
        text = f"{self.placed(a)} {operator} {divisor}"
        is_known = divisor.isdigit() and divisor != "0"
        return self.named(text if is_known else f"{text} if {divisor} else 0")

    def minimum(self, args: Sequence[str]) -> str:
        return self.named(f"min({', '.join(map(self.placed, args))})")

    def maximum(self, args: Sequence[str]) -> str:
        return self.named(f"max({', '.join(map(self.placed, args))})")

    def choose(self, c: str, a: str, b: str) -> str:
        return self.named(f"{self.placed(a)} if {c} else {self.placed(b)}")

    def nonnegative(self, value: str) -> str:
        return self.named(f"{value} >= 0")

    def zero(self, value: str) -> str:
        return self.named(f"{value} == 0")

    def negation(self, truth: str) -> str:
        return self.named(f"not {truth}")

    def every(self, truths: Iterator[str]) -> str:
        return self.joined("and", list(truths) or ["True"])

    def some(self, truths: Iterator[str]) -> str:
        return self.joined("or", list(truths) or ["False"])

    def joined(self, operator: str, names: Sequence[str]) -> str:
        return reduce(lambda a, b: self.named(f"{a} {operator} {b}"), names)
