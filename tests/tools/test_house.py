# SPDX-License-Identifier: Apache-2.0
"""What `./dev house` counts, on a small tree."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tools.house import counted, rooms_of, table

SOURCE = '''\
"""A module."""

ROWS, _STEP = 4, 2 * 8
WIDE = ROWS * 2  # its number is 2: four is ROWS'
PRICES: dict[str, float] = {"load": 0.5, "store": -0.25}
NAMES = ("a", "b")
lower = 7
MADE = made(9)


class Plan:
    HEIGHT = 6


def pays(n: int, extent: Index) -> Condition:
    if n <= 16 or 0 < n < 2 or n == 32:
        return lt(extent * 3 + index(5), ROWS)
    return other(extent, 64) >= 2 * (n + 4.5)
'''


def test_names_numbers_and_what_is_compared_are_counted() -> None:
    got = counted(SOURCE)
    assert (got["files"], got["lines"]) == (1, 18)
    assert got["names"] == len(("ROWS", "_STEP", "WIDE", "PRICES"))
    assert got["numbers"] == len((4, 2, 8, 2, 0.5, -0.25))
    assert got["compared"] == len((16, 3, 5, 64, 4.5))  # 0 and 2 are small, == is no ordering


def test_a_literal_in_two_comparisons_counts_once() -> None:
    assert counted("x = lt(n, 5 < m)")["compared"] == 1


def written(tree: Path, **files: str) -> Path:
    for name, text in files.items():
        path = tree / "tcsym" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tree


def test_rooms_are_folders_of_the_package_and_of_the_stage(tmp_path: Path) -> None:
    tree = written(
        tmp_path,
        options="X = 3\n",
        index__expr="\n",
        index__deep__er="\n\n",
        schedule__plan="A = 1\n",
        schedule__tile__rows="B = 2\nC = 3\n",
        schedule__tile__deep__er="D = 4\n",
    )
    rooms = rooms_of(tree)
    lines = {room: (c["files"], c["lines"], c["names"]) for room, c in rooms.items()}
    assert lines == {
        "tcsym": (1, 1, 1),
        "tcsym/index": (2, 3, 0),
        "tcsym/schedule": (1, 1, 1),
        "tcsym/schedule/tile": (2, 3, 3),
    }
    stage, everything = table(rooms)[-2:]
    assert stage.split()[3:] == ["4", "3", "4", "4", "0"]
    assert everything.split()[1:] == ["8", "6", "5", "5", "0"]


def test_changes_are_shown_for_rooms_that_came_or_went() -> None:
    before = {"tcsym/old": Counter(lines=5, files=1), "tcsym/same": Counter(lines=2, files=1)}
    now = {"tcsym/new": Counter(lines=1200, files=1), "tcsym/same": Counter(lines=2, files=1)}
    got = {x.split()[0]: x for x in table(now, before)}
    assert "0 → 1,200" in got["tcsym/new"] and "5 → 0" in got["tcsym/old"]
    assert "→" not in got["tcsym/same"]
    assert "7 → 1,202" in table(now, before)[-1]
