# SPDX-License-Identifier: Apache-2.0
"""README.md and the pages for users: every snippet and command runs and prints what they show."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tcsym.builtins import ARITY
from tests.hosts import HOSTS
from tests.pages import ROOT, Wrong, blocks_of, pages, run_apart, run_page

PAGES = pages()


def needed(page: Path) -> set[str]:
    """Packages that examples of the page need."""
    comments = {b.comment for b in blocks_of(page.read_text())}
    return {c.removeprefix("needs: ") for c in comments if c.startswith("needs: ")}


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=pytest.mark.host if needed(p) & {*HOSTS} else ()) for p in PAGES],
    ids=lambda page: page.name,
)
def test_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    done = run_apart(page, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "package",
    [
        pytest.param(n, marks=pytest.mark.host if n in HOSTS else ())
        for n in sorted(set().union(*map(needed, PAGES)))
    ],
)
def test_examples_that_need_another_package_were_run(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: its examples in pages were left out")


@pytest.mark.parametrize("tool", ["tables", "pictures"])
def test_what_pages_repeat_of_the_sources_is_fresh(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"tools.{tool}", "--check"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_every_kind_of_error_has_its_section_with_an_example() -> None:
    from tcsym.errors import ERROR_KINDS

    page = (ROOT / "docs" / "errors.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    del sections["Warnings"]  # which are no errors
    assert list(sections) == list(ERROR_KINDS)
    for kind, section in sections.items():
        (shown,) = re.findall(r"```output\n(.*?)```", section, re.S)
        assert shown.startswith("<tc>:") or f"errors.{ERROR_KINDS[kind].__name__}: " in shown


def test_the_language_page_lists_all_functions() -> None:
    page = (ROOT / "docs" / "language.md").read_text()
    counts = {"one argument": 1, "two arguments": 2, "three arguments": 3, "four arguments": 4}
    (listed,) = (b.text for b in blocks_of(page) if b.text.startswith("one argument"))
    found = {}
    for part in re.split(r"^(?=\w)", listed, flags=re.M)[1:]:
        title, names = re.split(r"\s{2,}", part, maxsplit=1)
        found |= dict.fromkeys(names.split(), counts[title])
    assert found == ARITY


def test_tasks_named_in_pages_exist() -> None:
    listing = subprocess.run(
        [str(ROOT / "dev"), "help"], capture_output=True, text=True, check=True
    )
    named = set()
    for page in PAGES:
        named |= set(re.findall(r"\./dev ([a-z-]+)", page.read_text()))
    named.discard("help")
    assert {"demo", "test"} <= named
    for task in named:
        assert f"./dev {task} " in listing.stdout, task


def test_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_a_page_that_shows_something_else_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    told = {
        "```python\nprint(1 + 1)\n```\n\n```output\n3\n```\n": "this is printed\n2",
        "```python\n1 / 0\n```\n": "ZeroDivisionError",
        "```sh\nfalse\n```\n": "it fails",
        "```tc\ndef f(float(N) X) -> (Y) { Y(i) = Z(i) }\n```\n": "undefined",
    }
    for text, expected in told.items():
        page.write_text(text)
        with pytest.raises(Wrong, match=expected):
            run_page(page)


def test_blocks_know_their_comments() -> None:
    (block,) = blocks_of("a\n\n<!-- file: mm.tc -->\n```tc\ndef\n```\n")
    assert (block.language, block.text, block.comment, block.line) == (
        "tc",
        "def\n",
        "file: mm.tc",
        5,
    )


def test_demo_prints_one_compilation_for_each_layer() -> None:
    done = subprocess.run([str(ROOT / "dev"), "demo"], capture_output=True, text=True, check=True)
    counts = re.findall(r"compilations for all (\d+) sizes: (\d+)", done.stdout)
    assert len(counts) == 3
    assert all(int(n) > 1 and int(compilations) == 1 for n, compilations in counts)
