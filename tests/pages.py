# SPDX-License-Identifier: Apache-2.0
"""Pages of the documentation as programs: their blocks run in order, and print what they show.

    python -m tests.pages docs/tutorial.md   # in a fresh folder, by test_pages.py
    python -m tests.pages --update           # rewrite the output blocks of all pages instead

A block is run by its language: `python` in one namespace a page, `sh` by bash, `tc` by
`tcsym.define`, after which its defs are names of the page. An `output` block that follows shows
what was printed, and the error that ended it; `...` stands for any text, a line with a time for
one with other numbers. A comment in front of a block says more: `<!-- file: mm.tc -->` writes it
to a file of the page's folder, `<!-- needs: jax -->` runs it only where that package is installed,
`<!-- not run -->` never.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from msgspec import Struct

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(
    r"(?:<!-- (?P<comment>[^\n]*?) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
_TIME = re.compile(r"\d+(\.\d+)?(e[+-]\d+)? (ns|us|ms|s)\b")
_NUMBER = re.compile(r"(?<![=\w.])\d+(\.\d+)?(e[+-]\d+)?(?![\w.=])")
_NOT_HERE = ("./dev ", "pip install ", "python -m pip ")  # lines of `sh` blocks that install


class Block(Struct, frozen=True):
    """`start`, `end`: where its text is in the page. `line`: of its first line, from 1."""

    language: str
    text: str
    comment: str
    start: int
    end: int
    line: int


class Wrong(Exception):
    """A block failed, or printed something else than the page shows."""


def blocks_of(page: str) -> list[Block]:
    return [
        Block(
            m["language"],
            m["text"],
            m["comment"] or "",
            m.start("text"),
            m.end("text"),
            page.count("\n", 0, m.start("text")) + 1,
        )
        for m in _BLOCK.finditer(page)
    ]


def run_page(path: Path, update: bool = False) -> str:
    """The page's text, with the outputs of this run if asked for. Raises Wrong."""
    page = path.read_text()
    blocks = blocks_of(page)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    renewed: list[tuple[Block, str]] = []
    for block, follower in zip(blocks, [*blocks[1:], None]):
        if block.language == "output" or not _is_wanted(block):
            continue
        shown = follower if follower and follower.language == "output" else None
        try:
            printed, has_failed = _run(block, namespace)
        except Exception as error:
            raise Wrong(f"{path.name}:{block.line}: {error}") from error
        if shown is None:
            if has_failed:
                raise Wrong(f"{path.name}:{block.line}: it fails:\n{printed}")
        elif not agrees(shown.text, printed):
            if not update:
                told = f"the page shows\n{shown.text}\nand this is printed\n{printed}"
                raise Wrong(f"{path.name}:{shown.line}: {told}")
            renewed.append((shown, printed))
    for block, printed in reversed(renewed):
        page = page[: block.start] + printed + page[block.end :]
    return page


def _is_wanted(block: Block) -> bool:
    name, _, value = block.comment.partition(": ")
    if name == "needs":
        return importlib.util.find_spec(value) is not None
    return block.comment != "not run"


def _run(block: Block, namespace: dict[str, Any]) -> tuple[str, bool]:
    """What the block prints, and whether it ends with an error."""
    name, _, value = block.comment.partition(": ")
    if name == "file":
        Path(value).write_text(block.text)
        return "", False
    runs = {"python": _run_python, "tc": _run_tc, "sh": _run_sh}
    if block.language not in runs:
        return "", False
    printed, has_failed = runs[block.language](block.text, namespace)
    lines = [line.rstrip() for line in printed.splitlines()]
    return "".join(f"{line}\n" for line in lines), has_failed


def _run_python(text: str, namespace: dict[str, Any]) -> tuple[str, bool]:
    printed = io.StringIO()
    has_failed = False
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(text, "<page>", "exec"), namespace)
        except Exception as error:
            has_failed = True
            print("".join(traceback.format_exception_only(error)).rstrip())
    return printed.getvalue(), has_failed


def _run_tc(text: str, namespace: dict[str, Any]) -> tuple[str, bool]:
    import tcsym

    try:
        module = tcsym.define(text)
    except tcsym.TCError as error:
        return str(error), True
    namespace |= {name: module[name] for name in module}
    return "", False


def _run_sh(text: str, _namespace: dict[str, Any]) -> tuple[str, bool]:
    lines = [line for line in text.splitlines() if not line.startswith(_NOT_HERE)]
    here = f'python() {{ "{sys.executable}" "$@"; }}; tcsym() {{ python -m tcsym "$@"; }}'
    script = "\n".join([here, *lines])
    done = subprocess.run(
        ["bash", "-e", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout, done.returncode != 0


def agrees(shown: str, printed: str) -> bool:
    """But for times and rates, which differ by machine and run."""
    if _TIME.search(shown) or _TIME.search(printed):
        shown, printed = _timeless(shown), _timeless(printed)
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)


def _timeless(text: str) -> str:
    """Without the numbers of lines with times, and with one space between words in all lines: the
    columns of a table are as wide as their numbers were."""
    return "".join(f"{' '.join(_timeless_line(line).split())}\n" for line in text.splitlines())


def _timeless_line(line: str) -> str:
    return _NUMBER.sub("NUMBER", _TIME.sub("TIME", line)) if _TIME.search(line) else line


def pages() -> list[Path]:
    """README.md and the pages for users."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def run_apart(
    path: Path,
    folder: Path,
    update: bool = False,
    module: str = "tests.pages",
    python: str = sys.executable,
) -> subprocess.CompletedProcess[str]:
    """Run a page in a process and an empty folder of its own, with a cache of its own there.

    A page may tune, and set numbers of threads: nobody else should see that.
    """
    here = folder / "here"
    here.mkdir(parents=True)
    ours = ("TCSYM_", "OMP_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    environment |= {"PYTHONPATH": str(ROOT), "TCSYM_CACHE_DIR": str(folder / "cache")}
    environment |= {"IPYTHONDIR": str(folder / "ipython")}
    arguments = ["--update", str(path)] if update else [str(path)]
    return subprocess.run(
        [python, "-m", module, *arguments],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
    )


def update_all() -> int:
    """Every page in its own process. The number of pages that failed."""
    n_failed = 0
    for path in pages():
        with tempfile.TemporaryDirectory() as folder:
            done = run_apart(path, Path(folder), update=True)
        print(f"{path.name}: {'done' if done.returncode == 0 else done.stderr}", flush=True)
        n_failed += done.returncode != 0
    return n_failed


def main(arguments: list[str]) -> int:
    if arguments == ["--update"]:
        return update_all()
    update = arguments[0] == "--update"
    path = Path(arguments[-1]).resolve()
    try:
        page = run_page(path, update)
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 1
    if update:
        path.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
