# SPDX-License-Identifier: Apache-2.0
"""`tcsym tune`: search for better options of a def, and keep them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

TRACE = ".jsonl"
MOST_SIZES = 8

if TYPE_CHECKING:
    from pathlib import Path

    from tcsym.tuning.report import TuningReport
    from tcsym.tuning.request import Search


def parse_budget(_ctx: click.Context, _param: click.Parameter, text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def refuse_with_trace(**given: object) -> None:
    """UsageError: a trace says these things itself."""
    for name, value in given.items():
        if value:
            option = "def" if name == "name" else name
            raise click.UsageError(f"--{option} does not go with a trace, which says what to tune")


def tune_trace(
    path: Path, budget: str | int, seed: int, search: Search, progress: bool | None
) -> Iterator[TuningReport]:
    """Tune each kernel of a trace for the sizes it spent most time at, weighted by that time.

    The budget is shared in proportion to time, too.
    """
    from tcsym.kernel.definition import define
    from tcsym.recorded import load
    from tcsym.tuning.budget import Budget

    recorded = load(path)
    total = sum(r.seconds for r in recorded) or 1.0
    seconds = Budget(budget).seconds
    for r in recorded:
        share = r.seconds / total or 1 / len(recorded)
        part = (
            f"{share * seconds:.6f}s" if seconds is not None else max(1, round(share * int(budget)))
        )
        kernel = define(r.source, filename=r.filename, target=r.target)[r.kernel]
        calls = r.calls[:MOST_SIZES]
        weights = [c.seconds or 1e-9 for c in calls]
        sizes = [dict(c.sizes) for c in calls]
        yield kernel.tune(sizes, part, weights=weights, seed=seed, search=search, progress=progress)


def short_text(reports: Sequence[TuningReport]) -> str:
    """What budget all kernels of a trace need, if some had too little time; else nothing."""
    short = [report for report in reports if report.is_short]
    if not short:
        return ""
    total = sum(report.seconds for report in reports)
    needed = max(total * report.least / report.seconds for report in short)
    names = ", ".join(report.name for report in short)
    return f"too little time for {names}: all need a budget of at least {math.ceil(needed)} s"


def report_json(report: TuningReport) -> dict[str, Any]:
    return {
        "def": report.name,
        "gain": report.gain,
        "interval": list(report.interval),
        "seconds": report.seconds,
        "stopped": report.stopped,
        "needs_seconds": report.least if report.is_short else None,
        "kept": report.is_kept,
        "notes": list(report.notes),
        "options": report.options,
        "sizes": [
            {
                **dict(zip(report.sizes, values)),
                "seconds": ratio.seconds,
                "gain": math.exp(-ratio.log),
                "noise": ratio.noise,
            }
            for values, ratio in report.confirmed.items()
        ],
        "trials": [
            {"options": str(a.options), "state": a.state, "reason": a.reason} for a in report.trials
        ],
    }
