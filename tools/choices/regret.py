# SPDX-License-Identifier: Apache-2.0
"""Tables of choices -> what the plans that were taken lose against the best ones that there are."""

from __future__ import annotations

import json
import lzma
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

ABOVE = (1.1, 1.3, 2.0)
WORST = 20
BETTER = 1.05  # times as fast as the next plan, to be the fastest
_NAME = re.compile(r"\b(?:\d+|[A-Z]\w*|[a-z](?:[_\d]\w*)?)\b")


class Line(Struct, frozen=True):
    """A program at some sizes. times: by plan that ran, in nanoseconds; taken: without a wish."""

    program: str
    family: str
    target: str
    sizes: dict[str, int]
    taken: str
    times: dict[str, float]

    @property
    def best(self) -> str:
        return min(self.times, key=lambda plan: self.times[plan])

    @property
    def regret(self) -> float:
        """Times as long as the best takes what was taken."""
        return self.times[self.taken] / self.times[self.best]


def lines_of(paths: Iterable[Path]) -> Iterator[Line]:
    """Those with a choice. What is no whole line is passed over: measuring was stopped there."""
    for path in paths:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
        for part in text.splitlines():
            try:
                found = line_of(json.loads(part))
            except ValueError:
                continue
            if found is not None:
                yield found


def line_of(data: dict[str, Any]) -> Line | None:
    """None without the plan that was taken, or another."""
    given = data.get("alternatives", [])
    taken = next((x["plans"] for x in given if x["option"] == ""), None)
    times = {x["plans"]: float(x["ns"]) for x in given}
    if taken is None or len(times) < 2:
        return None
    return Line(data["program"], data["family"], data["target"], data["sizes"], taken, times)


def regret_lines(paths: Sequence[Path]) -> list[str]:
    """A report for each target, then the worst lines and what plans are for."""
    found = list(lines_of(paths))
    by_target: dict[str, list[Line]] = defaultdict(list)
    for x in found:
        by_target[x.target].append(x)
    report = []
    for target, own in by_target.items():
        report += by_family(target, own)
    worst = sorted(found, key=lambda x: -x.regret)[:WORST]
    return [*report, "", "worst:", *map(_told, worst), "", *earned(found)]


def by_family(title: str, lines: Sequence[Line]) -> list[str]:
    """Of all lines, and of each family if there are several."""
    families = dict.fromkeys(x.family for x in lines)
    parts = ((f, [x for x in lines if x.family == f]) for f in families)
    own = [f"  {summary(f, part)}" for f, part in parts if len(families) > 1]
    return [summary(title, lines), *own]


def summary(title: str, lines: Sequence[Line]) -> str:
    """The geometric mean of what is lost, and shares of lines."""
    n = len(lines)
    if not n:
        return f"{title}: no lines"
    mean = math.exp(sum(math.log(x.regret) for x in lines) / n)
    shares = (f"above {a:g}: {100 * sum(x.regret > a for x in lines) / n:.1f} %" for a in ABOVE)
    programs = len({x.program for x in lines})
    lost = f"lost {100 * (mean - 1):.1f} %; {', '.join(shares)}"
    return f"{title}: {n:,} lines of {programs} programs: {lost}"


def _told(x: Line) -> str:
    sizes = " ".join(f"{n}={v}" for n, v in x.sizes.items())
    took, best = (f"{x.times[p] / 1000:.1f} us {p}" for p in (x.taken, x.best))
    return f"  {x.regret:.2f}  {x.program}, {x.target}, {sizes}\n        {took}\n        {best}"


def earned(lines: Iterable[Line]) -> list[str]:
    """Of each kind of plan: lines where it ran and another did, where it was the fastest by more
    than a twentieth, and how much longer the best others take in the geometric mean."""
    others: dict[str, list[float]] = defaultdict(list)
    for x in lines:
        best: dict[str, float] = {}
        for plan, ns in x.times.items():
            kind = kind_of(plan)
            best[kind] = min(ns, best.get(kind, math.inf))
        for kind, ns in best.items() if len(best) > 1 else ():
            rest = min(v for k, v in best.items() if k != kind)
            others[kind].append(rest / ns)
    table = ["plans: lines, fastest, what the others take at best"]
    for kind, found in sorted(others.items(), key=lambda item: -len(item[1])):
        fastest = sum(r > BETTER for r in found)
        mean = math.exp(sum(math.log(max(r, 1.0)) for r in found) / len(found))
        table.append(f"  {len(found):6,} {fastest:6,}  {mean:.3f}  {kind}")
    return table


def kind_of(plans: str) -> str:
    """Outer plans of all nests, without the names of their loops and tensors and their numbers."""
    while (shorter := re.sub(r" ?\[[^\[\]]*\]", "", plans)) != plans:
        plans = shorter
    kinds = (re.sub(r"(?:· ?,? ?)+", "· ", _NAME.sub("·", p)).strip() for p in plans.split(" | "))
    return " | ".join(dict.fromkeys(kinds))
