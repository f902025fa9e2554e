# SPDX-License-Identifier: Apache-2.0
"""Records -> the figures in docs/notes/measurements.md: `./dev bench --report RECORD.json ...`

Records of the same sizes and target become one, so a long run can be made in parts.
What stands above the marker stays as it was written by hand; all below it is made from records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.merge import merged
from benchmarks.picture import draw
from benchmarks.record import RANDOM_GOAL, SCHEMA, by_peer
from benchmarks.startup import startup_line
from benchmarks.statistics import geometric_mean
from benchmarks.tables import call_cells, failure_lines, rate_text

PAGE = Path("docs/notes/measurements.md")
MARKER = "<!-- Below: made by ./dev bench -->\n"
Record = Mapping[str, Any]
TRAINING_PAGE = Path("docs/notes/comparisons.md")
TRAINING_MARKER = "<!-- made by ./dev bench train --report -->"
_LEAST = RANDOM_GOAL[1]


def read_record(path: Path) -> Record:
    """Errors: SystemExit for a file that is no record of this version."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"cannot read {path}: {error}") from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise SystemExit(f"{path} is no record of `./dev bench --json` (schema {SCHEMA})")
    return record


def write_report(paths: Sequence[Path], page: Path = PAGE) -> None:
    """Rewrites the generated part of the page, and the pictures beside it."""
    head = page.read_text().partition(MARKER)[0]
    parts = []
    for record in merged(read_record(path) for path in paths):
        target = record["target"].replace(":", "-")
        picture = page.with_name(f"{page.stem}-{record['sizes']}-{target}.svg")
        draw(record, picture)
        parts.append(report_text(record, picture.name))
    page.write_text(head + MARKER + "\n" + "\n".join(parts))


def write_training(paths: Sequence[Path], page: Path = TRAINING_PAGE) -> None:
    """Rewrites the table of backward passes on the page."""
    head, _, rest = page.read_text().partition(TRAINING_MARKER)
    _, end, tail = rest.partition("\n\n")
    lines = training_lines(merged(read_record(path) for path in paths))
    table = "\n".join(lines).rstrip("\n")
    page.write_text(f"{head}{TRAINING_MARKER}\n{table}{end}{tail}")


def training_lines(records: Iterable[Record]) -> list[str]:
    """A line for each class, choice of sizes and number of threads: means and worst by peer."""
    peers = {"torch": "torch", "compile": "torch.compile", "jax": "JAX"}
    cells = []
    for record in records:
        best = {(g["class"], g["threads"]): g for g in record["summary"]}
        found = {(g["class"], g["threads"], g["peer"]): g for g in by_peer(record["rows"])}
        for (kind, threads), g in sorted(best.items()):
            alone = (found.get((kind, threads, p)) for p in peers)
            figures = [f"{a['mean']:.2f} ({a['worst']:.2f})" if a else "" for a in alone]
            total = f"{g['mean']:.2f} ({g['worst']:.2f})"
            cells.append([kind, record["sizes"], threads, g["rows"], *figures, total])
    columns = ["", "sizes", "threads", "rows", *peers.values(), "the best of them"]
    return _table(columns, cells)


def report_text(record: Record, picture: str) -> str:
    sizes = {"suite": "the suite's sizes", "ragged": "ragged sizes", "random": "random sizes"}
    lines = [f"## Measured: {sizes[record['sizes']]}, target {record['target']}", ""]
    lines += ["```sh", record["command"], "```", "", f"Measured on {record['date']}.", ""]
    lines += _machine_lines(record)
    lines += [f"![best other library's time over ours]({picture})", ""]
    lines += ["### Geometric means and goals", "", *_summary_lines(record["summary"])]
    if record["sizes"] == "random":
        lines += ["### Kernel by kernel", "", *_kernel_lines(record["rows"])]
        below = _furthest_below(record["rows"])
        lines += ["### Rows below the goal", "", *_row_lines(below)] if below else []
    else:
        lines += ["### Every kernel", "", *_row_lines(record["rows"])]
    lines += _substitution_lines(record["rows"])
    lines += _startup_lines(record)
    failures = failure_lines(record["rows"])
    if failures:
        lines += ["### Contestants that did not run", "", *(f"- {x}" for x in failures), ""]
    return "\n".join(lines)


def _machine_lines(record: Record) -> list[str]:
    first = next(iter(record["machines"].values()))
    versions = ", ".join(f"{k} {v}" for k, v in sorted(record["versions"].items()))
    lines = [f"{first['name']}; {first['system']}; {versions}.", ""]
    names = [level["name"] for level in first["levels"]]
    cells = [
        [t, f"{m['gflop_per_s']:.0f}", *(f"{x['gb_per_s']:.0f}" for x in m["levels"])]
        for t, m in record["machines"].items()
    ]
    return [*lines, *_table(["threads", "GFLOP/s", *(f"{n} GB/s" for n in names)], cells)]


def _summary_lines(groups: Iterable[Record]) -> list[str]:
    columns = ["part", "class", "threads", "rows", "mean", "goal", "worst", "goal", "below"]
    columns.append("worst at")
    cells = [
        [
            *(g["part"], g["class"], g["threads"], g["rows"]),
            *(f"{g['mean']:.2f}", f"{g['goal_mean']:.2f}"),
            *(f"{g['worst']:.2f}", f"{g['goal_each']:.2f}", g["below"], f"`{g['worst_at']}`"),
        ]
        for g in groups
    ]
    return _table(columns, cells)


def _kernel_lines(rows: Iterable[Record]) -> list[str]:
    """Many sizes of each: in how many of them some peer is quicker, and by how much at most."""
    found: dict[tuple[str, int], list[float]] = {}
    for r in rows:
        if r["best_peer"]:
            key = r["label"].partition("[")[0], r["threads"]
            found.setdefault(key, []).append(_best(r))
    cells = [
        [
            *(f"`{kernel}`", threads, len(values), f"{geometric_mean(values):.2f}"),
            *(f"{min(values):.2f}", *(sum(v < limit for v in values) for limit in (1.0, _LEAST))),
        ]
        for (kernel, threads), values in found.items()
    ]
    columns = ["kernel", "threads", "sizes", "mean", "worst", "below 1", f"below {_LEAST}"]
    return _table(columns, cells)


def _furthest_below(rows: Iterable[Record]) -> list[Record]:
    below = [r for r in rows if r["best_peer"] and _best(r) < _LEAST]
    return sorted(below, key=_best)


def _best(row: Record) -> float:
    return float(row["ratios"][row["best_peer"]]["value"])


def _row_lines(rows: Iterable[Record]) -> list[str]:
    """Ratios of the four nearest peers, the best first."""
    cells = []
    for r in rows:
        ours = r["contestants"].get("tcsym")
        if ours is None:
            cells.append([r["label"], r["threads"], "failed", "", "", ""])
            continue
        nearest = sorted(r["ratios"].items(), key=lambda item: float(item[1]["value"]))[:4]
        peers = ", ".join(
            f"{n} {x['value']:.2f} ({x['low']:.2f}–{x['high']:.2f})" for n, x in nearest
        )
        time, share = f"{ours['min_ms']:.4g}", f"{r['roofline']:.0%}"
        cells.append([r["label"], r["threads"], time, rate_text(r), share, peers])
    columns = ["kernel", "threads", "ms", "rate", "roofline", "others' time / ours (95 %)"]
    return _table(columns, cells)


def _substitution_lines(rows: Iterable[Record]) -> list[str]:
    cells = [
        [r["label"], r["threads"], *(_interval_text(r["substituted"].get(n)) for n in names)]
        for names in [("tcsym after", "tcsym before")]
        for r in rows
        if r["substituted"]
    ]
    if not cells:
        return []
    columns = ["kernel", "threads", "after scheduling", "before scheduling"]
    title = "### Symbolic against substituted: the latter's time over the former's"
    return [title, "", *_table(columns, cells)]


def _interval_text(found: Record | None) -> str:
    return f"{found['value']:.3f} ({found['low']:.2f}–{found['high']:.2f})" if found else ""


def _startup_lines(record: Record) -> list[str]:
    lines, startup = ["### Start-up and calls", ""], record["startup"]
    if startup["rows"]:
        cells = [
            [r["kernel"], *(f"{r[k]:.0f}" for k in ("define", "first_call", "cold", "warm"))]
            for r in startup["rows"]
        ]
        lines += [startup_line(startup["rows"]), ""]
        lines += _table(["kernel", "define", "first call", "cold, ms", "warm, ms"], cells)
    if startup["call"]:
        columns = ["contestant", "cost of a call, us", "first result of a kernel, median ms"]
        lines += _table(columns, call_cells(record))
    return lines if len(lines) > 2 else []


def _table(columns: Sequence[str], cells: Iterable[Sequence[Any]]) -> list[str]:
    def line(row: Sequence[Any]) -> str:
        return f"| {' | '.join(map(str, row))} |"

    return [line(columns), line(["---"] * len(columns)), *map(line, cells), ""]
