# SPDX-License-Identifier: Apache-2.0
"""Mapping by directives replaces the stage before it: that one may only shrink meanwhile."""

from __future__ import annotations

from pathlib import Path

import tcsym

PACKAGE = Path(tcsym.__file__).parent
FILES = Path(__file__).parent / "files_of_schedule.txt"
MOST_LINES = 19_882


def test_the_old_stage_gets_no_file() -> None:
    """The list is of the files that there are: who deletes one deletes its line."""
    found = (p.relative_to(PACKAGE / "schedule") for p in (PACKAGE / "schedule").rglob("*.py"))
    assert sorted(p.as_posix() for p in found) == FILES.read_text().split()


def test_lines_of_both() -> None:
    files = [*(PACKAGE / "schedule").rglob("*.py"), *(PACKAGE / "mapping").rglob("*.py")]
    assert sum(len(p.read_text().splitlines()) for p in files) <= MOST_LINES
