# SPDX-License-Identifier: Apache-2.0
"""Text -> index expressions and conditions over sizes, as they print."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from tcsym.index.expr import (
    FALSE,
    TRUE,
    Condition,
    Index,
    all_of,
    any_of,
    eq,
    floordiv,
    ge,
    index,
    maximum,
    minimum,
    mod,
    negate,
    var,
)

MOST_NESTED = 64


class Wrong(Exception):
    """Of a text, from `at` on, `length` long."""

    def __init__(self, message: str, at: int, length: int, hint: str = "") -> None:
        super().__init__(message)
        self.at, self.length, self.hint = at, length, hint


def index_of(text: str) -> Index:
    """Raises `Wrong`."""
    value = _Reader(text, _tokens(text)).whole()
    if not isinstance(value, Index):
        raise Wrong(f"`{text}` is no number", 0, max(1, len(text)))
    return value


def condition_of(text: str) -> Condition:
    """Raises `Wrong`."""
    value = _Reader(text, _tokens(text)).whole()
    if isinstance(value, Index):
        raise Wrong(f"`{text}` is no condition", 0, max(1, len(text)))
    return value


def _tokens(text: str) -> list[re.Match[str]]:
    if text.count("(") > MOST_NESTED:
        raise Wrong(f"more than {MOST_NESTED} parentheses", 0, len(text))
    return list(_TOKEN.finditer(text))


_TOKEN = re.compile(r"\d+|[A-Za-z_][\w.]*|<=|>=|==|!=|&&|\|\||\S")
_SUMS: Mapping[str, Callable[[Index, Index], Index]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Mapping[str, Callable[[Index, Index], Index]] = {
    "*": operator.mul,
    "/": floordiv,
    "%": mod,
}
_RELATIONS: Mapping[str, Callable[[Index, Index], Condition]] = {
    ">=": ge,
    "<=": lambda a, b: ge(b, a),
    ">": lambda a, b: ge(a, b + 1),
    "<": lambda a, b: ge(b, a + 1),
    "==": eq,
    "!=": lambda a, b: negate(eq(a, b)),
}
_TRUTHS: Mapping[str, Condition] = {"true": TRUE, "false": FALSE}
Value = Index | Condition


class _Reader(Struct):
    """k: of the next token."""

    text: str
    tokens: list[re.Match[str]]
    k: int = 0

    def whole(self) -> Value:
        value = self.any_()
        if self.k < len(self.tokens):
            self.wrong(f"`{self.next}` is not expected here")
        return value

    @property
    def next(self) -> str:
        return self.tokens[self.k].group() if self.k < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        """The next token, if it is one of these."""
        if self.next not in wanted or not self.next:
            return ""
        self.k += 1
        return self.tokens[self.k - 1].group()

    def wrong(self, message: str) -> None:
        if self.k < len(self.tokens):
            token = self.tokens[self.k]
            raise Wrong(message, token.start(), len(token.group()))
        raise Wrong(f"`{self.text}` ends too early", 0, max(1, len(self.text)))

    def any_(self) -> Value:
        parts = [self.all_()]
        while self.take("||"):
            parts.append(self.all_())
        return parts[0] if len(parts) == 1 else any_of(map(self.condition, parts))

    def all_(self) -> Value:
        parts = [self.relation()]
        while self.take("&&"):
            parts.append(self.relation())
        return parts[0] if len(parts) == 1 else all_of(map(self.condition, parts))

    def relation(self) -> Value:
        if self.take("!"):
            return negate(self.condition(self.atom()))
        left = self.chain(_SUMS, lambda: self.chain(_PRODUCTS, self.sign))
        relation = self.take(*_RELATIONS)
        if not relation:
            return left
        right = self.chain(_SUMS, lambda: self.chain(_PRODUCTS, self.sign))
        return _RELATIONS[relation](self.index(left), self.index(right))

    def chain(
        self, operators: Mapping[str, Callable[[Index, Index], Index]], part: Callable[[], Value]
    ) -> Value:
        value = part()
        while found := self.take(*operators):
            left, right = self.index(value), self.index(part())
            if found in "/%" and right == index(0):
                raise Wrong("a division by 0", 0, len(self.text))
            value = operators[found](left, right)
        return value

    def sign(self) -> Value:
        is_negative = False
        while self.take("-"):
            is_negative = not is_negative
        return -self.index(self.atom()) if is_negative else self.atom()

    def atom(self) -> Value:
        if self.take("("):
            value = self.any_()
            self.closed()
            return value
        word = self.next
        if word.isdecimal():
            self.k += 1
            return index(int(word))
        if not (word[:1].isalpha() or word[:1] == "_"):
            self.wrong(f"`{word}` is not expected here")
        self.k += 1
        if word in ("min", "max") and self.take("("):
            parts = [self.index(self.any_())]
            while self.take(","):
                parts.append(self.index(self.any_()))
            self.closed()
            return (minimum if word == "min" else maximum)(*parts)
        return _TRUTHS.get(word) or var(word)

    def closed(self) -> None:
        if not self.take(")"):
            self.wrong(f"`{self.next}` instead of `)`")

    def index(self, x: Value) -> Index:
        if not isinstance(x, Index):
            raise Wrong(f"a condition in a number: `{self.text}`", 0, len(self.text))
        return x

    def condition(self, x: Value) -> Condition:
        if isinstance(x, Index):
            raise Wrong(f"a number in a condition: `{self.text}`", 0, len(self.text))
        return x
