"""Text -> syntax tree, by the LALR grammar in grammar.lark; syntax errors in words a user knows.

The tree is built while parsing (`build.TreeBuilder`), without recursion, so nesting costs no stack.
"""

from __future__ import annotations

from tcsym.errors import Span, TCSyntaxError
from tcsym.frontend import ast
from tcsym.frontend.build import TreeBuilder
from tcsym.frontend.grammar_tables import tables
from tcsym.frontend.lalr import END, UnexpectedToken, accepted, run
from tcsym.frontend.limits import MAX_TEXT, within_limits
from tcsym.frontend.tokens import Token, tokens


def parse(text: str, filename: str = "<tc>") -> ast.Module:
    """The defs of `text`; raises TCSyntaxError at the first unexpected token."""
    lexer, parser = tables()
    try:
        defs = run(parser, within_limits(tokens(text, lexer)), TreeBuilder())
        if len(text) > MAX_TEXT:
            message = f"the text is longer than {MAX_TEXT} characters"
            raise TCSyntaxError(message, span=_end_of(text))
    except UnexpectedToken as e:
        expected = accepted(parser, e.states)
        raise _token_error(e.token, expected, text).with_source(text, filename) from None
    except TCSyntaxError as e:
        raise e.with_source(text, filename) from None
    return ast.Module(defs, text, filename)


# ---- errors


def _end_of(text: str) -> Span:
    """The place after the last character (LANGUAGE E8)."""
    line_start = text.rfind("\n") + 1
    return Span(text.count("\n") + 1, len(text) - line_start + 1)


def _token_error(token: Token, expected: set[str], text: str) -> TCSyntaxError:
    at_end = token.kind == END
    span = _end_of(text) if at_end else token.span
    found = "end of input" if at_end else _found(token)
    before = "" if at_end else text[: token.end - len(token)].rstrip()
    hint = _hint(token, before, expected)
    return TCSyntaxError(
        f"unexpected {found}, expected {_expected(expected)}", span=span, hint=hint
    )


def _hint(token: Token, before: str, expected: set[str]) -> str:
    """How to write what other languages write so; empty where that is not plain."""
    if before.endswith("->") and token.kind == "NAME":
        return f"outputs stand in parentheses: `-> ({token})`"
    if token == "int" and "SCALAR" in expected:
        return "integer types are `int32`, `int64`, `uint8` and so on"
    if token == "*" and before.endswith("*"):
        return "write `pow(a, b)`, or `a * a`"
    if token == "if" and "NAME" in expected and "LPAR" in expected and "MINUS" in expected:
        return "choose between values with `condition ? a : b`"
    if before.endswith(("let", "var", "auto", "const")) and token.kind == "NAME":
        return f"name a value behind the statement: `… where {token} = …`"
    return ""


def _found(token: Token) -> str:
    reserved = token.isidentifier() and token.kind != "NAME"
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
