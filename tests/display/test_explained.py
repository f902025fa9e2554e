# SPDX-License-Identifier: Apache-2.0
"""What `explain` gives: a `str`, in HTML that folds, and in colours on a terminal."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from html.parser import HTMLParser

import pytest

import tcsym
from tcsym.compiler import STAGES
from tcsym.display.coloured import pieces, rows
from tcsym.display.explained import Explanation
from tcsym.display.folded import MOST, folded
from tcsym.display.lexer import LoopLexer
from tests.display.parsed import Page
from tests.display.terminal import on_terminal

MLP = """
def mlp(float(B,K) X, float(K,N) W, float(N) b) -> (Y) {
  Y(i,j) +=! X(i,k) * W(k,j)
  Y(i,j) = X(i,0) < 3.0 && b(j) > 1.0 ? max(Y(i,j) + b(j), 0) : Y(i,j)
}
"""
SIZES = {"B": 32, "K": 784, "N": 512}
ALL = (*STAGES, "llvm", "asm", "options", "variants")


@pytest.fixture(scope="module")
def explanations() -> dict[str, Explanation]:
    mlp = tcsym.define(MLP)
    return {stage: mlp.explain(stage, **SIZES) for stage in ALL}


def test_it_is_a_str() -> None:
    text = Explanation("a\nb", "loops", [1])
    assert text == "a\nb" and isinstance(text, str) and hash(text) == hash("a\nb")
    assert repr(text) == "a\nb" and f"{text}" == "a\nb" and text.splitlines() == ["a", "b"]
    for same in (pickle.loads(pickle.dumps(text)), copy.deepcopy(text), text[:]):
        assert same == "a\nb" and type(same) is str
    behind = text.after("# one\n# two")
    assert behind == "# one\n# two\na\nb" and behind.idle == {3} and behind.stage == "loops"


@pytest.mark.parametrize("stage", ALL)
def test_html_holds_the_text(stage: str, explanations: dict[str, Explanation]) -> None:
    text = Explanation(explanations[stage], stage)  # all lines run
    page = Page.of(text._repr_html_())
    assert page.headers[0].startswith(stage)
    lines = [line.lstrip() for line in text.removesuffix("\n").split("\n")]
    shown = [line.lstrip() for line in page.lines]
    if page.left_out:
        assert lines[: len(shown)] == shown and page.left_out == len(lines) - len(shown)
        assert "print shows" in page.paragraphs[0]
    else:
        assert lines == shown and not page.paragraphs
    assert len(text._repr_html_()) < 7 * MOST


@pytest.mark.parametrize("stage", ("plan", "mapped"))
def test_lines_for_other_sizes_are_closed(stage: str) -> None:
    sums = tcsym.define("def f(float(B,K) X) -> (Y) { Y(i) +=! X(i,k) }")
    text = sums.explain(stage, B=32, K=784)
    assert text.idle and max(text.idle) < text.count("\n") + 1
    page = Page.of(text._repr_html_())
    assert page.hidden_lines >= text.idle
    n = len(page.lines)
    assert f"{n - len(text.idle)} of {n} lines" in page.headers[0]
    told = [int(x.split()[1]) for x in page.notes if x.endswith("for other sizes")]
    assert sum(told) == len(text.idle)


def test_lines_for_other_sizes_are_those_of_the_plan_that_does_not_serve() -> None:
    mlp = tcsym.define(MLP)
    few, many = (mlp.explain("plan", B=b, K=784, N=512) for b in (1, 2000))
    assert few.idle != many.idle
    assert not mlp.explain("plan").idle and not mlp.explain("mapped").idle
    lines = many.split("\n")
    assert any("panels" in line for k, line in enumerate(lines) if k not in many.idle)
    assert not any("panels" in line for k, line in enumerate(lines) if k not in few.idle)


def test_of_long_texts_what_does_not_run_is_counted_only() -> None:
    lines = [f"  line{k:05} = {k}" for k in range(MOST // 10)]
    page = Page.of(folded("\n".join(["head", *lines]), "loops", range(1, 101)))
    assert page.notes == ["  … 100 lines for other sizes"]
    assert page.lines[0] == "head" and page.lines[1] == lines[100]
    assert page.left_out == len(lines) + 1 - 100 - len(page.lines) > 0
    assert f"{len(lines) + 1 - 100} of {len(lines) + 1} lines run" in page.headers[0]


def test_characters_are_escaped() -> None:
    text = '<script>alert("&amp;")</script> \u2028 é'
    for stage in ALL:
        html = folded(text, stage)
        assert "<script" not in html
        assert Page.of(html).lines == [text]


def test_folds_hold_what_is_indented() -> None:
    html = folded("a\n  b\n    c\n  d\ne\n", "loops")
    assert Page.of(html).folds == [("a", ["  b", "    c", "  d"]), ("  b", ["    c"])]
    functions = "declare x\ndefine f {\n  one\n}\ndefine g {\n  two\n}\n"
    page = Page.of(folded(functions, "llvm"))
    assert page.folds == [("define f {", ["  one", "}"]), ("define g {", ["  two", "}"])]
    assert page.hidden_lines == {2, 3, 5, 6}


def test_colours_are_those_of_the_lexer(explanations: dict[str, Explanation]) -> None:
    for stage, text in explanations.items():
        assert "".join(piece for _, piece in pieces(text, stage)) == text
    found = {piece: kind for kind, piece in pieces(explanations["loops"], "loops")}
    assert found["serial"] == "k" and found["float32"] == "t" and found["max"] == "b"
    assert found["0"] == "n" and found["# S0"] == "c"
    html = explanations["loops"]._repr_html_()
    assert '<span class="k">serial</span>' in html and '<span class="t">float32</span>' in html


def test_words_of_plans_are_no_keywords() -> None:
    text = "i:\n  if N >= 4: left to another kernel, for few in by\n  else: rows\n"
    kinds = {piece: kind for kind, piece in pieces(text, "plan")}
    assert kinds["if"] == kinds["else"] == "k" and kinds["4"] == "n"
    assert not any(kinds[word] for word in ("kernel", "for", "in", "by", "rows"))


def test_loops_have_no_characters_that_the_lexer_does_not_know(
    explanations: dict[str, Explanation],
) -> None:
    from pygments.token import Error, Text

    for stage in ("program", "ranges", "scop", "schedule", "loops", "mapped"):
        unknown = [x for kind, x in LoopLexer().get_tokens(explanations[stage]) if kind in (Error,)]
        other = {x for kind, x in LoopLexer().get_tokens(explanations[stage]) if kind is Text}
        assert not unknown and other <= {"…", "\n"}, stage


def test_rows_are_lines() -> None:
    text = 'a  # "\n\n/* x\ny */\nz'
    for stage in ALL:
        assert ["".join(x for _, x in row) for row in rows(text, stage)] == text.split("\n")


SHOWING = """
import tcsym
text = tcsym.define("def f(float(N) X) -> (Y) { Y(i) = X(i) }").explain("loops")
class Printer:
    def text(self, x): print(x, end="")
text._repr_pretty_(Printer(), False)
"""


def test_colours_on_a_terminal() -> None:
    plain = tcsym.define("def f(float(N) X) -> (Y) { Y(i) = X(i) }").explain("loops")
    written = on_terminal(SHOWING)
    assert "\x1b[35mserial\x1b[0m" in written and "\x1b[" not in plain
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_terminal(SHOWING, **env) == plain
    piped = subprocess.run([sys.executable, "-c", SHOWING], capture_output=True, text=True)
    assert piped.stdout == plain


def test_rich_prints_it_in_colours() -> None:
    from rich.console import Console

    text = Explanation("serial i in 0:N", "loops")
    console = Console(force_terminal=True, color_system="standard")
    with console.capture() as written:
        console.print(text)
    assert "\x1b[35mserial\x1b[0m" in written.get()
    plain = Console(force_terminal=False)
    with plain.capture() as written:
        plain.print(text)
    assert written.get() == "serial i in 0:N\n"


def test_html_has_no_script_and_knows_light_and_dark(
    explanations: dict[str, Explanation],
) -> None:
    class NoScripts(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag != "script" and not any(name.startswith("on") for name, _ in attrs)

    html = explanations["plan"]._repr_html_()
    NoScripts().feed(html)
    assert "prefers-color-scheme:dark" in html and "data-jp-theme-light" in html
