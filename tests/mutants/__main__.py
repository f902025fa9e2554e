# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.mutants`: plants each bug in a copy of the package and sees who finds it.

By the verifier and the proofs (`proofs`), a few programs in the twin of a device (`twin`), tests of
the part that is changed and the differential ones (`differential`), and the fuzzer in its default
modes (`fuzz`), within two minutes each. The package as it is comes first, as `control`: what fails
there finds nothing.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from tests.mutants.means import MEANS, Limits, Outcome, end_all, planted, reached, tried
from tests.mutants.reach import Ways
from tests.mutants.table import MUTANTS, PARTS

CONTROL = "control"
GOAL, GOAL_OF_FUZZ = 0.95, 0.8
PROGRAMS = 200  # about what a core tries within two minutes
Found = dict[str, dict[str, Outcome]]


def main() -> int:
    arguments = _arguments()
    names = arguments.only or [CONTROL, *_of(arguments.part)]
    means = tuple(arguments.by.split(","))
    results = Path(arguments.results) if arguments.results else None
    arguments.ways = _ways(arguments)
    found = _known(results)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    todo = [n for n in names if arguments.again or not set(means) <= found.get(n, {}).keys()]
    pool, jobs = ThreadPoolExecutor(arguments.jobs), {}
    try:
        for n in todo:
            missing = [m for m in means if arguments.again or m not in found.get(n, {})]
            jobs[pool.submit(_tried, n, missing, arguments)] = n
        for job in as_completed(jobs):
            name = jobs[job]
            found.setdefault(name, {}).update(job.result())
            print(_line(name, found[name], means), flush=True)
            if results is not None:
                every = {n: {m: asdict(o) for m, o in x.items()} for n, x in found.items()}
                results.write_text(json.dumps(every, indent=1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_all()
    return _summary({n: found[n] for n in names}, means)


def _tried(name: str, means: list[str], arguments: argparse.Namespace) -> dict[str, Outcome]:
    ways = arguments.ways.get(name) if arguments.ways is not None else None
    limits = Limits(arguments.seconds, arguments.programs, ways)
    with planted(MUTANTS.get(name)) as (directory, place):
        found: dict[str, Outcome] = {}
        for m in means:
            found[m] = tried(m, directory, place, limits)
            if found[m].caught and arguments.first:
                break
        return found


def _ways(arguments: argparse.Namespace) -> dict[str, Ways] | None:
    """What the file says; without one, it is made."""
    if not arguments.reached:
        return None
    file = Path(arguments.reached)
    if not file.exists():
        file.write_text(json.dumps(reached(arguments.programs or PROGRAMS)))
    found: dict[str, Ways] = json.loads(file.read_text())
    return found


def _known(results: Path | None) -> Found:
    if results is None or not results.exists():
        return {}
    data: Mapping[str, Mapping[str, Any]] = json.loads(results.read_text())
    return {n: {m: Outcome(**o) for m, o in x.items()} for n, x in data.items()}


def _of(part: str) -> list[str]:
    return [m.name for m in PARTS[part]] if part else list(MUTANTS)


# ---- what is printed


def _line(name: str, outcomes: Mapping[str, Outcome], means: tuple[str, ...]) -> str:
    cells = []
    for m in means:
        o = outcomes.get(m)
        text = "" if o is None else f"{'found' if o.caught else '-'} {o.seconds:.0f}s"
        cells.append(f"{text:12}")
    how = next((o.how for m in reversed(means) if (o := outcomes.get(m)) and o.caught), "")
    return f"{name:34} {' '.join(cells)} {how[:60]}".rstrip()


def _summary(found: Found, means: tuple[str, ...]) -> int:
    """The rates, and 1 if the goals are missed or the package itself fails."""
    control = found.pop(CONTROL, {})
    false_alarms = [m for m, o in control.items() if o.caught]
    if false_alarms:
        print(f"control: fails by {', '.join(false_alarms)}")
    if not found:
        return 1 if false_alarms else 0
    n, reached = len(found), True
    for m in means:
        asked = [x[m] for x in found.values() if m in x]
        caught = sum(o.caught for o in asked)
        print(f"{m}: {caught} of {len(asked)}")
        if m == "fuzz":
            reached = caught >= GOAL_OF_FUZZ * len(asked)
    caught = sum(any(o.caught for o in x.values()) for x in found.values())
    print(f"by all: {caught} of {n}")
    for name, x in found.items():
        if not any(o.caught for o in x.values()):
            print(f"  not found: {name} ({MUTANTS[name].mechanism})")
    reached = reached and (set(means) != set(MEANS) or caught >= GOAL * n)
    return 0 if reached and not false_alarms else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[CONTROL, *MUTANTS])
    parser.add_argument("--part", default="", choices=PARTS, help="of the table")
    parser.add_argument("--by", default=",".join(MEANS), help="of " + ", ".join(MEANS))
    parser.add_argument("--jobs", type=int, default=1, help="bugs at a time")
    parser.add_argument("--seconds", type=float, default=120, help="for each means")
    parser.add_argument(
        "--programs", type=int, default=0, help="of the fuzzer, in place of seconds, if busy"
    )
    parser.add_argument("--reached", metavar="FILE", help="of those, what runs the changed code")
    parser.add_argument("--first", action="store_true", help="the first means that finds a bug")
    parser.add_argument("--results", metavar="FILE", help="JSON, read first: what is there is kept")
    parser.add_argument("--again", action="store_true", help="also what FILE has")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
