"""Text -> tokens, by the lexer tables of grammar.json; lazily: errors come in text order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tcsym.errors import Span, TCSyntaxError
from tcsym.records import dataclass


class Token(str):
    """The text of one token, with its terminal (`kind`) and place; `end` is an offset."""

    __slots__ = ("column", "end", "kind", "line")

    kind: str
    line: int
    column: int
    end: int

    @property
    def span(self) -> Span:
        return Span(self.line, self.column, len(self))


def token(kind: str, text: str, line: int = 1, column: int = 1, end: int = 0) -> Token:
    made = Token(text)
    made.kind, made.line, made.column, made.end = kind, line, column, end
    return made


@dataclass(frozen=True, slots=True)
class LexerTables:
    """`pattern`: every terminal as a named group, in order of trial. `keywords`: texts of these
    groups that are terminals of their own."""

    pattern: re.Pattern[str]
    keywords: Mapping[str, Mapping[str, str]]
    ignored: frozenset[str]


def tokens(text: str, tables: LexerTables) -> Iterator[Token]:
    """All tokens of `text`; TCSyntaxError (without source) at a character that begins none."""
    match, keywords, ignored = tables.pattern.match, tables.keywords, tables.ignored
    at, line, line_start, end = 0, 1, 0, len(text)
    while at < end:
        found = match(text, at)
        if found is None:
            raise _unexpected(text[at], Span(line, at - line_start + 1))
        kind, word = found.lastgroup or "", found.group()
        start, at = at, found.end()
        if kind not in ignored:
            kind = keywords.get(kind, {}).get(word, kind)
            yield token(kind, word, line, start - line_start + 1, at)
        elif "\n" in word:
            line += word.count("\n")
            line_start = start + word.rindex("\n") + 1


# What these characters mean elsewhere, and how it is said here.
_INSTEAD = {
    "[": "shapes and subscripts stand in parentheses: `A(i,j)`",
    ";": "statements need no separator",
    "^": "write `pow(a, b)`, or `a * a`",
    "@": "write the sum: `C(i,j) +=! A(i,k) * B(k,j)`",
    "'": "there are no strings",
    '"': "there are no strings",
}


def _unexpected(character: str, span: Span) -> TCSyntaxError:
    shown = f"`{character}`" if character.isprintable() else f"U+{ord(character):04X}"
    hint = _INSTEAD.get(character, "")
    return TCSyntaxError(f"unexpected character {shown}", span=span, hint=hint)
