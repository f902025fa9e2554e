# SPDX-License-Identifier: Apache-2.0
"""The language for Pygments (`tcsym`, `tc`, files `*.tc`), and the texts of `explain`.

Pygments finds `TcLexer` by an entry point, so that notebooks, Sphinx, MkDocs and `pygmentize`
colour texts where the package is installed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    Text,
    Whitespace,
)

from tcsym.builtins import ARITY
from tcsym.types import NAMES

_WORDS = ("def", "where", "exists", "in", "for", "if", "else", "inout", "size")
_FLOAT = r"([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


class TcLexer(RegexLexer):  # type: ignore[misc]
    """Texts that `tcsym.define` takes. What is no token of the language is an `Error`."""

    name = "tcsym"
    aliases = ("tcsym", "tc")
    filenames = ("*.tc",)
    mimetypes = ("text/x-tcsym",)
    url = ""
    version_added = ""

    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"[ \t\r\n]+", Whitespace),
            (r"#[^\n]*", Comment.Single),
            (rf"(def)([ \t\r\n]+)({_NAME})", bygroups(Keyword, Whitespace, Name.Function)),
            (words(sorted(NAMES), suffix=r"(?![A-Za-z0-9_])"), Keyword.Type),
            (words(("true", "false", "INFINITY", "NAN"), suffix=r"\b"), Keyword.Constant),
            (r"(\+|\*|min|max)=!?", Operator),
            (words(("min", "max"), suffix=r"\b"), Name.Builtin),
            (words(_WORDS, suffix=r"\b"), Keyword),
            (words(sorted(ARITY), suffix=r"(?=[ \t\r\n]*\()"), Name.Builtin),
            (_NAME, Name),
            (_FLOAT, Number.Float),
            (r"[0-9]+", Number.Integer),
            (r"<=>|->|<=|>=|==|!=|<<|>>|\|\||&&|[-+*/%<>=!~?:&|^]", Operator),
            (r"[(){},]", Punctuation),
        ]
    }


class LoopLexer(RegexLexer):  # type: ignore[misc]
    """Loops, schedules and plans as `explain` prints them."""

    name = "tcsym loops"
    aliases = ()
    filenames = ()
    url = ""
    version_added = ""

    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"#[^\n]*", Comment.Single),
            (r"\b(parallel|vector|unrolled)(?= \S+ (in|=) )", Keyword.Type),
            (
                r"\b(kernel|program|serial|reduction|if|else|in|by|mask|where|read|write|allocate"
                r"|transpose|verify|barrier|input|output|inout|temporary|argument|for)\b",
                Keyword,
            ),
            (words(sorted(NAMES), suffix=r"(?![A-Za-z0-9_])"), Keyword.Type),
            (words((*sorted(ARITY), "min", "max"), suffix=r"(?=\()"), Name.Builtin),
            (r"\$[0-9]+", Name.Variable),
            (r"[A-Za-z_][A-Za-z0-9_.]*", Name),
            (_FLOAT, Number.Float),
            (r"[0-9]+", Number.Integer),
            (r"[-+*/%<>=!~?:&|^]+", Operator),
            (r"[(){}\[\],;]", Punctuation),
            (r".", Text),
        ]
    }


class PlanLexer(RegexLexer):  # type: ignore[misc]
    """Plans: words, behind conditions."""

    name = "tcsym plans"
    aliases = ()
    filenames = ()
    url = ""
    version_added = ""

    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"#[^\n]*", Comment.Single),
            (r"(else if|if|else)(?= |:)", Keyword),
            (words(("min", "max"), suffix=r"(?=\()"), Name.Builtin),
            (r"[A-Za-z_][A-Za-z0-9_.]*", Name),
            (r"[0-9]+", Number.Integer),
            (r".", Text),
        ]
    }
