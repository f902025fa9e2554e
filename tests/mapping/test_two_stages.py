# SPDX-License-Identifier: Apache-2.0
"""Mapping by directives replaces the stage before it: that one may only shrink meanwhile."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import tcsym
from tools.house import names_of

PACKAGE = Path(tcsym.__file__).parent
FILES = Path(__file__).parent / "files_of_schedule.txt"
MOST_LINES = 19_863
MOST_NUMBERS, MOST_OF_DEVICES = 60, 35
PRICES = {"_PRICES", "PICOSECONDS"}


def sources() -> list[Path]:
    return [*(PACKAGE / "schedule").rglob("*.py"), *(PACKAGE / "mapping").rglob("*.py")]


def test_the_old_stage_gets_no_file() -> None:
    """The list is of the files that there are: who deletes one deletes its line."""
    found = (p.relative_to(PACKAGE / "schedule") for p in (PACKAGE / "schedule").rglob("*.py"))
    assert sorted(p.as_posix() for p in found) == FILES.read_text().split()


def test_lines_of_both() -> None:
    assert sum(len(p.read_text().splitlines()) for p in sources()) <= MOST_LINES


def test_names_of_numbers() -> None:
    """They are few, tables of prices aside, and none is that of two numbers."""
    trees = {p: ast.parse(p.read_text()) for p in sources()}
    found = [(p, n) for p, tree in trees.items() for names, _ in names_of(tree) for n in names]
    devices = [n for p, n in found if p.parent.name == "device"]
    assert len(devices) <= MOST_OF_DEVICES
    assert len({n for _, n in found} - PRICES - {*devices}) <= MOST_NUMBERS
    assert [n for n, times in Counter(n for _, n in found).items() if times > 1] == []
