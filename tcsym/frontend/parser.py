"""Text -> syntax tree, by the LALR grammar in grammar.lark; syntax errors in words a user knows.

The tree is built while parsing (`build.TreeBuilder`), without recursion, so nesting costs no stack.
"""

from __future__ import annotations

from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING

from tcsym.errors import Span, TCSyntaxError
from tcsym.frontend import ast
from tcsym.frontend.limits import MAX_TEXT, Limits

if TYPE_CHECKING:
    from lark import Lark, Token, UnexpectedCharacters, UnexpectedToken


def parse(text: str, filename: str = "<tc>") -> ast.Module:
    """The defs of `text`; raises TCSyntaxError at the first unexpected token."""
    from lark import UnexpectedCharacters, UnexpectedToken

    try:
        defs = _parser().parse(text)
        if len(text) > MAX_TEXT:
            message = f"the text is longer than {MAX_TEXT} characters"
            raise TCSyntaxError(message, span=_end_of(text))
    except UnexpectedCharacters as e:
        raise _character_error(e, text).with_source(text, filename) from None
    except UnexpectedToken as e:
        raise _token_error(e, text).with_source(text, filename) from None
    except TCSyntaxError as e:
        raise e.with_source(text, filename) from None
    return ast.Module(tuple(defs), text, filename)  # type: ignore[arg-type]


@lru_cache(1)
def _parser() -> Lark:
    from importlib.resources import files

    from lark import Lark

    from tcsym.frontend.build import TreeBuilder

    grammar = files("tcsym.frontend").joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer="basic", postlex=Limits(), transformer=TreeBuilder())


# ---- errors


def _end_of(text: str) -> Span:
    """The place after the last character (LANGUAGE E8)."""
    line_start = text.rfind("\n") + 1
    return Span(text.count("\n") + 1, len(text) - line_start + 1)


def _character_error(e: UnexpectedCharacters, text: str) -> TCSyntaxError:
    character = text[e.pos_in_stream or 0]
    shown = f"`{character}`" if character.isprintable() else f"U+{ord(character):04X}"
    return TCSyntaxError(f"unexpected character {shown}", span=Span(e.line, e.column))


def _token_error(e: UnexpectedToken, text: str) -> TCSyntaxError:
    token: Token = e.token
    at_end = token.type == "$END"
    span = _end_of(text) if at_end else Span(token.line or 1, token.column or 1, len(token))
    found = "end of input" if at_end else _found(token)
    return TCSyntaxError(f"unexpected {found}, expected {_expected(_accepted(e))}", span=span)


def _accepted(e: UnexpectedToken) -> set[str]:
    """Terminals that can stand at the error: the candidates that the parser could shift."""
    from lark import Token, UnexpectedToken

    accepted = set()
    for terminal in e.expected:
        state = e.state.copy(deepcopy_values=False)
        state.parse_conf = copy(state.parse_conf)
        state.parse_conf.callbacks = {}
        try:
            state.feed_token(Token(terminal, ""), is_end=terminal == "$END")
        except UnexpectedToken:
            continue
        accepted.add(terminal)
    return accepted


def _found(token: Token) -> str:
    reserved = token.isidentifier() and token.type != "NAME"
    shown = token if len(token) <= 40 else token[:40] + "…"
    return f"reserved word `{shown}`" if reserved else f"`{shown}`"


_EXPRESSION_STARTS = {
    "NAME", "INTEGER", "FLOAT", "CONSTANT", "SCALAR", "MIN", "MAX", "LPAR", "MINUS", "NOT"
}  # fmt: skip
_OPERATORS = {"COMPARISON", "OR", "AND", "PLUS", "MINUS", "PRODUCT", "QMARK"}
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
