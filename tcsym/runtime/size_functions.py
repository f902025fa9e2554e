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

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, assert_never

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


class _Code:
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

    def index(self, e: Index) -> str:
        parts = [self.scaled(atom, c) for atom, c in e.terms]
        if e.constant or not parts:
            parts.append(str(e.constant))
        return " + ".join(parts)

    def scaled(self, atom: Atom, coefficient: int) -> str:
        text = self.atom(atom)
        return text if coefficient == 1 else f"{coefficient}*{text}"

    def atom(self, atom: Atom) -> str:
        match atom:
            case str():
                return self.names[atom]
            case Product(factors):
                return self.named("*".join(map(self.atom, factors)))
            case FloorDiv(a, b):
                return self.divided("//", a, b)
            case Mod(a, b):
                return self.divided("%", a, b)
            case Min(args):
                return self.extremum("min", args)
            case Max(args):
                return self.extremum("max", args)
            case Choose(c, a, b):
                return self.named(f"{self.value(a)} if {self.condition(c)} else {self.value(b)}")
            case _:
                assert_never(atom)

    def value(self, e: Index) -> str:
        """A name or a number, usable in any place."""
        return str(e.constant) if e.is_constant else self.named(self.index(e))

    def divided(self, operator: str, a: Index, b: Index) -> str:
        dividend, divisor = self.value(a), self.value(b)
        known = b.as_int()
        text = f"{dividend} {operator} {divisor}"
        return self.named(text if known else f"{text} if {divisor} else 0")

    def extremum(self, function: str, args: tuple[Index, ...]) -> str:
        return self.named(f"{function}({', '.join(map(self.value, args))})")

    def condition(self, c: Condition) -> str:
        """A variable that holds the truth of `c`."""
        match c:
            case NonNegative(i):
                return self.named(f"{self.index(i)} >= 0")
            case IsZero(i):
                return self.named(f"{self.index(i)} == 0")
            case Not(inner):
                return self.named(f"not {self.condition(inner)}")
            case All(cs):
                return self.joined("and", "True", cs)
            case Any_(cs):
                return self.joined("or", "False", cs)
            case _:
                assert_never(c)

    def joined(self, operator: str, empty: str, conditions: tuple[Condition, ...]) -> str:
        names = [self.condition(c) for c in conditions] or [empty]
        return reduce(lambda a, b: self.named(f"{a} {operator} {b}"), names)
