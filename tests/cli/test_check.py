# SPDX-License-Identifier: Apache-2.0
"""`tcsym check`: every error of every file, at its place; Python files are not run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tcsym
from tcsym.cli.main import main
from tcsym.cli.python_texts import texts_of
from tcsym.errors import Span

GOOD = "def good(float(N) X) -> (Y) { Y(i) = X(i) }\n"
BAD = (
    GOOD + "def f(float(N) X) -> (Y) { Y(i) = Z(i) }\ndef g(float(N) X) -> (Y) { Y(i) = X(i,j) }\n"
)
WARNED = "def h(int32(N) X) -> (float(N) Y) { Y(i) = X(i) / 2 }\n"
MODEL = '''import tcsym as tc
from tcsym import define

TEXT = """
def f(float(N) X) -> (Y) {
  Y(i) = Z(i)
}
"""
raise SystemExit("it was run")
f = tc.define(TEXT, strategy="symbolic")
g = define("def g(float(N) X)"
           " -> (Y) { \\
Y(i) = W(i) }")
ready = tc.define(tc.library.source("softmax"))
'''


def check(*args: str, code: int = 0, given: str | None = None) -> Result:
    result = CliRunner().invoke(main, ["check", *args], input=given)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text)


def test_all_errors_of_all_files_with_their_places(folder: Path) -> None:
    write(folder, bad_tc=BAD, good_tc=GOOD, warned_tc=WARNED)
    result = check("bad.tc", "good.tc", "warned.tc", code=1)
    lines = result.stdout.splitlines()
    assert lines[:3] == [
        "bad.tc:2:35: name: undefined tensor or function `Z`",
        "    def f(float(N) X) -> (Y) { Y(i) = Z(i) }",
        "                                      ^^^^",
    ]
    assert [x for x in lines if x.startswith(("bad.tc", "good.tc"))][1:] == [
        "bad.tc:3:35: rank: tensor `X` has 1 dimension but is read with 2"
    ]
    assert any(x.startswith("warned.tc:1:44: warning: division: ") for x in lines)
    assert result.stderr == "3 files checked: 2 errors, 1 warning\n"


def test_exit_codes(folder: Path) -> None:
    write(folder, bad_tc=BAD, good_tc=GOOD, warned_tc=WARNED)
    assert check("good.tc").stdout == ""
    check("warned.tc")
    check("warned.tc", "--strict", code=1)
    assert "no file `none.tc`" in check("good.tc", "none.tc", code=2).stderr
    check(code=2)


def test_syntax_errors_of_all_defs(folder: Path) -> None:
    broken = (
        "def f(float(N) X -> (Y) { }\n\n" + GOOD + "  def h(float(N) X) -> (Y) { Y(i) == X(i) }\n"
    )
    write(folder, broken_tc=broken + "def k(float(N) X) -> (Y) { Y(i) = X(i)\n")
    found = json.loads(check("broken.tc", "--format", "json", code=1).stdout)
    assert [(f["line"], f["column"], f["kind"]) for f in found] == [
        (1, 18, "syntax"),
        (4, 35, "syntax"),
        (6, 1, "syntax"),
    ]


def test_json_and_github(folder: Path) -> None:
    write(folder, bad_tc=BAD, warned_tc=WARNED)
    found = json.loads(check("bad.tc", "warned.tc", "--format", "json", code=1).stdout)
    assert found == json.loads(check("bad.tc", "warned.tc", "--json", code=1).stdout)
    assert found[0] == {
        "file": "bad.tc",
        "line": 2,
        "column": 35,
        "length": 4,
        "severity": "error",
        "kind": "name",
        "message": "undefined tensor or function `Z`",
        "hint": "",
    }
    assert [f["severity"] for f in found] == ["error", "error", "warning"]
    lines = check("bad.tc", "warned.tc", "--format", "github", code=1).stdout.splitlines()
    assert lines[0] == (
        "::error file=bad.tc,line=2,col=35,endColumn=39,title=tcsym%3A name::"
        "undefined tensor or function `Z`"
    )
    assert lines[2].startswith("::warning file=warned.tc,line=1,") and "%0Ahint: " in lines[2]


def test_standard_input_has_the_name_that_it_is_given() -> None:
    assert check("-", given=BAD, code=1).stdout.startswith("<stdin>:2:35: name: ")
    named = check("-", "--stdin-filename", "a.tc", given=BAD, code=1).stdout
    assert named.startswith("a.tc:2:35: name: ")
    python = check("-", "--stdin-filename", "m.py", given=MODEL, code=1).stdout
    assert python.startswith("m.py:6:10: name: ")


def test_python_files_are_read_and_not_run(folder: Path) -> None:
    write(folder, model_py=MODEL)
    lines = check("model.py", code=1).stdout.splitlines()
    assert lines == [
        "model.py:6:10: name: undefined tensor or function `Z`",
        "      Y(i) = Z(i)",
        "             ^^^^",
        "model.py:13:8: name: undefined tensor or function `W`",
        '    Y(i) = W(i) }")',
        "           ^^^^",
    ]


def test_what_is_no_literal_is_left_out() -> None:
    source = """
import other as tcsym2, tcsym
TWICE = "def f("
TWICE = "def g("
def define(text): ...
def of(text): return tcsym.define(text)
tcsym.define(TWICE); tcsym.define(f"def {TWICE}("); tcsym2.define("def f("); define("def f(")
tcsym.other("def f("); tcsym.define()
tcsym.define(source="def h(")
"""
    assert [t.text for t in texts_of(source)] == ["def h("]


@pytest.mark.parametrize(
    ("literal", "text", "places"),
    [
        ('"ab"', "ab", [(1, 2), (1, 3)]),
        (r'"a\tb\x41"', "a\tbA", [(1, 2), (1, 3), (1, 5), (1, 6)]),
        (r'r"\d"', r"\d", [(1, 3), (1, 4)]),
        (r'"\d\"\N{BULLET}x"', '\\d"•x', [(1, 2), (1, 2), (1, 4), (1, 6), (1, 16)]),
        ('"é" """x\ny"""', "éx\ny", [(1, 2), (1, 8), (1, 9), (2, 1)]),
        ('"""a\\\nb"""', "ab", [(1, 4), (2, 1)]),
    ],
)
def test_characters_know_their_places(
    literal: str, text: str, places: list[tuple[int, int]]
) -> None:
    before = "import tcsym; tcsym.define("
    (found,) = texts_of(f"{before}{literal})")
    expected = [(line, column + len(before) * (line == 1)) for line, column in places]
    assert (found.text, list(found.places[:-1])) == (text, expected)


def test_a_span_over_lines_ends_with_its_first() -> None:
    (found,) = texts_of('import tcsym\ntcsym.define("""ab\ncd""")\n')
    assert found.span_in_file(Span(1, 2, 3)) == Span(2, 18, 1)
    assert found.span_in_file(Span(2, 1, 2)) == Span(3, 1, 2)


def test_folders_are_searched(folder: Path) -> None:
    (folder / "in").mkdir()
    write(folder / "in", bad_tc=BAD, model_py=MODEL, notes_txt=BAD)
    result = check(".", code=1)
    assert result.stderr == "2 files checked: 4 errors, 0 warnings\n"
    assert "in/bad.tc:2:35: name" in result.stdout and "in/model.py:6:10" in result.stdout


def test_files_that_cannot_be_read_are_findings(folder: Path) -> None:
    (folder / "b.tc").write_bytes(b"\xff\xfe")
    write(folder, c_py="def f(:\n", d_tc="")
    lines = check("b.tc", "c.py", "d.tc", code=1).stdout.splitlines()
    assert lines[0].startswith("b.tc:1:1: file: cannot be read: ")
    assert lines[1] == "c.py:1:7: python: not Python: invalid syntax"
    assert any(x.startswith("d.tc:1:1: syntax: ") for x in lines)


def test_findings_are_those_of_define() -> None:
    with pytest.raises(tcsym.TCError) as caught:
        tcsym.define(BAD)
    found = json.loads(check("-", "--json", given=BAD, code=1).stdout)
    errors = [caught.value, *caught.value.others]
    assert [f["message"] for f in found] == [e.message for e in errors]


def test_as_a_user_in_a_shell(folder: Path) -> None:
    write(folder, bad_tc=BAD)
    command = [sys.executable, "-m", "tcsym", "check", "bad.tc"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        1,
        "bad.tc:2:35: name: undefined tensor or function `Z`",
    )
