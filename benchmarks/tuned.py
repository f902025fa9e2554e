"""Options tuned at few sizes, used at others: what is lost. `./dev bench tuned`.

Each kernel is tuned for six sizes within a budget; the tuner's report then measures, at sizes drawn
from the same ranges, how much faster the best options for each of them would be.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.sizes import random_rows
from benchmarks.stream import KERNELS, command_text
from benchmarks.suite import BY_NAME
from benchmarks.surroundings import cores_for, environment_for

TUNED_SIZES = 6


def tune_case(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Gain at the tuned sizes, and what is lost at the others; factors."""
    import tcsym

    case = BY_NAME[name]
    kernel = tcsym.define(case.text)
    known = set(kernel.sizes)
    rows = random_rows(case, TUNED_SIZES, arguments.seed + 1000)
    sizes = [{n: v for n, v in row.sizes.items() if n in known} for row in rows]
    report = kernel.tune(sizes=sizes, budget=arguments.budget, progress=False, seed=arguments.seed)
    regret = report.regret(arguments.count, arguments.seed + 1)
    return {
        "kernel": name,
        "gain": report.gain,
        "gain_interval": list(report.interval),
        "seconds": report.seconds,
        "trials": len(report.trials),
        "failed": len(report.failures),
        "regions": report.options.splitlines(),
        "others": len(regret.sizes),
        "lost": regret.mean,
        "lost_interval": list(regret.interval),
        "worst": regret.worst,
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"tuned at {TUNED_SIZES} sizes, used at others (goals: 1.05, worst 1.20)")
    for column in ("kernel", "gain", "trials", "seconds", "other sizes", "lost", "worst"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for row in rows:
        gain, lost = (_with_interval(row, key) for key in ("gain", "lost"))
        table.add_row(
            *(row["kernel"], gain, str(row["trials"]), f"{row['seconds']:.0f}"),
            *(str(row["others"]), lost, f"{row['worst']:.2f}"),
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _with_interval(row: dict[str, Any], key: str) -> str:
    low, high = row[f"{key}_interval"]
    return f"{row[key]:.3f} ({low:.3f} to {high:.3f})"


def main(given: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="./dev bench tuned", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", default=list(KERNELS), choices=tuple(BY_NAME), metavar="KERNEL")
    add("--budget", default="60s", help="of each kernel's tuning")
    add("--count", type=int, default=200, help="other sizes to measure")
    add("--threads", type=int, default=1)
    add("--seed", type=int, default=0)
    add("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args(given)
    os.sched_setaffinity(0, set(cores_for(arguments.threads)))
    with tempfile.TemporaryDirectory() as cache:
        os.environ.update(environment_for(arguments.threads, None, cache))
        rows = [tune_case(name, arguments) for name in arguments.only]
    print_table(rows)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"command": command_text(), "tuned": rows}, indent=1) + "\n"
        )
