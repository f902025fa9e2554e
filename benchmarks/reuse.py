# SPDX-License-Identifier: Apache-2.0
"""Figures of `./dev bench stream` and `./dev bench tuned` -> docs/notes/reuse.md.

What stands above the marker stays as it was written by hand; all below it is made from the figures.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import MARKER
from benchmarks.stream import COLUMNS, cells, goal_lines

PAGE = Path("docs/notes/reuse.md")
Figures = Mapping[str, Any]


def stream_lines(rows: list[dict[str, Any]], command: str) -> list[str]:
    lines = ["## A stream of calls with ever new sizes", "", f"`{command}`", ""]
    lines += ["Milliseconds from a cold start, the library imported and the inputs in memory.", ""]
    lines += [f"| kernel | contestant | {' | '.join(COLUMNS)} |"]
    lines += [f"|---|---|{'--:|' * len(COLUMNS)}"]
    for row in rows:
        ours = row["contestants"].get("tcsym", {}).get("total")
        for name, found in row["contestants"].items():
            told = cells(found, ours)
            told += [""] * (len(COLUMNS) - len(told))
            lines.append(f"| {row['kernel']} | {name} | {' | '.join(told)} |")
    return [*lines, "", *(f"- {line}" for line in goal_lines(rows)), ""]


def tuned_lines(rows: Sequence[Figures], command: str) -> list[str]:
    lines = ["## Options tuned at six sizes, used at others", "", f"`{command}`", ""]
    lines += ["Factors; goals: lost at most 1.05 in the mean, 1.20 at worst.", ""]
    lines += ["Noise: what the default loses to copies of itself by the same procedure.", ""]
    lines += [
        "First calls: with the options of the region. Lost: once candidates were measured there.",
        "",
    ]
    columns = ("kernel", "gain at tuned sizes", "trials", "seconds", "other sizes", "lost", "worst")
    more = ("first calls", "worst", "over 1.2", "noise", "its worst")
    lines += [f"| {' | '.join((*columns, *more))} |", "|---" + "|--:" * 11 + "|"]
    for row in rows:
        gain, lost = (_with_interval(row, key) for key in ("gain", "lost"))
        figures = (gain, row["trials"], f"{row['seconds']:.0f}", row["others"], lost)
        noise = row.get("noise", {"lost": math.nan, "worst": math.nan})
        noises = f"{noise['lost']:.3f}", f"{noise['worst']:.2f}"
        first = row["first"]
        firsts = f"{first['lost']:.3f}", f"{first['worst']:.2f}", first["beyond"]
        worst = f"{row['worst']:.2f}"
        cells = " | ".join(map(str, (row["kernel"], *figures, worst, *firsts, *noises)))
        lines.append(f"| {cells} |")
    return [*lines, "", *(f"- {_remark(row)}" for row in rows if "worst_at" in row), ""]


def _remark(row: Figures) -> str:
    where = ", ".join(f"{n}={v}" for n, v in row["worst_at"].items())
    text = f"{row['kernel']}: {100 * row['within']:.0f} % lose at most 5 %; worst at {where}"
    if "searched" in row:
        n, lost = row["searched"]["others"], row["searched"]["lost"]
        text += f"; against searches for {n} single sizes {lost:.3f}"
    return text


def _with_interval(row: Figures, key: str) -> str:
    low, high = row[f"{key}_interval"]
    return f"{row[key]:.3f} ({low:.3f} to {high:.3f})"


def main(given: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="./dev bench reuse", description=__doc__)
    parser.add_argument("figures", type=Path, nargs="+", help="files of --json")
    lines: list[str] = []
    for path in parser.parse_args(given).figures:
        found = json.loads(path.read_text())
        if "stream" in found:
            lines += stream_lines(found["stream"], found["command"])
        else:
            lines += tuned_lines(found["tuned"], found["command"])
    head = PAGE.read_text().partition(MARKER)[0]
    PAGE.write_text(head + MARKER + "\n" + "\n".join(lines))
