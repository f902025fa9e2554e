# SPDX-License-Identifier: Apache-2.0
"""Text of a stage -> pieces with kinds, and these in colours on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, String

from tcsym.display.lexer import LoopLexer, PlanLexer, TcLexer

if TYPE_CHECKING:
    from rich.text import Text

Piece = tuple[str, str]  # kind, text

# The first that a token lies in: its kind, and the kind's colour on terminals of any background.
_KINDS: tuple[tuple[Any, str], ...] = (
    (Comment, "c"),
    (Keyword.Type, "t"),
    (Keyword, "k"),
    (Name.Function, "f"),
    (Name.Builtin, "b"),
    (Name.Variable, "v"),
    (Name.Label, "f"),
    (Number, "n"),
    (String, "n"),
)
_COLOURS = {
    "c": "bright_black",
    "t": "green",
    "k": "magenta",
    "f": "bold blue",
    "b": "cyan",
    "v": "yellow",
    "n": "blue",
}
_LEXERS = {  # of stages that are no loops; the others are words
    "llvm": "llvm",
    "asm": "gas",
    "cuda": "c++",
    "ptx": "ptx",
    "options": "json",
    "sass": "text",
    "variants": "text",
}
_OURS = {"syntax": TcLexer, "source": TcLexer, "plan": PlanLexer}


def pieces(text: str, stage: str) -> Iterator[Piece]:
    """All of the text in order, each piece with its kind: a letter, or nothing."""
    keep = {"stripnl": False, "ensurenl": False}
    if stage in _LEXERS:
        lexer = get_lexer_by_name(_LEXERS[stage], **keep)
    else:
        lexer = _OURS.get(stage, LoopLexer)(**keep)
    for token, piece in lexer.get_tokens(text):
        yield next((kind for of, kind in _KINDS if token in of), ""), piece


def rows(text: str, stage: str) -> list[list[Piece]]:
    """The pieces of each line, without its end."""
    found: list[list[Piece]] = [[]]
    for kind, piece in pieces(text, stage):
        first, *others = piece.split("\n")
        found[-1] += [(kind, first)] if first else []
        found += [[(kind, other)] if other else [] for other in others]
    return found[:-1] if text.endswith("\n") else found


def coloured(text: str, stage: str) -> Text:
    """For rich."""
    from rich.text import Text

    made = Text(no_wrap=True, overflow="ignore")
    for kind, piece in pieces(text, stage):
        made.append(piece, _COLOURS.get(kind))
    return made


def for_terminal(text: str, stage: str) -> str:
    """In colours where standard output is a terminal that shows them, else plain."""
    from rich.console import Console

    console = Console(force_jupyter=False, soft_wrap=True, highlight=False)
    if not console.is_terminal or console.no_color or console.color_system is None:
        return str(text)
    with console.capture() as written:
        console.print(coloured(text, stage), end="")
    return written.get()
