"""grammar.json is what lark makes of grammar.lark, and its tables parse as lark does."""

from __future__ import annotations

from typing import Any

import pytest

from tcsym.frontend.grammar_tables import GRAMMAR, TABLES, made_tables, tables, text_of
from tcsym.frontend.lalr import UnexpectedToken, accepted, run
from tcsym.frontend.tokens import Token, tokens
from tests.differential.corpus import CORPUS


def test_tables_are_those_of_the_grammar() -> None:
    assert text_of(TABLES) == made_tables(), "run python -m tcsym.frontend.grammar_tables"


class Trees:
    """Builds nested tuples: what was called with what."""

    def __getattr__(self, name: str) -> Any:
        return lambda *parts: (name, *map(_plain, parts))


def _plain(part: Any) -> Any:
    return (part.kind, str(part), part.line, part.column) if isinstance(part, Token) else part


def _lark_tree(node: Any) -> Any:
    from lark import Tree

    if isinstance(node, Tree):
        return (str(node.data), *map(_lark_tree, node.children))
    return node and (node.type, str(node), node.line, node.column)


def test_trees_are_those_of_lark() -> None:
    from lark import Lark

    lark = Lark(text_of(GRAMMAR), parser="lalr", lexer="basic", maybe_placeholders=True)
    lexer, parser = tables()
    for case in CORPUS.values():
        assert run(parser, tokens(case.source, lexer), Trees()) == _lark_tree(
            lark.parse(case.source)
        )


def test_keywords_are_not_names() -> None:
    lexer, _ = tables()
    found = [(t.kind, str(t), t.line, t.column, t.end) for t in tokens("if iff # if\n  in", lexer)]
    assert found == [("IF", "if", 1, 1, 2), ("NAME", "iff", 1, 4, 6), ("IN", "in", 2, 3, 16)]


@pytest.mark.parametrize(
    ("text", "kinds"),
    [("", {"DEF"}), ("def f(", {"RPAR", "SCALAR"}), ("def f(float", {"NAME", "LPAR"})],
)
def test_what_is_accepted_at_the_end(text: str, kinds: set[str]) -> None:
    lexer, parser = tables()
    with pytest.raises(UnexpectedToken) as caught:
        run(parser, tokens(text, lexer), Trees())
    assert accepted(parser, caught.value.states) == kinds


def test_long_texts_take_linear_time() -> None:
    lexer, parser = tables()
    text = "def f(float(N) A) -> (C) {" + "C(i) = A(i) " * 20_000 + "}"
    tree = run(parser, tokens(text, lexer), Trees())
    assert len(tree[1][-1]) == 20_001
