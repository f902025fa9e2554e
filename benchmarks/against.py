# SPDX-License-Identifier: Apache-2.0
"""`./dev bench against COMMIT`: these files beside another commit's, kernel by kernel.

Each version has a process of its own; both get the same programs and inputs, with one thread, and
take turns in short stretches of calls. A stretch is timed by what its thread worked, so other
processes on the core are not counted. A ratio is the commit's least time over ours: below 1 we are
slower. Some kernels have two speeds by the pages that their arrays get, so rows that differ much
are measured again in several pairs of new processes; then the middle one of each version counts.

Ends with 1 if the geometric mean is below 0.99 or a row is below 0.9 with its whole interval, which
is that of seven pairs of processes then. `--mean 0.97 --row 0.85` allows more: a budget.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from benchmarks.rounds import WorkerDied, WorkerProcess
from benchmarks.sizes import Row, rows_of
from benchmarks.startup import startup_row
from benchmarks.statistics import Ratio, geometric_mean, ratio
from benchmarks.suite import CALL, CASES, SUITE
from benchmarks.surroundings import compile_python_files, environment_for

TREE = Path(__file__).resolve().parent.parent
KEPT = TREE / "build" / "against"
PLAIN = "tcsym"
_ROUNDS = 15
_SAMPLE_MS = 3.0  # of a stretch: long beside the clock, short beside a time slice
_AGAIN = 6  # times that a row is measured again
_RESAMPLES = 1000


class Budget(Struct, frozen=True):
    """What changes may cost: least ratios, of the mean and of a row."""

    mean: float = 0.99
    row: float = 0.9


USUAL = Budget()


class Side(Protocol):
    """A version's process."""

    def ask(self, do: str, **request: Any) -> Any: ...

    def close(self) -> None: ...


Turns = tuple[list[float], list[float]]  # the commit's ms and ours, of a pair of processes
Samples = dict[str, list[Turns]]  # by contestant


class Compared(Struct, frozen=True):
    """One row: what was measured, and failures by version."""

    name: str
    samples: Samples
    failures: dict[str, str]

    def ratio(self, contestant: str = PLAIN) -> Ratio | None:
        turns = self.samples.get(contestant)
        return ratio_of(turns) if turns else None

    def least(self, side: int, contestant: str = PLAIN) -> float:
        """Milliseconds of the middle process."""
        return statistics.median(min(t[side]) for t in self.samples[contestant])

    def over_substituted(self, side: int) -> float | None:
        """Symbolic sizes against the better of both ways to substitute them."""
        known = [n for n in ("tcsym after", "tcsym before") if n in self.samples]
        if not known or PLAIN not in self.samples:
            return None
        return min(self.least(side, n) for n in known) / self.least(side)


def ratio_of(turns: Sequence[Turns]) -> Ratio:
    """Of one pair of processes by its rounds, of several by the least times of each."""
    if len(turns) == 1:
        return ratio(*turns[0])
    pairs = [(min(theirs), min(ours)) for theirs, ours in turns]
    rng = random.Random(0)
    value = _ratio_of_middles(pairs)
    drawn = sorted(_ratio_of_middles(rng.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
    cut = _RESAMPLES // 40
    return Ratio(value, drawn[cut], drawn[-1 - cut], len(turns))


def _ratio_of_middles(pairs: Sequence[tuple[float, float]]) -> float:
    return statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)


class Pair:
    """Both versions' processes, started again when told or when one died."""

    def __init__(self, start: Callable[[int], Side], threads: int = 1) -> None:
        self._start = start
        self._threads = threads
        self._sides = [start(0), start(1)]

    def renew(self) -> None:
        self.close()
        self._sides = [self._start(0), self._start(1)]

    def close(self) -> None:
        for side in self._sides:
            side.close()

    def compare(self, row: Row) -> Compared:
        """Whatever goes wrong with a row is told in it."""
        answers, failures = list[dict[str, Any]](), dict[str, str]()
        samples: Samples = {}
        try:
            for version, side in zip(("commit", "here"), self._sides):
                request = {"case": row.case.name, "sizes": dict(row.sizes)}
                answer = side.ask("prepare", **request, threads=self._threads, target=None)
                answers.append(answer["contestants"])
                failures |= {f"{version}: {k}": v for k, v in answer["failures"].items()}
            for name in answers[0]:
                if name in answers[1]:
                    samples[name] = [self._take_turns(name, [a[name]["call_ms"] for a in answers])]
        except WorkerDied as died:
            failures["process"] = str(died)
            self.renew()
        return Compared(row.label, samples, failures)

    def _take_turns(self, name: str, call_ms: Sequence[float]) -> Turns:
        """The same number of calls for both; who begins alternates."""
        repeats = max(1, min(100_000, round(_SAMPLE_MS / max(min(call_ms), 1e-6))))
        clock = "thread" if self._threads == 1 else "wall"
        found: Turns = ([], [])
        for turn in range(_ROUNDS):
            for k in (0, 1) if turn % 2 else (1, 0):
                request = {"contestant": name, "repeats": repeats, "clock": clock}
                found[k].append(self._sides[k].ask("time", **request))
        return found


def compare_rows(
    rows: Iterable[Row],
    pair: Pair,
    say: Callable[[str], None],
    budget: Budget = USUAL,
) -> list[Compared]:
    """All rows, then those again whose versions seem to differ."""
    listed = list(rows)
    found = list[Compared]()
    for row in listed:
        found.append(pair.compare(row))
        say(line_of(found[-1]))
    for k, row in enumerate(listed):
        first = found[k].ratio()
        if first is None or budget.row <= first.value <= 1 / budget.row:
            continue  # far to either side: if only slow rows had another chance, we were favoured
        for _ in range(_AGAIN):
            pair.renew()
            found[k] = pooled(found[k], pair.compare(row))
        say(f"again {line_of(found[k])}")
    return found


def pooled(first: Compared, second: Compared) -> Compared:
    both = dict(first.samples)
    for name, turns in second.samples.items():
        both[name] = [*both.get(name, []), *turns]
    return Compared(first.name, both, first.failures | second.failures)


def line_of(row: Compared) -> str:
    r = row.ratio()
    if r is None:
        return f"{row.name}: {'; '.join(f'{k}: {v}' for k, v in row.failures.items())}"
    text = (
        f"{r.value:.3f} [{r.low:.3f}, {r.high:.3f}]  {row.least(0):9.4f} / {row.least(1):9.4f} ms"
    )
    return f"{text}  {row.name}"


# ---- what it comes to


class Verdict(Struct, frozen=True):
    budget: Budget
    mean: float
    rows: int
    below: list[Compared]  # with their whole interval
    near: list[Compared]  # with a part of it

    @property
    def holds(self) -> bool:
        return self.rows > 0 and self.mean >= self.budget.mean and not self.below


def verdict_on(
    found: Sequence[Compared],
    budget: Budget = USUAL,
) -> Verdict:
    compared = [(c, r) for c in found if (r := c.ratio())]
    slow = [(c, r) for c, r in compared if r.value < budget.row]
    return Verdict(
        budget,
        geometric_mean(r.value for _, r in compared),
        len(compared),
        [c for c, r in slow if r.high < budget.row],
        [c for c, r in slow if r.high >= budget.row],
    )


def lines_of(
    found: Sequence[Compared],
    budget: Budget = USUAL,
) -> list[str]:
    verdict = verdict_on(found, budget)
    compared = sorted((r.value, line_of(c)) for c in found if (r := c.ratio()))
    lines = [line for _, line in compared]
    lines += [f"not compared: {line_of(c)}" for c in found if not c.ratio()]
    lines += [f"below {budget.row}: {c.name}" for c in verdict.below]
    lines += [f"below {budget.row}, not with its whole interval: {c.name}" for c in verdict.near]
    lines.append(f"{verdict.rows} rows, geometric mean {verdict.mean:.4f}")
    within = "within" if verdict.holds else "not within"
    lines.append(f"{within} the budget: mean {budget.mean}, rows {budget.row}")
    for k, version in enumerate(("commit", "here")):
        known = [x for c in found if (x := c.over_substituted(k))]
        if known:
            mean = geometric_mean(known)
            lines.append(
                f"symbolic against substituted, {version}: {mean:.4f} of {len(known)} rows"
            )
    return lines


def startup_lines(found: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    lines = []
    for version, rows in zip(("commit", "here"), found):
        kinds = ("import", "cold", "cold_work", "warm", "warm_work")
        middle = {k: statistics.median(r[k] for r in rows) for k in kinds}
        worst = max(r["cold"] for r in rows)
        text = ", ".join(f"{k.replace('_', ' ')} {v:.0f} ms" for k, v in middle.items())
        lines.append(f"first result, {version}: {text} (medians); worst cold {worst:.0f} ms")
    return lines


# ---- the versions


def tree_of(commit: str) -> Path:
    """Its files and native module in build/, with the benchmark of here."""
    tree = KEPT / commit[:12]
    if tree.exists():
        return tree
    KEPT.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=KEPT))
    archive = subprocess.run(["git", "archive", commit], cwd=TREE, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=unfinished, check=True, input=archive.stdout)
    shutil.rmtree(unfinished / "benchmarks")
    (unfinished / "benchmarks").symlink_to(TREE / "benchmarks")
    if (unfinished / "setup.py").exists():
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        subprocess.run(command, cwd=unfinished, check=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "tcsym"], cwd=unfinished, check=True)
    unfinished.replace(tree)
    return tree


def arguments_of(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench against", description=__doc__)
    add = parser.add_argument
    add("commit", help="what to compare with")
    add("--only", nargs="+", default=[""], metavar="TEXT", help="kernels whose name has one")
    add("--part", choices=("suite", "all"), default="all")
    add("--sizes", choices=("suite", "ragged", "random"), default="suite")
    add("--mean", type=float, default=USUAL.mean, help="least geometric mean of all ratios")
    add("--row", type=float, default=USUAL.row, help="least ratio of a row")
    add("--seed", type=int, default=0, help="of random sizes")
    add("--count", type=int, default=4, help="random sizes of each kernel")
    add("--threads", type=int, default=1, help="of a call; several are timed by the clock")
    add("--substituted", action="store_true", help="also with sizes substituted")
    add("--startup", action="store_true", help="first results instead, in new processes")
    add("--json", type=Path, help="write what was measured there")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> None:
    arguments = arguments_of(given)
    name = ["git", "rev-parse", "--verify", f"{arguments.commit}^{{commit}}"]
    commit = subprocess.run(name, cwd=TREE, check=True, text=True, capture_output=True).stdout
    trees = (tree_of(commit.strip()), TREE)
    known = CASES if arguments.sizes == "random" else (*CASES, CALL)
    cases = [
        c
        for c in (SUITE if arguments.part == "suite" else known)
        if any(text in c.name for text in arguments.only)
    ]
    with tempfile.TemporaryDirectory() as caches:
        if arguments.startup:
            record: Any = _startup(cases, trees)
            lines, code = startup_lines(record), 0
        else:
            budget = Budget(arguments.mean, arguments.row)
            found = _compared(arguments, cases, trees, caches, budget)
            lines, code = lines_of(found, budget), 0 if verdict_on(found, budget).holds else 1
            record = [{"name": c.name, "samples": c.samples, "failures": c.failures} for c in found]
    print("\n".join(lines))
    if arguments.json:
        arguments.json.write_text(json.dumps(record) + "\n")
    sys.exit(code)


def _compared(
    arguments: argparse.Namespace,
    cases: Sequence[Any],
    trees: Sequence[Path],
    caches: str,
    budget: Budget,
) -> list[Compared]:
    peers = [PLAIN, "substituted"] if arguments.substituted else [PLAIN]

    def start(k: int) -> Side:
        environment = environment_for(arguments.threads, None, f"{caches}/{k}")
        return WorkerProcess(peers, environment, trees[k])

    pair = Pair(start, arguments.threads)
    rows = rows_of(cases, arguments.sizes, arguments.count, arguments.seed)
    try:
        return compare_rows(
            rows, pair, lambda text: print(text, file=sys.stderr, flush=True), budget
        )
    finally:
        pair.close()


def _startup(cases: Sequence[Any], trees: Sequence[Path]) -> list[list[dict[str, Any]]]:
    """Kernel by kernel, both versions in turn."""
    compile_python_files()
    environment = environment_for(1, None, "")
    found: list[list[dict[str, Any]]] = [[], []]
    for case in (c for c in cases if c is not CALL):  # a call has no sizes to draw
        for k, tree in enumerate(trees):
            found[k].append(startup_row(case, 3, environment, tree))
    return found
