# SPDX-License-Identifier: Apache-2.0
"""Tokens -> the same tokens: limits of the text and reserved words on the left (LANGUAGE E9).

Runs between lexer and parser, so that the first offence in text order is reported. What a token
opens or closes follows from the one before: after an operand a name begins a statement and `-` is
binary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from lark import Token
from msgspec import Struct, field

from tcsym.errors import TCSyntaxError
from tcsym.frontend.tokens import span_of

MAX_NESTING = 200
MAX_RANK = 32
MAX_TEXT = 1 << 20
MAX_DIGITS = 400
MAX_OPERATORS = 1000  # binary ones in a statement: `a+b+c+…` is as deep a tree as it is long

BIT_OPERATORS = frozenset({"SHIFT", "BITAND", "BITXOR", "BITOR"})
_OPERATORS = BIT_OPERATORS | {"COMPARISON", "OR", "AND", "PLUS", "MINUS", "PRODUCT", "QMARK"}
_OPERAND_ENDS = frozenset({"NAME", "INTEGER", "FLOAT", "CONSTANT", "RPAR"})


class Open(Enum):
    """What is open at a place of the text; the parentheses SHAPE and LEFT have a rank."""

    BRACE = auto()
    PAREN = auto()
    SHAPE = auto()
    LEFT = auto()
    PREFIX = auto()
    TERNARY = auto()
    OUTER_TERNARY = auto()
    ELSE_IF = auto()


_PARENS = (Open.PAREN, Open.SHAPE, Open.LEFT)
_EXPRESSION_PARTS = (Open.PREFIX, Open.TERNARY, Open.OUTER_TERNARY)


class _Nesting(Struct):
    """Open constructs, innermost last; `entries` of the innermost ranked parentheses.

    `operators`: of the statement, so far. `refused`: what its left side must not be, unless it is a
    call.
    """

    stack: list[Open] = field(default_factory=list)
    depth: int = 0
    entries: int = 0
    operators: int = 0
    refused: TCSyntaxError | None = None
    in_header: bool = False

    def push(self, what: Open, token: Token) -> None:
        self.stack.append(what)
        self.depth += what is not Open.OUTER_TERNARY
        if self.depth > MAX_NESTING:
            raise _error(token, f"nesting deeper than {MAX_NESTING}", "name parts with `where`")

    def pop_while(self, kinds: tuple[Open, ...]) -> None:
        while self.stack and self.stack[-1] in kinds:
            self.depth -= self.stack.pop() is not Open.OUTER_TERNARY

    def pop_one(self, kinds: tuple[Open, ...]) -> None:
        if self.stack and self.stack[-1] in kinds:
            self.stack.pop()
            self.depth -= 1

    @property
    def in_ternary(self) -> bool:
        for what in reversed(self.stack):
            if what in (Open.TERNARY, Open.OUTER_TERNARY):
                return True
            if what in (Open.BRACE, Open.ELSE_IF):
                return False
        return False


def within_limits(stream: Iterable[Token]) -> Iterator[Token]:
    """The tokens of `stream`; TCSyntaxError at the first that breaks a limit."""
    nesting = _Nesting()
    before = before_that = ""
    for token in stream:
        _check_size(token)
        _follow(nesting, token, before, before_that)
        before, before_that = token.type, before
        yield token


def _error(token: Token, message: str, hint: str = "") -> TCSyntaxError:
    return TCSyntaxError(message, span=span_of(token), hint=hint)


def _check_size(token: Token) -> None:
    if (token.end_pos or 0) > MAX_TEXT:
        raise _error(token, f"the text is longer than {MAX_TEXT} characters")
    if token.type in ("INTEGER", "FLOAT") and len(token) > MAX_DIGITS:
        digits = sum(c.isdigit() for c in token)
        if digits > MAX_DIGITS:
            raise _error(token, f"a number of {digits} digits; at most {MAX_DIGITS} are allowed")


def _follow(n: _Nesting, token: Token, before: str, before_that: str) -> None:
    """Update what is open by one token."""
    kind = token.type
    starts_statement = _starts_statement(kind, before, n.in_header)
    if before == "RBRACE" and kind != "ELSE":
        n.pop_while((Open.ELSE_IF,))
    if starts_statement or kind in ("COMMA", "RPAR", "LBRACE", "RBRACE", "WHERE", "FOR", "IF"):
        n.pop_while(_EXPRESSION_PARTS)
    elif before in _OPERAND_ENDS and kind != "LPAR":
        n.pop_while((Open.PREFIX,))
    _check_entry(n, token, before)
    _check_left(n, kind, starts_statement)
    _count_operator(n, token, before, starts_statement)
    match kind:
        case "DEF":
            n.in_header = True
        case "LPAR":
            n.entries = 0
            n.push(_parenthesis(n, before, before_that), token)
        case "RPAR":
            n.pop_one(_PARENS)
        case "LBRACE":
            n.in_header = False
            n.push(Open.BRACE, token)
        case "RBRACE":
            n.pop_one((Open.BRACE,))
        case "IF" if before == "ELSE":
            n.push(Open.ELSE_IF, token)
        case "MINUS" | "NOT" | "TILDE" if before not in _OPERAND_ENDS:
            n.push(Open.PREFIX, token)
        case "QMARK":
            n.push(Open.TERNARY if n.in_ternary else Open.OUTER_TERNARY, token)
        case _:
            pass


def _check_left(n: _Nesting, kind: str, starts_statement: bool) -> None:
    if starts_statement:
        n.refused = None
    elif n.refused is not None and kind in ("EQUAL", "UPDATE"):
        raise n.refused


def _count_operator(n: _Nesting, token: Token, before: str, starts_statement: bool) -> None:
    if starts_statement or token.type in ("LBRACE", "RBRACE"):
        n.operators = 0
    elif token.type in _OPERATORS and before in _OPERAND_ENDS:
        n.operators += 1
        if n.operators > MAX_OPERATORS:
            message = f"more than {MAX_OPERATORS} operators in one statement"
            raise _error(
                token, message, "compute parts of it in statements before, or sum over an index"
            )


def _starts_statement(kind: str, before: str, in_header: bool) -> bool:
    ended = before in _OPERAND_ENDS or before in ("LBRACE", "RBRACE")
    return kind == "NAME" and ended and not in_header


def _parenthesis(n: _Nesting, before: str, before_that: str) -> Open:
    if n.in_header:
        return Open.SHAPE if before == "SCALAR" else Open.PAREN
    if before == "NAME" and _starts_statement("NAME", before_that, False):
        return Open.LEFT
    return Open.PAREN


def _check_entry(n: _Nesting, token: Token, before: str) -> None:
    """Rank and reserved words in the innermost parentheses, at the first token of an entry."""
    top = n.stack[-1] if n.stack else None
    if top not in (Open.SHAPE, Open.LEFT) or before not in ("COMMA", "LPAR"):
        return
    if token.type == "RPAR":
        return
    n.entries += 1
    refused = None
    if n.entries > MAX_RANK:
        refused = _error(token, f"more than {MAX_RANK} dimensions")
    elif top is Open.LEFT and token.type == "CONSTANT":
        message = f"unexpected reserved word `{token}`, expected an index variable"
        refused = _error(token, message)
    if refused is not None and top is Open.SHAPE:
        raise refused
    n.refused = n.refused or refused
