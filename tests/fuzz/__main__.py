"""`python -m tests.fuzz --minutes 10 --seed 0`: random programs, compiled against interpreted."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

from tests.fuzz import coverage
from tests.fuzz.compare import MODES, Failure, run_case
from tests.fuzz.generate import random_program
from tests.fuzz.model import Case
from tests.fuzz.reduce import reduce_case


def main() -> int:
    arguments = _arguments()
    modes = tuple(arguments.modes.split(","))
    deadline = time.monotonic() + 60 * arguments.minutes
    totals: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    shown: Counter[str] = Counter()
    applied: Counter[str] = Counter()
    seed = arguments.seed
    while time.monotonic() < deadline and totals["programs"] < arguments.programs:
        case = random_program(
            random.Random(seed), seed % 4 if arguments.level < 0 else arguments.level
        )
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
                _show(seed, case, failures, reduces=not arguments.no_reduce)
        seed += 1
    print("; ".join(f"{count} {what}" for what, count in totals.items()))
    for kind, count in seen.most_common():
        print(f"{count:6}  {kind}")
    if arguments.coverage:
        print(coverage.report(applied, totals["programs"]))
    return 1 if totals["failures"] else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0, help="first seed; each program takes one")
    parser.add_argument("--programs", type=int, default=1 << 60, help="stop after so many")
    parser.add_argument("--level", type=int, default=-1, help="0, 1, 2, 3; default: in turn")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--show", type=int, default=2, help="failures shown of each kind")
    parser.add_argument("--rejected", action="store_true", help="print rejected programs")
    parser.add_argument("--no-reduce", action="store_true")
    parser.add_argument("--coverage", action="store_true", help="count programs that passes change")
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

        start = replace(case, sizes=(failure.sizes,)) if failure.sizes else case
        case = reduce_case(start if fails(start) else case, fails)
    layouts = {i.tensor.name: (i.values, i.layout) for i in case.inputs}
    modes = ", ".join(dict.fromkeys(f.mode for f in failures))
    print(f"==== seed {seed}: {found.kind} ({modes}), sizes {found.sizes}, inputs {layouts}")
    print(f"{case.source}{found.details}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
