# SPDX-License-Identifier: Apache-2.0
"""Links of the site's pages, and docstrings as Markdown."""

from pathlib import Path

from tests.pages import ROOT
from tools.docstrings import markdown
from tools.site import site_page
from tools.site_links import broken_links
from tools.tables import with_table


def test_links_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h2 id="there">x</h2>')
    (tmp_path / "page.html").write_text(
        '<a href="other.html#there">1</a><a href="other.html#gone">2</a><a href="no.html">3</a>'
        '<a href="https://example.org">4</a><a href="#top">5</a><img src="data:,">'
        '<script src="https://example.org/x.js"></script>'
    )
    assert broken_links(tmp_path) == [
        "page.html links to other.html#gone: that page has no such anchor",
        "page.html links to no.html, which is no file",
        "page.html links to #top: that page has no such anchor",
        "page.html loads https://example.org/x.js from another host",
    ]


def test_docstrings_are_markdown() -> None:
    text = "What.\n\na, b: of it (docs/tuning.md),\n    all.\nThen:\n    x = 1\n\nEnd."
    assert markdown(text) == (
        "What.\n\n- `a, b`: of it ([tuning](tuning.md)),\n  all.\n\nThen:\n\n"
        "```python\nx = 1\n\n```\n\nEnd."
    )


def test_lists_and_bars_are_those_of_github() -> None:
    assert site_page("**What:**\n- a\n  b\n- c\n") == "**What:**\n\n- a\n  b\n- c\n"
    assert site_page("What:\n1. a\n2. b\n") == "What:\n\n1. a\n2. b\n"
    for same in ("- a\n- b\n", "# A\n- a\n", "```text\na\n- b `\\|`\n```\n", "sum `2**63`\n"):
        assert site_page(same) == same
    assert site_page("| `&& \\|\\| !` | `bool` |\n") == (
        "| <code>&amp;&amp; &#124;&#124; !</code> | `bool` |\n"
    )


def test_a_table_is_written_in_its_place() -> None:
    page = "a\n<!-- made by ./dev docs: t -->\nold\n<!-- end -->\nb\n"
    assert with_table(page, "t", "new") == (
        "a\n<!-- made by ./dev docs: t -->\n\nnew\n\n<!-- end -->\nb\n"
    )


def test_the_site_names_every_page() -> None:
    configured = (ROOT / "zensical.toml").read_text()
    pages = {p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    pages |= {f"notebooks/{p.stem}.md" for p in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    left_out = {p for p in pages if f'"{p}"' not in configured and "decisions/" not in p}
    assert not left_out
