# SPDX-License-Identifier: Apache-2.0
"""Results as lines of JSON, each written at once, whoever else writes; and their tables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FILE = "lines.jsonl"
MOST_FAILED = 6  # of a group, in its table
MOST_WHY = 160  # characters
Line = dict[str, Any]
_HEAD = ("group", "case", "ok", "s", "why")


def put(out: Path, line: Mapping[str, Any]) -> None:
    """Appends a line by one call of the system, so that lines of several processes stay whole."""
    file = os.open(out / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, (json.dumps(line) + "\n").encode())
    finally:
        os.close(file)


def taken(out: Path, group: str = "") -> list[Line]:
    """Those of a group, or all; a last one that was cut is left out."""
    file = out / FILE
    if not file.exists():
        return []
    whole = [x for x in file.read_text().splitlines(keepends=True) if x.endswith("\n")]
    return [x for x in map(json.loads, whole) if not group or x["group"] == group]


def table(group: str, lines: Iterable[Line], is_timed: bool) -> str:
    """How many cases hold and what failed; of a timed group each case's figures."""
    lines = list(lines)
    good = sum(x["ok"] for x in lines)
    seconds = sum(x["s"] for x in lines)
    told = [f"{group}: {good} of {len(lines)} hold, {seconds:.1f} s"]
    if not lines:
        told = [f"{group}: nothing ran, the log says why"]
    shown = [x for x in lines if not x["ok"]][:MOST_FAILED]
    for x in lines if is_timed else shown:
        figures = (f"{k} {_short(v)}" for k, v in x.items() if k not in _HEAD)
        verdict = "" if x["ok"] else f" FAILED {' '.join(x.get('why', '').split())[:MOST_WHY]}"
        told.append(f"  {x['case']}: {', '.join(figures)}{verdict}")
    return "\n".join(told)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
