# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz --minutes 10 --seed 0`: random programs, compiled against interpreted."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz import coverage
from tests.fuzz.compare import Failure, run_case
from tests.fuzz.generate import random_program
from tests.fuzz.model import Case
from tests.fuzz.reduce import reduce_case

PATIENCE, LONGEST = 100, 600  # seconds that a program may take: of processors, and by the clock
LEVELS = (0, 1, 2, 3, 3)  # in turn


def main() -> int:
    arguments = _arguments()
    return _alone(arguments) if arguments.jobs == 1 else _together(arguments)


def _alone(arguments: argparse.Namespace) -> int:
    deadline = time.monotonic() + 60 * arguments.minutes
    totals: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    shown: Counter[str] = Counter()
    applied: Counter[str] = Counter()
    for seed, modes in _drawn(arguments):
        if time.monotonic() > deadline:
            break
        _watch(arguments, seed)
        level = level_of(seed) if arguments.level < 0 else arguments.level
        case = random_program(random.Random(seed), level)
        watch = coverage.counted_passes(applied) if arguments.coverage else nullcontext(set[str]())
        with watch as changed:
            report = run_case(case, modes)
        applied.update(changed)
        totals["programs"] += 1
        totals["elements"] += report.elements
        totals["calls with equal errors"] += report.errors
        if report.rejected:
            totals[f"rejected ({report.rejected})"] += 1
            if arguments.rejected:
                print(f"---- seed {seed} rejected: {report.rejected}\n{case.source}", flush=True)
        by_kind: dict[str, list[Failure]] = {}
        for failure in report.failures:
            by_kind.setdefault(failure.kind, []).append(failure)
        for kind, failures in by_kind.items():
            totals["failures"] += len(failures)
            seen[kind] += len(failures)
            if shown[kind] < arguments.show:
                shown[kind] += 1
                _stop_watching()
                _show(seed, case, failures, reduces=not arguments.no_reduce)
        if totals["failures"] and arguments.fail_fast:
            break
    _stop_watching()
    print("; ".join(f"{count} {what}" for what, count in totals.items()))
    for kind, count in seen.most_common():
        print(f"{count:6}  {kind}")
    if arguments.coverage:
        print(coverage.report(applied, totals["programs"]))
    sys.stdout.flush()
    return 1 if totals["failures"] else 0


def level_of(seed: int) -> int:
    return LEVELS[seed % len(LEVELS)]


def _drawn(arguments: argparse.Namespace) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Seeds, and the ways in which their programs are tried (none: those drawn for each)."""
    if arguments.ways:
        ways = json.loads(Path(arguments.ways).read_text())
        found = [(int(seed), tuple(modes)) for seed, modes in ways.items()]
        yield from found[arguments.seed :: arguments.stride]
        return
    modes = tuple(x for x in arguments.modes.split(",") if x)
    for k in range(arguments.programs):
        yield arguments.seed + k * arguments.stride, modes


def _watch(arguments: argparse.Namespace, seed: int) -> None:
    """A program that never ends is a failure; which one it was is noted."""
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)  # whose signal ends the process
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    if arguments.note:
        Path(arguments.note).write_text(str(seed))


def _stop_watching() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    faulthandler.cancel_dump_traceback_later()


# ---- several processes


def _together(arguments: argparse.Namespace) -> int:
    """Processes that take the seeds in turns; 1 if one of them finds something, or dies."""
    with TemporaryDirectory() as folder:
        notes = [str(Path(folder, str(k))) for k in range(arguments.jobs)]
        workers = [_worker(arguments, k, note) for k, note in enumerate(notes)]
        codes: dict[int, int] = {}
        try:
            while len(codes) < len(workers) and not (arguments.fail_fast and any(codes.values())):
                time.sleep(0.05)
                codes |= {k: c for k, w in enumerate(workers) if (c := w.exitcode) is not None}
        finally:
            for w in workers:
                w.kill()
                w.join()
        for k, code in codes.items():
            if code not in (0, 1) or (code and not Path(notes[k] + ".end").exists()):
                seed = Path(notes[k]).read_text()
                print(f"==== seed {seed}: the process ended with {code}")
    return 1 if any(codes.values()) else 0


def _worker(arguments: argparse.Namespace, k: int, note: str) -> ForkProcess:
    """A fork: what is imported once serves all."""
    each = -(-arguments.programs // arguments.jobs)
    own = {"seed": arguments.seed + k, "stride": arguments.jobs, "programs": each, "note": note}
    given = argparse.Namespace(**{**vars(arguments), **own})
    worker = get_context("fork").Process(target=_end_with, args=(given,))
    worker.start()
    return worker


def _end_with(arguments: argparse.Namespace) -> None:
    code = _alone(arguments)
    Path(arguments.note + ".end").touch()
    sys.exit(code)


def _arguments() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0, help="first seed; each program takes one")
    parser.add_argument("--programs", type=int, default=1 << 60, help="stop after so many")
    parser.add_argument("--level", type=int, default=-1, help="0, 1, 2, 3; default: in turn")
    parser.add_argument("--ways", default="", metavar="FILE", help="JSON: seed -> modes, no others")
    parser.add_argument("--modes", default="", help="comma-separated; default: drawn for each")
    parser.add_argument("--jobs", type=int, default=min(2, cores), help="processes")
    parser.add_argument("--show", type=int, default=2, help="failures shown of each kind")
    parser.add_argument("--fail-fast", action="store_true", help="stop at the first failure")
    parser.add_argument("--rejected", action="store_true", help="print rejected programs")
    parser.add_argument("--no-reduce", action="store_true")
    parser.add_argument("--coverage", action="store_true", help="count programs that passes change")
    parser.set_defaults(stride=1, note="")  # note: a file that has the seed at work
    return parser.parse_args()


def _show(seed: int, case: Case, failures: list[Failure], reduces: bool) -> None:
    """The first of the failures of one kind, reduced, and the modes in which it happened."""
    failure = found = failures[0]
    if reduces:

        def fails(candidate: Case) -> bool:
            nonlocal found
            same = [
                f for f in run_case(candidate, (failure.mode,)).failures if f.kind == failure.kind
            ]
            found = same[0] if same else found
            return bool(same)

        start = case.at(failure.sizes) if failure.sizes else case
        case = reduce_case(start if fails(start) else case, fails)
    layouts = {i.tensor.name: (i.values, i.layout) for i in case.inputs}
    modes = ", ".join(dict.fromkeys(f.mode for f in failures))
    print(f"==== seed {seed}: {found.kind} ({modes}), sizes {found.sizes}, inputs {layouts}")
    print(f"{case.source}{found.details}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
