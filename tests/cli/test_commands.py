# SPDX-License-Identifier: Apache-2.0
"""Commands about texts and about the program: list, grad, completion, help; and slips in names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import tcsym
from tcsym import library
from tcsym.cli.main import main
from tcsym.cli.tune import limit_of

TEXT = """# scales rows
# by a number
def scaled(float(N,D) X, float a) -> (Y) { Y(i,j) = a * X(i,j) }

def summed(float(N,D) X) -> (Y) { Y(i) +=! X(i,j) }
"""


def run(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, args)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "layers.tc"
    path.write_text(TEXT)
    return str(path)


def commands() -> list[tuple[str, click.Command]]:
    """All commands, those of groups too, by the words that call them."""
    found: list[tuple[str, click.Command]] = []
    left: list[tuple[str, click.Command]] = [("", main)]
    while left:
        words, command = left.pop()
        if isinstance(command, click.Group):
            left += [(f"{words} {name}".strip(), c) for name, c in command.commands.items()]
        else:
            found.append((words, command))
    return sorted(found)


@pytest.mark.parametrize("words", [words for words, _ in commands()])
def test_every_command_has_help_with_an_example(words: str) -> None:
    text = run(*words.split(), "--help").output
    assert f"Example: tcsym {words}" in text or f"tcsym {words}" in text.partition("Example")[2]


def test_list_of_the_library() -> None:
    lines = run("list").output.splitlines()
    assert "matmul(float32(M, K) A, float32(K, N) B) -> (float32(M, N) C)" in lines
    assert "    Matrix product: C = A B." in lines
    assert f"{len(library.names())} kernels" in lines[-1]
    listed = json.loads(run("list", "--json").output)
    assert [x["def"] for x in listed] == list(library.names())


def test_list_of_a_file(file: str) -> None:
    assert run("list", file).output.splitlines() == [
        "scaled(float32(N, D) X, float32 a) -> (float32(N, D) Y)",
        "    scales rows by a number",
        "summed(float32(N, D) X) -> (float32(N) Y)",
    ]
    (one,) = json.loads(run("list", f"{file}:summed", "--json").output)
    assert one == {
        "file": file,
        "def": "summed",
        "signature": "summed(float32(N, D) X) -> (float32(N) Y)",
        "sizes": ["N", "D"],
        "inputs": ["X"],
        "outputs": ["Y"],
        "description": "",
    }
    assert "Sizes:" not in run("list", "softmax").output


def test_grad_prints_the_text_of_the_gradient(file: str) -> None:
    kernel = tcsym.define(TEXT).scaled
    assert run("grad", f"{file}:scaled").output == kernel.grad().source.rstrip("\n") + "\n"
    one = run("grad", f"{file}:scaled", "--wrt", "a").output
    assert one == kernel.grad("a").source.rstrip("\n") + "\n"
    forward = json.loads(run("grad", f"{file}:scaled", "--forward", "--json").output)
    assert forward == {
        "def": "scaled_jvp",
        "signature": repr(kernel.jvp().signature),
        "text": kernel.jvp().source,
    }
    tcsym.define(forward["text"])
    assert "`b`" in run("grad", f"{file}:scaled", "--wrt", "b", code=1).stderr


def test_a_text_that_has_no_gradient_is_an_error() -> None:
    text = "def f(int32(N) X) -> (Y) { Y(i) = X(i) }"
    result = CliRunner().invoke(main, ["grad", "-"], input=text)
    assert result.exit_code == 1 and result.stderr.startswith("Error: ")


def completed(words: str, shell: str = "bash") -> list[str]:
    """What `shell` offers for the last word."""
    environment = {
        **os.environ,
        "_TCSYM_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    command = [sys.executable, "-c", "from tcsym.cli.main import main; main(prog_name='tcsym')"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_what_the_shell_reads(shell: str) -> None:
    text = run("completion", shell).output
    assert "_TCSYM_COMPLETE" in text and f"{shell}_complete" in text
    assert "tcsh" in run("completion", "tcsh", code=2).stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tcsym che", {"plain,check"}),
        ("tcsym show softm", {"plain,softmax"}),
        ("tcsym show mm.tc sched", {"plain,schedule"}),
        ("tcsym run mm.tc --target cpu:av", {"plain,cpu:avx2", "plain,cpu:avx512"}),
        ("tcsym run mm.tc --strategy buck", {"plain,bucket"}),
    ],
)
def test_shells_complete_commands_kernels_stages_targets(words: str, offered: set[str]) -> None:
    assert offered <= set(completed(words))


def test_help_page_and_docstring_name_every_stage() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    help_text = run("show", "--help").output.partition("Stages: ")[2].partition("\n\n")[0]
    docstring = (tcsym.Kernel.explain.__doc__ or "").partition("Stages: ")[2].partition(";")[0]
    stages = {word.removeprefix("plain,") for word in completed("tcsym show softmax ")}
    stages -= {"cuda", "ptx", "sass"}  # of devices
    assert "costs" in stages
    for named in (help_text, docstring):
        assert {*re.findall(r"\w+", named)} == stages
    assert all(f"`{stage}`" in page for stage in stages)


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        (("shwo", "mm.tc"), 2, "no command `shwo`; did you mean `show`?"),
        (("frobnicate",), 2, "commands are bench, cache, check,"),
        (("cache", "lst"), 2, "no command `lst`; did you mean `list`?"),
        (("run", "FILE:sumed"), 2, "has no def `sumed`; did you mean `summed`?"),
        (("run", "FILE:summed", "--seeds", "3"), 2, "--seed"),
        (("run", "FILE:summed", "--input", "x=x.npy"), 2, "no input `x`; inputs are X"),
        (("run", "FILE:summed", "--sizes", "N=2,D=2,DD=3"), 1, "did you mean `D`?"),
        (("show", "FILE:summed", "schedul"), 1, "did you mean `schedule`?"),
        (("show", "sofmax", "loops"), 2, "did you mean softmax"),
        (("tune", "FILE:summed", "--candidate", "2"), 2, "--candidates"),
    ],
)
def test_slips_in_names_are_told_the_nearest(
    file: str, words: tuple[str, ...], code: int, hint: str
) -> None:
    told = run(*(w.replace("FILE", file) for w in words), code=code).stderr
    assert hint in " ".join(told.split())


def test_a_file_with_a_colon_in_its_name_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b").write_text("def f(float(N) X) -> (Y) { Y(i) = X(i) }")
    assert run("list", "a:b").output.startswith("f(")
    assert run("list", "a:b:f").output.startswith("f(")
    assert run("list", "library:row_sum", "library:row_sum:row_sum").output.count("row_sum(") == 2


# ---- how far a tune may go


@pytest.mark.parametrize(
    ("given", "arguments", "told"),
    [
        ((None, None), {"budget": 60.0}, "takes up to 60 s"),
        (("20", None), {"budget": 20.0}, "takes up to 20 s"),
        (("2min", None), {"budget": 120.0}, "takes up to 120 s"),
        ((None, 1), {"candidates": 1}, "tries up to 1 candidate,"),
        ((None, 20), {"candidates": 20}, "tries up to 20 candidates, however long that takes"),
    ],
)
def test_a_number_alone_is_seconds(given: Any, arguments: Any, told: str) -> None:
    limit = limit_of(*given)
    assert limit.arguments() == arguments
    assert told in limit.will_take("mm") and "Ctrl-C" in limit.will_take("mm")


def test_tune_says_first_what_it_will_take(file: str) -> None:
    sizes = ("--sizes", "N=3,D=4", "--target", "cpu:novector")
    done = run("tune", f"{file}:summed", *sizes, "--candidates", "1", "--json")
    assert done.stderr.splitlines()[0].startswith("tuning summed tries up to 1 candidate,")
    assert json.loads(done.stdout)["def"] == "summed"
    for wrong in (("--budget", "0"), ("--budget", "soon"), ("--candidates", "0")):
        assert wrong[0][2:] in run("tune", f"{file}:summed", *wrong, code=2).stderr
    both = run("tune", f"{file}:summed", "--budget", "1", "--candidates", "1", code=2).stderr
    assert "not both" in " ".join(both.split())
