# SPDX-License-Identifier: Apache-2.0
"""The Pygments lexer against the grammar: on every text of the package and its pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.token import Comment, Error, Keyword, Name, Operator, Whitespace

from tcsym import library
from tcsym.builtins import ARITY
from tcsym.display.lexer import TcLexer
from tcsym.frontend.names import RESERVED
from tcsym.frontend.parser import _grammar
from tcsym.types import NAMES
from tests.pages import blocks_of

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def texts() -> Iterator[tuple[str, str]]:
    for name in library.names():
        yield name, library.source(name)
    for page in sorted(DOCS.glob("*.md")):
        for block in blocks_of(page.read_text()):
            if block.language == "tc":
                yield f"{page.name}:{block.line}", block.text


TEXTS = dict(texts())


def tokens_of(text: str) -> list[tuple[object, str]]:
    return list(TcLexer(stripnl=False, ensurenl=False).get_tokens(text))


def test_there_are_texts() -> None:
    assert len(TEXTS) > 150 and any(name.startswith("gallery.md") for name in TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_tokens_are_those_of_the_grammar(name: str) -> None:
    text = TEXTS[name]
    found = tokens_of(text)
    assert "".join(value for _, value in found) == text
    assert not [value for kind, value in found if kind is Error]
    ours = [v for kind, v in found if kind not in Whitespace and kind not in Comment]
    assert ours == [str(token) for token in _grammar().lex(text)]


def test_words_have_kinds() -> None:
    kinds = {v: k for k, v in tokens_of("def f(float(N) exp_) -> (O) { O(i) +=! exp(1) }")}
    assert kinds["def"] is Keyword and kinds["f"] is Name.Function
    assert kinds["float"] is Keyword.Type and kinds["exp"] is Name.Builtin
    assert kinds["exp_"] is Name and kinds["+=!"] is Operator
    for word in (*RESERVED, *NAMES):
        assert tokens_of(f"{word} (")[0][0] not in (Name, Error), word
    for name in ARITY:
        assert tokens_of(f"{name}(x)")[0][0] is Name.Builtin
        assert tokens_of(f"{name} + x")[0][0] is Name


@pytest.mark.parametrize("text", ["$", "é", "'", "@", "[", ";"])
def test_other_characters_are_errors(text: str) -> None:
    assert [kind for kind, _ in tokens_of(f"def f{text}")][-1] is Error


def test_pygments_finds_it() -> None:
    assert isinstance(get_lexer_by_name("tc"), TcLexer)
    assert isinstance(get_lexer_by_name("tcsym"), TcLexer)
    assert isinstance(get_lexer_for_filename("mm.tc"), TcLexer)
