# SPDX-License-Identifier: Apache-2.0
"""The record -> tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.contestant import writes_to_given
from benchmarks.peers import OURS
from benchmarks.record import by_kernel, by_peer
from benchmarks.startup import startup_line

Record = Mapping[str, Any]


def row_text(row: Record) -> str:
    """One line while a run goes on."""
    ours = row["contestants"].get("tcsym")
    if ours is None:
        reason = row["failures"].get("tcsym", "; ".join(row["failures"].values()))
        return f"{row['label']:34s} t{row['threads']} FAILED: {reason}"
    text = f"{row['label']:34s} t{row['threads']} {ours['min_ms']:9.4f} ms {rate_text(row):>10s}"
    if row["roofline"] is not None:
        text += f" {row['roofline']:4.0%}"
    peers = sorted(row["ratios"].items(), key=lambda item: item[1]["value"])
    for name, r in peers[:4]:
        text += f"  {name} {r['value']:.2f} [{r['low']:.2f} {r['high']:.2f}]"
    n_disturbed = sum(r["disturbed"] for r in row["ratios"].values())
    if n_disturbed:
        text += f"  ({n_disturbed} of {len(row['ratios'])} ratios disturbed)"
    return text


def rate_text(row: Record) -> str:
    """GFLOP/s where a float is used more than twice, else GB/s of compulsory traffic."""
    ms = row["contestants"]["tcsym"]["min_ms"]
    if row["flops"] > row["bytes"]:
        return f"{row['flops'] / ms / 1e6:.1f} GF/s"
    return f"{row['bytes'] / ms / 1e6:.1f} GB/s"


def speed_table(rows: Iterable[Record]) -> Table:
    """Every row: our time, its share of the roofline, each peer's time over ours."""
    rows = [r for r in rows if "tcsym" in r["contestants"]]
    names = list(dict.fromkeys(n for r in rows for n in r["contestants"] if n not in OURS))
    table = Table(title="least time; other's over ours, above 1: we are faster (95 % interval)")
    left = ("kernel", "best peer")
    columns = ("kernel", "threads", "ms", "median", "out=", "rate", "roofline")
    for column in (*columns, "best peer", "ratio", "interval", *names):
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    for r in rows:
        ours, out = r["contestants"]["tcsym"], r["contestants"].get("tcsym out=")
        best = r["ratios"].get(r["best_peer"])
        table.add_row(
            r["label"],
            str(r["threads"]),
            f"{ours['min_ms']:.4g}",
            f"{ours['median_ms']:.4g}",
            f"{out['min_ms']:.4g}" if out else "",
            rate_text(r),
            f"{r['roofline']:.0%}",
            r["best_peer"] or "",
            f"{best['value']:.2f}" if best else "",
            _interval(best),
            *(f"{r['ratios'][n]['value']:.2f}" if n in r["ratios"] else "" for n in names),
        )
    return table


def substitution_table(rows: Iterable[Record]) -> Table:
    """Symbolic against substituted: the latter's time over the former's."""
    table = Table(title="symbolic against substituted sizes: above 1, symbolic is faster")
    for column in ("kernel", "threads", "symbolic ms", "after", "interval", "before", "interval"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for r in rows:
        if not r["substituted"]:
            continue
        cells = []
        for name in ("tcsym after", "tcsym before"):
            found = r["substituted"].get(name)
            cells += [f"{found['value']:.3f}" if found else "", _interval(found)]
        ms = r["contestants"]["tcsym"]["min_ms"]
        table.add_row(r["label"], str(r["threads"]), f"{ms:.4g}", *cells)
    return table


def summary_table(groups: Iterable[Record]) -> Table:
    table = Table(title="geometric means of best peer's time over ours, and goals")
    left = ("part", "class", "worst at")
    columns = ("part", "class", "threads", "rows", "mean", "goal", "worst", "goal each", "below")
    for column in (*columns, "worst at"):
        table.add_column(column, justify="left" if column in left else "right")
    for g in groups:
        table.add_row(
            g["part"],
            g["class"],
            str(g["threads"]),
            str(g["rows"]),
            _marked(g["mean"], g["goal_mean"]),
            f"{g['goal_mean']:.2f}",
            _marked(g["worst"], g["goal_each"]),
            f"{g['goal_each']:.2f}",
            str(g["below"]),
            g["worst_at"],
        )
    return table


def peer_table(rows: Iterable[Record]) -> Table:
    """Each peer alone."""
    table = Table(title="by peer: its time over ours, geometric mean and worst")
    for column in ("class", "threads", "peer", "rows", "mean", "worst", "worst at"):
        left = column in ("class", "peer", "worst at")
        table.add_column(column, justify="left" if left else "right")
    for g in by_peer(rows):
        figures = (f"{g['mean']:.2f}", f"{g['worst']:.2f}", g["worst_at"])
        table.add_row(g["class"], str(g["threads"]), g["peer"], str(g["rows"]), *figures)
    return table


def kernel_table(rows: Iterable[Record]) -> Table:
    """Over all sizes of each kernel."""
    table = Table(title="by kernel: best peer's time over ours, geometric mean and worst")
    for column in ("kernel", "threads", "sizes", "mean", "worst", "below 1", "worst at"):
        table.add_column(column, justify="left" if column in ("kernel", "worst at") else "right")
    for g in by_kernel(rows):
        figures = (g["threads"], g["rows"], f"{g['mean']:.2f}", f"{g['worst']:.2f}", g["below"])
        table.add_row(g["kernel"], *map(str, figures), g["worst_at"])
    return table


def startup_table(startup: Record) -> Table:
    table = Table(title="milliseconds from importing to the first result, in a new process")
    stages = list(dict.fromkeys(s for r in startup["rows"] for s in r["stages"]))
    for column in ("kernel", "import", "define", "first call", "cold", "warm", *stages):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for r in startup["rows"]:
        figures = (r["import"], r["define"], r["first_call"], r["cold"], r["warm"])
        cells = [f"{x:.0f}" for x in (*figures, *(r["stages"].get(s, 0.0) for s in stages))]
        table.add_row(r["kernel"], *cells)
    return table


def call_table(record: Record) -> Table:
    table = Table(title="cost of a call (adding 2 x 4 numbers), first result of a kernel")
    table.add_column("contestant")
    for column in ("call, us", "first result, median ms"):
        table.add_column(column, justify="right")
    for cells in call_cells(record):
        table.add_row(*cells)
    return table


def call_cells(record: Record) -> list[list[str]]:
    """Each contestant's cost of a call, and median first result over the rows of the record.

    A first result is in a process that has loaded the library and compiled other kernels.
    """
    first: dict[str, list[float]] = {}
    for r in record["rows"]:
        for name, entry in r["contestants"].items():
            if not writes_to_given(name):
                first.setdefault(name, []).append(float(entry["first_ms"]))
    medians = {name: f"{statistics.median(ms):.3g}" for name, ms in first.items()}
    call = record["startup"]["call"]["contestants"]
    return [
        [name, f"{entry['min_ms'] * 1e3:.2f}", medians.get(name, "")]
        for name, entry in call.items()
    ]


def failure_lines(rows: Iterable[Record]) -> list[str]:
    """Every reason once, with the kernels it hit."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for r in rows:
        for name, reason in r["failures"].items():
            reasons.setdefault((name, reason), []).append(r["label"])
    return [
        f"{name}: {reason} ({len(labels)} rows, first {labels[0]})"
        for (name, reason), labels in reasons.items()
    ]


def print_tables(record: Record, console: Console) -> None:
    rows = record["rows"]
    console.print(speed_table(rows))
    if any(r["substituted"] for r in rows):
        console.print(substitution_table(rows))
    if record["startup"]["rows"]:
        console.print(startup_table(record["startup"]))
        console.print(startup_line(record["startup"]["rows"]))
    if record["startup"]["call"]:
        console.print(call_table(record))
    console.print(kernel_table(rows))
    console.print(peer_table(rows))
    console.print(summary_table(record["summary"]))
    for line in failure_lines(rows):
        console.print(line, markup=False, highlight=False)


def _interval(found: Record | None) -> str:
    return f"{found['low']:.2f}–{found['high']:.2f}" if found else ""


def _marked(value: float, goal: float) -> str:
    return f"{value:.2f}" if value >= goal else f"[bold red]{value:.2f}[/]"
