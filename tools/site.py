# SPDX-License-Identifier: Apache-2.0
"""The site: `./dev site [--serve | --check]`, from docs/ into build/site.

Without an option it is built, and a link or an anchor that leads nowhere fails. `--serve` shows it
and follows changes of docs/. `--check` builds it and looks at every page in a browser
(`tools/site_checks.py`); `--pictures FOLDER` keeps what was seen.
"""

from __future__ import annotations

import argparse
import html
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tools.site_links import broken_links
from tools.site_notebooks import page_of

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
_FENCED = re.compile(r"^(```.*?^```$)", re.M | re.S)
_FIRST_ITEM = re.compile(r"^((?![-*] |[|#<]|\d+\. |\s).+\n)(?=(?:[-*]|1\.) )", re.M)
_CODE_WITH_BAR = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def sources() -> Iterator[tuple[str, bytes]]:
    """Files of the site's sources by their path: docs/, pages of notebooks, the changelog."""
    for path in sorted(DOCS.rglob("*")):
        name = path.relative_to(DOCS).as_posix()
        if path.suffix == ".md":
            yield name, site_page(path.read_text()).encode()
        elif path.suffix == ".ipynb":
            text, pictures = page_of(path.read_text(), path.stem)
            yield f"notebooks/{path.stem}.md", site_page(text).encode()
            yield from ((f"notebooks/{file}", content) for file, content in pictures.items())
            yield name, path.read_bytes()
        elif path.is_file():
            yield name, path.read_bytes()
    yield "decisions/index.md", _decisions().encode()
    yield "changelog.md", (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](").encode()


def site_page(text: str) -> str:
    """With links to what is a page only here, as Python's Markdown reads it."""
    text = text.replace("](../CHANGELOG.md)", "](changelog.md)")
    text = text.replace(".ipynb)", ".md)")
    text = text.replace("](decisions)", "](decisions/index.md)")
    pieces = _FENCED.split(text)
    return "".join(p if k % 2 else _read_as_on_github(p) for k, p in enumerate(pieces))


def _read_as_on_github(text: str) -> str:
    r"""A list may follow a line of text, and `a \| b` in a table is code with a bar."""
    return _CODE_WITH_BAR.sub(_in_html, _FIRST_ITEM.sub(r"\1\n", text))


def _in_html(code: re.Match[str]) -> str:
    return "<code>" + html.escape(code[1]).replace(r"\|", "&#124;") + "</code>"


def _decisions() -> str:
    """Their list."""
    lines = ["# Decisions", "", "What was decided, and what against.", ""]
    for path in sorted((DOCS / "decisions").glob("*.md")):
        title = path.read_text().partition("\n")[0].removeprefix("# ")
        lines.append(f"{int(path.name[:4])}. [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def stage() -> None:
    """Make PAGES hold the sources; a file that is as it should be keeps its time."""
    wanted = dict(sources())
    for name, content in wanted.items():
        path = PAGES / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    for path in [p for p in PAGES.rglob("*") if p.is_file()]:
        if path.relative_to(PAGES).as_posix() not in wanted:
            path.unlink()


def build() -> int:
    """The site in SITE. The number of faults, which were printed."""
    stage()
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        told = _COLOUR.sub("", done.stdout).partition("Traceback (most recent call last)")[0]
        say(f"zensical says\n{told.strip()}")
        return 1
    faults = broken_links(SITE)
    for fault in faults:
        say(fault)
    return len(faults)


def serve() -> None:
    """Until it is interrupted."""
    stage()
    server = subprocess.Popen([sys.executable, "-m", "zensical", "serve"], cwd=ROOT)
    try:
        while server.poll() is None:
            time.sleep(1)
            stage()
    except KeyboardInterrupt:
        server.wait()


def say(text: str) -> None:
    print(f"site: {text}", file=sys.stderr, flush=True)


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev site", description="build the site")
    parser.add_argument("--serve", action="store_true", help="show it, and follow changes")
    parser.add_argument("--check", action="store_true", help="look at every page in a browser")
    parser.add_argument("--pictures", type=Path, help="with --check, write what was seen there")
    arguments = parser.parse_args(given)
    if arguments.serve:
        serve()
        return 0
    started = time.perf_counter()
    faults = build()
    if faults:
        say(f"{faults} faults")
        return 1
    say(f"{SITE.relative_to(ROOT)}/index.html, in {time.perf_counter() - started:.0f} s")
    if arguments.check:
        from tools.site_checks import check

        return check(SITE, arguments.pictures)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
