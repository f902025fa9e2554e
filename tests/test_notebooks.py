# SPDX-License-Identifier: Apache-2.0
"""Notebooks: every cell runs, warns of nothing and shows what is kept."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.hosts import host
from tests.notebooks import joined, notebooks, read, text_of
from tests.pages import Wrong, run_apart
from tools.site_notebooks import page_of

NOTEBOOKS = notebooks()


@pytest.mark.host
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_shows_what_is_kept(path: Path, tmp_path: Path) -> None:
    host("torch")  # all run where `./dev notebooks` runs them
    done = run_apart(path, tmp_path, module="tests.notebooks")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_as_it_is_written(path: Path) -> None:
    assert path.read_text() == text_of(read(path))
    pictures = [c for c in read(path).cells if "image/png" in str(c.get("outputs"))]
    assert all(cell.metadata.alt for cell in pictures)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert "://" in target or (path.parent / target).exists(), target


def test_a_cell_that_fails_or_warns_is_told(tmp_path: Path) -> None:
    path = tmp_path / "some.ipynb"
    made = nbformat.v4.new_notebook()
    for code, told in {
        "1 / 0": "ZeroDivisionError",
        "import warnings\nwarnings.warn('old')": "cell 1 warns:\n",
    }.items():
        made.cells = [nbformat.v4.new_code_cell(code)]
        path.write_text(text_of(made))
        done = run_apart(path, tmp_path / code[0], update=True, module="tests.notebooks")
        assert done.returncode == 1 and told in done.stderr


def cells(*outputs: str, code: str = "print(n)", tags: Sequence[str] = ()) -> Any:
    """A notebook with cells that printed this."""
    made = nbformat.v4.new_notebook()
    for text in outputs:
        cell = nbformat.v4.new_code_cell(code, metadata={"tags": [*tags]})
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
        made.cells.append(cell)
    return nbformat.reads(text_of(made), as_version=4)


def test_what_is_not_current_is_told() -> None:
    kept = cells("2\n", "in 3 ms\n")
    assert text_of(joined(kept, cells("2\n", "in 4 ms\n"), "x")) == text_of(kept)
    with pytest.raises(Wrong, match=r"cell 1: the notebook shows\n2\n\nand this is shown now\n3"):
        joined(kept, cells("3\n", "in 4 ms\n"), "x")
    assert (
        joined(kept, cells("3\n", "in 4 ms\n"), "x", update=True).cells[0].outputs[0].text == "3\n"
    )
    silent = cells("2\n", "")
    silent.cells[1].outputs = []
    with pytest.raises(Wrong, match="cell 2: it shows"):
        joined(kept, silent, "x")


def test_what_varies_is_kept() -> None:
    kept, made = (cells(text, tags=["varies"]) for text in ("1\n", "2\n"))
    assert text_of(joined(kept, made, "x", update=True)) == text_of(kept)


def test_other_code_is_other_outputs() -> None:
    kept = cells("in 3 ms\n")
    kept.cells[0].source = "print(n + 1)"
    made = cells("in 4 ms\n", code="print(n + 1)")
    with pytest.raises(Wrong, match="cells were changed"):
        joined(kept, made, "x")
    assert joined(kept, made, "x", update=True).cells[0].outputs[0].text == "in 4 ms\n"


def test_a_notebook_is_a_page_of_the_site() -> None:
    made = nbformat.v4.new_notebook()
    picture = {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"}
    code = nbformat.v4.new_code_cell("print('a```')\ndraw()", metadata={"alt": "A line"})
    code.outputs = [
        nbformat.v4.new_output("stream", name="stdout", text="a```\n"),
        nbformat.v4.new_output("display_data", data=picture),
        nbformat.v4.new_output(
            "execute_result", data={"text/html": "<p>\n\nx</p>", "text/plain": "x"}
        ),
    ]
    made.cells = [nbformat.v4.new_markdown_cell("# Some\n\nWords."), code]
    text, files = page_of(nbformat.writes(made), "some")
    assert text == (
        '# Some\n\n<a href="some.ipynb" download>This page is a notebook</a>'
        ", which runs as it stands.\n\nWords.\n\n"
        "````python\nprint('a```')\ndraw()\n````\n\n````output\na```\n````\n\n"
        '![A line](some-1.png)\n\n<div class="shown">\n<p>\nx</p>\n</div>\n'
    )
    assert files == {"some-1.png": b"\x89PNG\r\n\x1a\n"}
