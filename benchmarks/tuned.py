# SPDX-License-Identifier: Apache-2.0
"""Options tuned at few sizes, used at others: what is lost. `./dev bench tuned`.

Each kernel is tuned for its ranges of sizes within a budget: the tuner searches at six sizes that
it chooses. At random sizes all the best candidates of that search then compete with the tuned
options; at a few of them, what a search for this size alone finds competes, too. First calls of a
size have the options of its region; once strategy `auto` has measured the candidates at the size,
as another process does beside the calls, it has the fastest of these. What the default
loses to copies of itself by the same procedure is the noise. With `--records FOLDER` a run goes on
where one before it stopped, and `--seconds` ends it early: a long run can be made in parts, at
quiet times.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.case import Case
from benchmarks.sizes import random_rows
from benchmarks.stream import KERNELS, command_text
from benchmarks.suite import BY_NAME
from benchmarks.surroundings import cores_for, environment_for

if TYPE_CHECKING:
    from tcsym.options import Options

TUNED_SIZES = 6
MEAN_GOAL, WORST_GOAL = 1.05, 1.20
SEARCH_BUDGET = "8s"
AFTER_BUDGET = 15.0  # seconds that a tune may need to measure its result again
Values = tuple[int, ...]
Record = dict[str, Any]


class Tuned:
    """One kernel: its record, and what is yet to be measured."""

    def __init__(self, name: str, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments = arguments
        self.path = folder / f"{name}.json"
        case = BY_NAME[name]
        self.kernel = declared_kernel(case)
        self.target = self.kernel._dispatcher.making.target
        rows = random_rows(case, arguments.count, arguments.seed + 1000)
        names = self.kernel.sizes
        self.others = [tuple(row.sizes[n] for n in names) for row in rows]
        self.record: Record = {"kernel": name, "sizes": list(names), "lost": []}
        self.record |= {"noise": [], "searched": []}
        if self.path.exists():
            self.record = json.loads(self.path.read_text())

    @property
    def is_done(self) -> bool:
        n_searched = min(self.arguments.searched, len(self.others))
        is_measured = all(len(self.record[k]) >= len(self.others) for k in ("lost", "noise"))
        return is_measured and self._n_searched >= n_searched

    @property
    def _n_searched(self) -> int:
        return len(self.record["searched"])

    def go_on(self, until: float) -> None:
        """Measure what is missing, until time is up; keep each figure at once."""
        if "gain" not in self.record:
            if time.monotonic() + _seconds(self.arguments.budget) + AFTER_BUDGET > until:
                return
            self._tune()
        todo = self.others[len(self.record["lost"]) :]
        self._add("lost", self._certified(todo), until)
        todo = self.others[len(self.record["noise"]) :]
        self._add("noise", self._noise(todo), until)
        todo = self.others[self._n_searched : self.arguments.searched]
        self._add("searched", map(self._searched, todo), until - _seconds(SEARCH_BUDGET))

    def _add(self, key: str, figures: Iterator[tuple[Any, ...]], until: float) -> None:
        while time.monotonic() < until:
            some = list(islice(figures, 1 if key == "searched" else 10))
            if not some:
                return
            self.record[key] += [[list(values), *factors] for values, *factors in some]
            self._keep()

    def _keep(self) -> None:
        self.path.write_text(json.dumps(self.record) + "\n")

    def _tune(self) -> None:
        budget, seed = self.arguments.budget, self.arguments.seed
        report = self.kernel.tune(budget=budget, progress=False, seed=seed)
        self.record |= {
            "gain": report.gain,
            "gain_interval": list(report.interval),
            "seconds": report.seconds,
            "trials": len(report.trials),
            "failed": len(report.failures),
            "regions": report.options.splitlines(),
        }
        self._keep()

    # ---- what is lost

    def _certified(self, todo: Sequence[Values]) -> Iterator[tuple[Any, ...]]:
        """Against the candidates of the tune, which may have been another process' work.

        What calls lose that go on for long, and what first calls do.
        """
        from tcsym.tuning.regret import certify
        from tcsym.tuning.trials import Trials

        request, serving = self._request(), self._serving()
        trials = Trials(self.kernel.program, self.target, request.context).stored()
        return ((v, *lost) for v, lost in certify(request, serving, trials, todo))

    def _serving(self) -> Callable[[Values], tuple[Options, Options]]:
        """The options that `auto` measures to be the fastest at sizes, and those of their region.

        Each choice of sizes is measured once, as in a process beside the calls.
        """
        from tcsym.dispatch.refine import Contest
        from tcsym.tuning.tree import leaf_of

        tree, contest = self._tree(), Contest(self.kernel._dispatcher.making)

        def serving(values: Values) -> tuple[Options, Options]:
            first = leaf_of(tree, values).options
            found = contest.fastest(values, self.arguments.threads)
            return first if found is None else found.options, first

        return serving

    def _noise(self, todo: Sequence[Values]) -> Iterator[tuple[Values, float]]:
        from tcsym.tuning.regret import noise

        return noise(self._request(), todo)

    def _searched(self, values: Values) -> tuple[Values, float]:
        """Against all that a search at these sizes alone finds, without any store."""
        from tcsym.tuning.regret import certify

        serving = self._serving()
        settled = serving(values)[:1]
        os.environ["TCSYM_OPTIONS"] = "0"
        sizes = dict(zip(self.record["sizes"], values))
        report = self.kernel.tune([sizes], budget=SEARCH_BUDGET, progress=False)
        rivals = report.trials
        ((_, (factor,)),) = certify(self._request(), lambda _: settled, rivals, [values])
        del os.environ["TCSYM_OPTIONS"]
        return values, factor

    def _request(self) -> Any:
        from tcsym.tuning.declared import context_for
        from tcsym.tuning.distribution import distribution_of
        from tcsym.tuning.request import Request

        program = self.kernel.program
        declared = self.kernel.settings.sizes
        drawn = distribution_of(program, None, declared, None, 0)
        context = context_for(program, declared, drawn)
        return Request(program, self.target, drawn, 1, context=context)

    def _tree(self) -> Any:
        from tcsym.tuning.machine import machine_key
        from tcsym.tuning.stores import tree_of, tuned_for

        program = self.kernel.program
        found = tuned_for(program.canonical, machine_key(self.target))
        assert found is not None, "its options are in the folder's cache"
        return tree_of(found[1], len(program.sizes))

    # ---- figures

    def row(self) -> Record | None:
        """What tables show; None before it is tuned and something is measured."""
        if "gain" not in self.record or not self.record["lost"]:
            return None
        kept = ("kernel", "gain", "gain_interval", "seconds", "trials", "failed", "regions")
        settled = [[values, factor] for values, factor, _ in self.record["lost"]]
        found = {key: self.record[key] for key in kept} | _summary(settled)
        worst = max(settled, key=lambda pair: pair[1])[0]
        found["worst_at"] = dict(zip(self.record["sizes"], worst))
        found["first"] = _summary([[v, factor] for v, _, factor in self.record["lost"]])
        for key in ("noise", "searched"):
            if self.record[key]:
                found[key] = _summary(self.record[key])
        return found


def declared_kernel(case: Case) -> Any:
    """The kernel of a case, its sizes declared as the case draws them."""
    import tcsym

    module = tcsym.define(case.text)
    name = next(iter(module))
    ranges = {n: tcsym.Dim(*_range(case, n)) for n in module[name].sizes}
    return tcsym.define(case.text, sizes=ranges)[name]


def _range(case: Case, name: str) -> tuple[int, int]:
    """What a size is drawn from, or what the one that it equals is drawn from."""
    rule = case.ranges[name]
    if isinstance(rule, str):
        return _range(case, rule)
    return (rule, rule) if isinstance(rule, int) else rule


def _summary(pairs: Sequence[tuple[Values, float]]) -> Record:
    from tcsym.tuning.report import Regret

    regret = Regret.of([(tuple(values), factor) for values, factor in pairs])
    within = sum(factor <= MEAN_GOAL for _, factor in pairs) / len(pairs)
    return {
        "others": len(pairs),
        "lost": regret.mean,
        "lost_interval": list(regret.interval),
        "worst": regret.worst,
        "beyond": sum(factor > WORST_GOAL for _, factor in pairs),
        "within": within,
    }


def _seconds(budget: str) -> float:
    from tcsym.tuning.budget import Budget

    return Budget(budget).seconds or 0.0


def print_table(rows: Sequence[Record]) -> None:
    from rich.console import Console
    from rich.table import Table

    goals = f"goals: {MEAN_GOAL:.2f}, worst {WORST_GOAL:.2f}"
    table = Table(title=f"tuned at {TUNED_SIZES} sizes, used at others ({goals})")
    columns = ("kernel", "gain", "trials", "seconds", "other sizes", "lost", "worst")
    for column in (*columns, "first calls", "worst", "noise", "its worst"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for row in rows:
        gain, lost = (_with_interval(row, key) for key in ("gain", "lost"))
        table.add_row(
            *(row["kernel"], gain, str(row["trials"]), f"{row['seconds']:.0f}"),
            *(str(row["others"]), lost, f"{row['worst']:.2f}"),
            *(*_pair(row, "first"), *_pair(row, "noise")),
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _pair(row: Record, key: str) -> tuple[str, str]:
    """What is lost in the mean, and at worst: of first calls, or by copies of one kernel."""
    found = row.get(key)
    return ("", "") if found is None else (f"{found['lost']:.3f}", f"{found['worst']:.2f}")


def _with_interval(row: Record, key: str) -> str:
    low, high = row[f"{key}_interval"]
    return f"{row[key]:.3f} ({low:.3f} to {high:.3f})"


def main(given: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="./dev bench tuned", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", default=list(KERNELS), choices=tuple(BY_NAME), metavar="KERNEL")
    add("--budget", default="45s", help="of each kernel's search; what it found is measured again")
    add("--count", type=int, default=200, help="other sizes to measure")
    add("--searched", type=int, default=4, help="of these, sizes to search for by themselves")
    add("--threads", type=int, default=1)
    add("--seed", type=int, default=0)
    add("--records", type=Path, help="keep everything there, go on from there")
    add("--seconds", type=float, default=math.inf, help="end after about so long")
    add("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args(given)
    os.sched_setaffinity(0, set(cores_for(arguments.threads)))
    until = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.records or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        cache = str(folder / "cache")
        os.environ.update(environment_for(arguments.threads, None, cache))
        kernels = [Tuned(name, arguments, folder) for name in arguments.only]
        for kernel in kernels:
            kernel.go_on(until)
        rows = [row for kernel in kernels if (row := kernel.row())]
    print_table(rows)
    missing = [k.record["kernel"] for k in kernels if not k.is_done]
    if missing:
        print(f"not done: {', '.join(missing)}; the same command goes on", file=sys.stderr)
    if arguments.json:
        found = {"command": command_text(), "tuned": rows}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
