# SPDX-License-Identifier: Apache-2.0
"""`tcsym tune`: search for better options of a def, and keep them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from tcsym.errors import OptionError
from tcsym.tuning.budget import Budget

TRACE = ".jsonl"
MOST_SIZES = 8

if TYPE_CHECKING:
    from pathlib import Path

    from tcsym.tuning.report import TuningReport
    from tcsym.tuning.request import Search


class Limit(Struct, frozen=True):
    """How far a tune may go: time, or a number of candidates."""

    budget: str | None = None
    candidates: int | None = None

    def arguments(self, share: float = 1.0) -> dict[str, Any]:
        """Of `Kernel.tune`. share: of it that one of several kernels gets."""
        found = Budget(self.budget, self.candidates)
        if found.trials is not None:
            return {"candidates": max(1, round(share * found.trials))}
        assert found.seconds is not None
        return {"budget": share * found.seconds}

    def will_take(self, what: str) -> str:
        """What the user should know before it begins."""
        found = Budget(self.budget, self.candidates)
        if found.trials is not None:
            n = f"{found.trials} candidate{'s' * (found.trials > 1)}"
            far = f"tries up to {n}, however long that takes"
        else:
            far = f"takes up to {found.seconds:g} s"
        return f"tuning {what} {far}; Ctrl-C ends it and keeps what was found"


def limit_of(budget: str | None, candidates: int | None) -> Limit:
    """UsageError: the options are no limit."""
    try:
        Budget(budget, candidates)
    except OptionError as error:
        raise click.UsageError(error.message.replace("`budget`", "--budget")) from error
    return Limit(budget, candidates)


budget_option: Callable[[Any], Any] = click.option(
    "--budget", metavar="SECONDS", help="Time: 60, or 5min.  [default: 60]"
)
candidates_option: Callable[[Any], Any] = click.option(
    "--candidates", type=click.IntRange(1), help="Try so many, in place of --budget."
)


def refuse_with_trace(**given: object) -> None:
    """UsageError: a trace says these things itself."""
    for name, value in given.items():
        if value:
            raise click.UsageError(f"--{name} does not go with a trace, which says what to tune")


def tune_trace(path: Path, far: Limit, seed: int, search: Search) -> Iterator[TuningReport]:
    """Tune each kernel of a trace for the sizes it spent most time at, weighted by that time.

    What the tune may take is shared in proportion to time, too.
    """
    from tcsym.kernel.definition import define
    from tcsym.recorded import load

    recorded = load(path)
    total = sum(r.seconds for r in recorded) or 1.0
    click.echo(far.will_take(f"{len(recorded)} kernels of {path}"), err=True)
    for r in recorded:
        share = far.arguments(r.seconds / total or 1 / len(recorded))
        kernel = define(r.source, filename=r.filename, target=r.target)[r.kernel]
        calls = r.calls[:MOST_SIZES]
        weights = [c.seconds or 1e-9 for c in calls]
        sizes = [dict(c.sizes) for c in calls]
        yield kernel.tune(sizes, **share, weights=weights, seed=seed, search=search)


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
