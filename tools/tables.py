# SPDX-License-Identifier: Apache-2.0
"""Writes what pages repeat of the sources: `./dev docs`.

The table of environment variables in docs/threads-and-targets.md, that of errors in docs/errors.md.
`--check` writes nothing and fails where a page is not what would be written.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def variables_table() -> str:
    """The environment variables."""
    from tcsym.process.config import VARIABLES

    rows = ["| variable | value | |", "|---|---|---|"]
    rows += [f"| `{v.name}` | {v.expected} | {v.description} |" for v in VARIABLES]
    return "\n".join(rows)


def errors_table() -> str:
    """The classes of errors by kind, with the built-in classes that they are."""
    from tcsym.errors import ERROR_KINDS

    roots = (Exception, BaseException, object)
    rows = ["| class | kind | is also a |", "|---|---|---|"]
    for kind, cls in ERROR_KINDS.items():
        plain = [b for b in cls.__mro__[2:] if b.__module__ == "builtins" and b not in roots]
        also = ", ".join(f"`{b.__name__}`" for b in plain)
        rows.append(f"| `{cls.__name__}` | [{kind}](#{kind}) | {also} |")
    return "\n".join(rows)


TABLES = (
    ("threads-and-targets.md", "environment variables", variables_table),
    ("errors.md", "classes of errors", errors_table),
)


def with_table(page: str, title: str, table: str) -> str:
    """The page with the table in its place, between two comments."""
    start = re.escape(f"<!-- made by ./dev docs: {title} -->")
    place = re.compile(rf"(?<={start}\n).*?(?=<!-- end -->)", re.S)
    page, n = place.subn(lambda _: f"\n{table}\n\n", page)
    assert n == 1, f"no place for the table of {title}"
    return page


def main(arguments: list[str]) -> int:
    stale = []
    for name, title, table in TABLES:
        path = DOCS / name
        text = path.read_text()
        wanted = with_table(text, title, table())
        if text == wanted:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(wanted)
    if stale and "--check" in arguments:
        print(f"{', '.join(stale)}: not what the sources say; run ./dev docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
