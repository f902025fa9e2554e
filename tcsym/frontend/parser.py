# SPDX-License-Identifier: Apache-2.0
"""Text -> syntax tree, by lark and the LALR grammar in grammar.lark; syntax errors in plain words.

The tree is built while parsing (`build.TreeBuilder`), without recursion, so nesting costs no stack.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import Lark, Token, UnexpectedCharacters, UnexpectedToken

from tcsym.errors import Span, TCSyntaxError
from tcsym.frontend import ast
from tcsym.frontend.build import TreeBuilder
from tcsym.frontend.limits import BIT_OPERATORS, MAX_TEXT, within_limits
from tcsym.frontend.syntax_hints import FILE_HINT, character_hint, is_file_name, token_hint
from tcsym.frontend.tokens import span_of, unexpected_character

END = "$END"


@lru_cache(1)
def _grammar() -> Lark:
    text = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", lexer="basic", transformer=TreeBuilder())


def parse(text: str, filename: str = "<tc>") -> ast.Module:
    """The defs of `text`; raises TCSyntaxError at the first unexpected token."""
    parser: Any = _grammar().parse_interactive(text)
    try:
        for _ in within_limits(parser.iter_parse()):  # each token is looked at before it is parsed
            pass
        defs: tuple[ast.Def, ...] = parser.feed_eof()
        if len(text) > MAX_TEXT:
            message = f"the text is longer than {MAX_TEXT} characters"
            raise TCSyntaxError(message, span=_end_of(text))
    except UnexpectedCharacters as e:
        error = _character_error(text, e.pos_in_stream or 0, Span(e.line, e.column))
        raise error.with_source(text, filename) from None
    except UnexpectedToken as e:
        error = _token_error(e.token, parser.accepts(), text)
        raise error.with_source(text, filename) from None
    except TCSyntaxError as e:
        raise e.with_source(text, filename) from None
    return ast.Module(defs, text, filename)


# ---- errors


def _end_of(text: str) -> Span:
    """The place after the last character (LANGUAGE E8)."""
    line_start = text.rfind("\n") + 1
    return Span(text.count("\n") + 1, len(text) - line_start + 1)


def _character_error(text: str, at: int, span: Span) -> TCSyntaxError:
    hint = FILE_HINT.format(text.strip()) if is_file_name(text) else ""
    hint = hint or character_hint(text[at], text[:at], text[at:])
    return unexpected_character(text[at], span, hint)


def _token_error(token: Token, expected: set[str], text: str) -> TCSyntaxError:
    at_end = token.type == END
    span = _end_of(text) if at_end else span_of(token)
    found = "end of input" if at_end else _found(token)
    before = "" if at_end else text[: token.start_pos].rstrip()
    hint = FILE_HINT.format(text.strip()) if is_file_name(text) else ""
    behind = "" if at_end else text[token.end_pos :].lstrip()
    hint = hint or token_hint(token, before, behind, expected)
    return TCSyntaxError(
        f"unexpected {found}, expected {_expected(expected)}", span=span, hint=hint
    )


def _found(token: Token) -> str:
    reserved = token.isidentifier() and token.type != "NAME"
    shown = token if len(token) <= 40 else token[:40] + "…"
    return f"reserved word `{shown}`" if reserved else f"`{shown}`"


_EXPRESSION_STARTS = {
    "NAME", "INTEGER", "FLOAT", "CONSTANT", "SCALAR", "MIN", "MAX", "LPAR", "MINUS", "NOT", "TILDE"
}  # fmt: skip
_OPERATORS = {
    "COMPARISON", "OR", "AND", "PLUS", "MINUS", "PRODUCT", "QMARK", *BIT_OPERATORS
}  # fmt: skip
_ASSIGNMENTS = {"EQUAL", "UPDATE"}
_GROUPS: tuple[tuple[set[str], str], ...] = (
    (_EXPRESSION_STARTS, "an expression"),
    (_OPERATORS, "an operator"),
    (_ASSIGNMENTS, "an assignment (`=`, `+=!`, …)"),
)
_WORDS = {
    "NAME": "an identifier",
    "INTEGER": "an integer",
    "FLOAT": "a number",
    "CONSTANT": "a constant",
    "SCALAR": "a type",
    "INOUT": "`inout`",
    "UPDATE": "an update (`+=`, `max=!`, …)",
    "COMPARISON": "a comparison",
    "PRODUCT": "`*`, `/` or `%`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "EQUAL": "`=`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "QMARK": "`?`",
    "EQUIVALENT": "`<=>`",
    "PLUS": "`+`",
    "MINUS": "`-`",
    "NOT": "`!`",
    "TILDE": "`~`",
    "SHIFT": "`<<` or `>>`",
    "BITAND": "`&`",
    "BITXOR": "`^`",
    "BITOR": "`|`",
    "OR": "`||`",
    "AND": "`&&`",
    "$END": "end of input",
}


def _expected(terminals: set[str]) -> str:
    """The terminals in words, the most telling first: `:` or `}` before operators."""
    groups = []
    for group, word in _GROUPS:
        if group <= terminals:
            groups.append(word)
            terminals = terminals - group
    arrow = {t for t in terminals if t.startswith("__ANON")}
    words = sorted(_WORDS.get(t, f"`{t.lower()}`") for t in terminals - arrow)
    words = ["`->`"] * bool(arrow) + words + groups
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]
