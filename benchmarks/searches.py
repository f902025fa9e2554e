# SPDX-License-Identifier: Apache-2.0
"""Guided against genetic search, by what they find in as many trials. `./dev bench searches`.

Each search tunes each kernel's ranges of sizes from nothing, with the same budget of trials, the
same six sizes and the same seeds; gains are measured again after the search. With `--records
FILE` a run goes on where one before it stopped, and `--seconds` ends it early.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.statistics import geometric_mean
from benchmarks.suite import BY_NAME
from benchmarks.surroundings import cores_for, environment_for
from benchmarks.tuned import declared_kernel

KERNELS = ("tmm", "conv", "layernorm", "rnn")
SEARCHES = ("guided", "genetic")
Found = dict[str, Any]


def run(name: str, search: str, seed: int, trials: int) -> Found:
    """One search: the gain that was confirmed, and the best so far by trials."""
    kernel = declared_kernel(BY_NAME[name])
    start = time.monotonic()
    report = kernel.tune(candidates=trials, seed=seed, search=search, progress=False)
    return {
        "kernel": name,
        "search": search,
        "seed": seed,
        "trials": trials,
        "gain": report.gain,
        "seconds": time.monotonic() - start,
        "best": [round(gain, 4) for _, gain in report.convergence()],
    }


def lines(found: Sequence[Found]) -> list[str]:
    """A table: a row a kernel, the gains of all seeds, and their means."""
    header = ("kernel", *(f"{s}: gains, mean" for s in SEARCHES))
    rows = [f"| {' | '.join(header)} |", "|---|" + "--:|" * len(SEARCHES)]
    for name in dict.fromkeys(f["kernel"] for f in found):
        cells = [
            _cell([f for f in found if (f["kernel"], f["search"]) == (name, s)]) for s in SEARCHES
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    means = [geometric_mean([f["gain"] for f in found if f["search"] == s]) for s in SEARCHES]
    rows.append(f"| all | {' | '.join(f'{m:.3f}' for m in means)} |")
    return rows


def _cell(some: Sequence[Found]) -> str:
    if not some:
        return ""
    gains = [f["gain"] for f in some]
    return f"{', '.join(f'{g:.3f}' for g in gains)}; {geometric_mean(gains):.3f}"


def main(given: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="./dev bench searches", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", default=list(KERNELS), choices=tuple(BY_NAME), metavar="KERNEL")
    add("--trials", type=int, default=64)
    add("--seeds", type=int, nargs="+", default=[0, 1])
    add("--threads", type=int, default=1)
    add("--records", type=Path, help="keep every search there, go on from there")
    add("--seconds", type=float, default=math.inf, help="start no search after so long")
    arguments = parser.parse_args(given)
    os.sched_setaffinity(0, set(cores_for(arguments.threads)))
    until = time.monotonic() + arguments.seconds
    path = arguments.records
    found: list[Found] = json.loads(path.read_text()) if path and path.exists() else []
    todo = [
        (name, search, seed)
        for name in arguments.only
        for seed in arguments.seeds
        for search in SEARCHES
    ]
    known = {
        (f["kernel"], f["search"], f["seed"]) for f in found if f["trials"] == arguments.trials
    }
    for key in todo:
        if key in known:
            continue
        if time.monotonic() > until:
            print("not done; the same command goes on", file=sys.stderr)
            break
        with tempfile.TemporaryDirectory() as cache:
            os.environ.update(environment_for(arguments.threads, None, cache))
            found.append(run(*key, arguments.trials))
        if path:
            path.write_text(json.dumps(found) + "\n")
    print("\n".join(lines(found)))
