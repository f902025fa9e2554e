# SPDX-License-Identifier: Apache-2.0
"""Programs, sizes -> the table of choices: the time of every plan that `choose` could have taken.

    ./dev choices --out build/choices.jsonl             until stopped; again: goes on where it was
    ./dev choices --out build/choices.jsonl --programs 300 --minutes 120 --target cpu:avx2
    ./dev choices --regret build/choices.jsonl          what the rules lose by it
    ./dev choices --prices build/choices.jsonl          what choosing by counted instructions would

A line of the table is a program at some sizes: for each plan that ran, as text, the option that
forced it and the least of its times, in nanoseconds of one thread's processor time. `m.columns` is
the version of directives of that name for the nest `m`, given as a text; `0.Strips` the plan of
that name for the first nest, from the stage that has plans by name; none, what is taken. Rounds go
through all plans in turn, so that what disturbs a machine disturbs all. Each program runs in a
process of its own; results are compared, and plans that give others are told and left out.

Costs are fitted to the table, and the regret of `choose` is read from it (`benchmarks/choices`).
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from itertools import islice
from pathlib import Path

import tcsym
from tools.choices.measure import measure
from tools.choices.prices import prices_lines
from tools.choices.programs import Drawn, programs
from tools.choices.regret import regret_lines

TABLE = Path(__file__).parents[2] / "benchmarks" / "choices" / "table.jsonl.xz"


def main() -> int:
    given = _arguments()
    if given.regret is not None:
        print("\n".join(regret_lines(given.regret or [TABLE])))
        return 0
    if given.prices is not None:
        print("\n".join(prices_lines(given.prices or [TABLE], given.programs)))
        return 0
    done = measured(given.out)
    until = time.monotonic() + 60 * given.minutes
    families = given.only.split(",") if given.only else []
    wanted = (d for d in programs(given.seed) if not families or d.family in families)
    for drawn in islice(wanted, given.programs):
        if time.monotonic() > until:
            break
        if drawn.name not in done:
            _run(drawn, given)
    return 0


def measured(out: Path) -> set[str]:
    """Names of programs that the table has; a line that was cut off is as if it were not there."""
    if not out.exists():
        return set()
    done = set()
    for text in out.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if "done" in line:
            done.add(line["done"])
    return done


def _run(drawn: Drawn, given: argparse.Namespace) -> None:
    """In a process of its own; one that dies or takes too long is done, too."""
    given.out.parent.mkdir(parents=True, exist_ok=True)
    process = multiprocessing.get_context("fork").Process(target=_work, args=(drawn, given))
    process.start()
    process.join(given.limit)
    if process.exitcode != 0:
        print(f"{drawn.name}: exit status {process.exitcode}", file=sys.stderr, flush=True)
        process.kill()
        process.join()
        with given.out.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps({"done": drawn.name}) + "\n")


def _work(drawn: Drawn, given: argparse.Namespace) -> None:
    tcsym.set_num_threads(1)
    with given.out.open("a", encoding="utf-8") as file:
        try:
            for line in measure(drawn, given.target, given.sizes, given.seed):
                file.write(json.dumps(line) + "\n")
                file.flush()
        except tcsym.TCError as error:
            print(f"{drawn.name}: {error.kind}", file=sys.stderr)
        file.write(json.dumps({"done": drawn.name}) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev choices", description=(__doc__ or "").partition("\n")[0]
    )
    add = parser.add_argument
    add("--regret", nargs="*", type=Path, metavar="TABLE", help="read tables, measure nothing")
    add("--prices", nargs="*", type=Path, metavar="TABLE", help="what choosing by cost would lose")
    add("--out", type=Path, default=Path("build/choices.jsonl"))
    add("--target", default="cpu")
    add("--only", default="", help="families: products, rows, windows, scans, gathers, …")
    add("--programs", type=int, help="no more than so many")
    add("--minutes", type=float, default=math.inf)
    add("--sizes", type=int, default=16, help="of each program")
    add("--seed", type=int, default=0)
    add("--limit", type=float, default=120, help="seconds for a program")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
