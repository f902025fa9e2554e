# SPDX-License-Identifier: Apache-2.0
"""Index expressions and tables -> C text: what of an artifact is a kernel's own.

Every operation becomes one variable, so nesting in an expression never becomes nesting in C.
Arithmetic is in 128 bits, and stays far away where it would leave these (`tables.h`): whatever the
sizes, no number is taken for a small one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from tcsym.index.expr import Condition, Index
from tcsym.index.fold import Fold


class Function(Fold[str, str]):
    """The body of a C function of `sizes`."""

    def __init__(self, sizes: Sequence[str]) -> None:
        self.places = {name: k for k, name in enumerate(sizes)}
        self.lines: list[str] = []
        self.known: dict[str, str] = {}

    def text(self, head: str) -> str:
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"{head} {{\n    (void)s;\n{body}}}\n"

    def named(self, value: str) -> str:
        """A variable that holds the value of an expression."""
        if value not in self.known:
            self.known[value] = f"t{len(self.known)}"
            self.lines.append(f"const wide {self.known[value]} = {value};")
        return self.known[value]

    def variable(self, name: str) -> str:
        return f"s[{self.places[name]}]"

    def total(self, terms: Sequence[tuple[str, int]], constant: int) -> str:
        parts = [self.times(value, _number(c)) if c != 1 else value for value, c in terms]
        parts += [_number(constant)] if constant or not parts else []
        return reduce(lambda a, b: self.named(f"sum({a}, {b})"), parts)

    def times(self, a: str, b: str) -> str:
        return self.named(f"product({a}, {b})")

    def product(self, factors: Sequence[str]) -> str:
        return reduce(self.times, factors)

    def quotient(self, a: str, b: str) -> str:
        return self.named(f"quotient({a}, {b})")

    def remainder(self, a: str, b: str) -> str:
        return self.named(f"remainder_of({a}, {b})")

    def minimum(self, args: Sequence[str]) -> str:
        return reduce(lambda a, b: self.named(f"{a} < {b} ? {a} : {b}"), map(self.named, args))

    def maximum(self, args: Sequence[str]) -> str:
        return reduce(lambda a, b: self.named(f"{a} > {b} ? {a} : {b}"), map(self.named, args))

    def choose(self, c: str, a: str, b: str) -> str:
        return self.named(f"{c} ? {a} : {b}")

    def nonnegative(self, value: str) -> str:
        return self.named(f"{value} >= 0")

    def zero(self, value: str) -> str:
        return self.named(f"{value} == 0")

    def negation(self, truth: str) -> str:
        return self.named(f"!{truth}")

    def every(self, truths: Iterator[str]) -> str:
        return reduce(lambda a, b: self.named(f"{a} && {b}"), truths, "1")

    def some(self, truths: Iterator[str]) -> str:
        return reduce(lambda a, b: self.named(f"{a} || {b}"), truths, "0")


def _number(n: int) -> str:
    """A literal, as near as C has one."""
    return f"(wide)INT64_C({max(-(2**63) + 1, min(n, 2**63 - 1))})"


def filling(name: str, values: Sequence[Index], sizes: Sequence[str], to: str) -> str:
    """`static void NAME(const int64_t *s, int64_t *TO)`: the values, one after the other."""
    f = Function(sizes)
    for k, e in enumerate(values):
        f.lines.append(f"{to}[{k}] = narrow({f.index(e)});")
    return f.text(f"static void {name}(const int64_t *s, int64_t *{to})")


def first_failing(name: str, conditions: Sequence[Condition], sizes: Sequence[str]) -> str:
    """`static int NAME(const int64_t *s)`: the first condition that does not hold, or -1."""
    f = Function(sizes)
    for k, condition in enumerate(conditions):
        f.lines.append(f"if (!({f.condition(condition)})) return {k};")
    f.lines.append("return -1;")
    return f.text(f"static int {name}(const int64_t *s)")


def holding(name: str, condition: Condition, sizes: Sequence[str]) -> str:
    """`static int NAME(const int64_t *s)`: whether it holds."""
    f = Function(sizes)
    f.lines.append(f"return (int)({f.condition(condition)});")
    return f.text(f"static int {name}(const int64_t *s)")


def string(text: str) -> str:
    """A C literal; what is not plain ASCII by its bytes in octal."""
    out = [
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()
    ]
    return f'"{"".join(out)}"'


def numbers(kind: str, name: str, values: Sequence[int]) -> str:
    """`static const KIND NAME[]`, with a 0 behind, so that it is never empty."""
    return f"static const {kind} {name}[] = {{{', '.join(map(str, [*values, 0]))}}};\n"
