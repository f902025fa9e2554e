# SPDX-License-Identifier: Apache-2.0
"""The record -> one picture: ratios by kernel, a panel for each number of threads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.statistics import geometric_mean

Record = Mapping[str, Any]
_COLOURS = {"contractions": "#1f6f8b", "others": "#d1793b"}


def draw(record: Record, path: Path) -> None:
    """Points: best peer's time over ours, with intervals, sorted; log scale. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tcsym"  # the same record gives the same file
    matplotlib.rcParams["svg.fonttype"] = "none"  # letters as text: a tenth of the bytes
    import matplotlib.pyplot as plt

    rows = [r for r in record["rows"] if r["best_peer"]]
    panels = sorted({r["threads"] for r in rows})
    if not panels:
        raise SystemExit("nothing to draw: no row has both our time and a peer's")
    by = "kernel" if record["sizes"] == "random" else "label"  # random sizes share a line
    tallest = max(len({r[by] for r in rows if r["threads"] == t}) for t in panels)
    size = (6.5 * len(panels), 1.2 + 0.17 * tallest)
    figure, axes = plt.subplots(1, len(panels), figsize=size, squeeze=False, layout="constrained")
    for axis, threads in zip(axes[0], panels):
        _draw_panel(axis, [r for r in rows if r["threads"] == threads], threads, by)
    figure.suptitle(f"best other library's time / ours; {_machine(record)}", fontsize=9)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
    plt.close(figure)


def _draw_panel(axis: Any, rows: list[Record], threads: int, by: str) -> None:
    lines: dict[str, list[Record]] = {}
    for r in rows:
        lines.setdefault(r[by], []).append(r)
    ordered = sorted(lines, key=lambda name: geometric_mean(map(_value, lines[name])))
    for y, name in enumerate(ordered):
        for r in lines[name]:
            best, colour = _best(r), _COLOURS[r["class"]]
            if by == "label":
                axis.plot([best["low"], best["high"]], [y, y], color=colour, linewidth=1.2)
            axis.plot(best["value"], y, "o", color=colour, markersize=4 if by == "label" else 2)
    axis.axvline(1.0, color="#555555", linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    labels = [
        f"{name}  ({lines[name][0]['best_peer']})" if by == "label" else name for name in ordered
    ]
    axis.set_yticks(range(len(ordered)), labels, fontsize=6)
    axis.set_ylim(-0.8, len(ordered) - 0.2)
    axis.grid(axis="x", linewidth=0.3)
    means = []
    for kind, colour in _COLOURS.items():
        values = [_value(r) for r in rows if r["class"] == kind]
        if values:
            mean = geometric_mean(values)
            axis.axvline(mean, color=colour, linestyle="--", linewidth=0.8)
            means.append(f"{kind} {mean:.2f}")
    noun = "thread" if threads == 1 else "threads"
    axis.set_title(f"{threads} {noun}: geometric means {', '.join(means)}", fontsize=8)


def _value(row: Record) -> float:
    return float(_best(row)["value"])


def _best(row: Record) -> Any:
    return row["ratios"][row["best_peer"]]


def _machine(record: Record) -> str:
    return str(next(iter(record["machines"].values()))["name"])
