# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/gallery.md, by running the page: `./dev docs`.

Its blocks save them in the folder where they run; docs/pictures/gallery-*.svg are copies. `--check`
writes nothing and fails where one is not what would be written, is missing or is no longer drawn.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

from tests.pages import run_page

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "pictures"
NAMES = "gallery-*.svg"


def drawn() -> dict[str, bytes]:
    """What the page draws, by name."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run_page(PAGE)
        return {path.name: path.read_bytes() for path in Path(folder).glob(NAMES)}


def stale(wanted: dict[str, bytes]) -> list[str]:
    """Names of files that are not what the page draws."""
    there = {path.name: path.read_bytes() for path in PICTURES.glob(NAMES)}
    return sorted(n for n in {*wanted, *there} if wanted.get(n) != there.get(n))


def main(arguments: list[str]) -> int:
    wanted = drawn()
    changed = stale(wanted)
    if "--check" in arguments:
        for name in changed:
            print(f"docs/pictures/{name}: not what the page draws; run ./dev docs", file=sys.stderr)
        return int(bool(changed))
    for name in changed:
        if name in wanted:
            (PICTURES / name).write_bytes(wanted[name])
        else:
            (PICTURES / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
