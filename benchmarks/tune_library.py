# SPDX-License-Identifier: Apache-2.0
"""Options for the library's kernels, to be shipped: `./dev tune-library [NAMES]`.

Each kernel is tuned for the sizes its file declares. What was found is then measured beside the
default at sizes drawn anew, on one thread and on all, and is shipped only where it wins there
beyond doubt. Fields that say how much work there is for threads stay at their defaults: other
machines have other numbers of cores. `--check` only measures again what is shipped and drops what
wins no more, after a change of the compiler say.

The files are in autotune_cache/: one for a kernel, with a date and features for each machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

os.environ["TCSYM_VERIFY"] = "0"

from tcsym import library, set_num_threads
from tcsym.errors import TCError
from tcsym.frontend.program import Program
from tcsym.options import Options
from tcsym.target.target import Target
from tcsym.tuning.distribution import Distribution, Values, distribution_of
from tcsym.tuning.machine import machine_key
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.request import DEFAULT, Request, template_job
from tcsym.tuning.rows import Tuned
from tcsym.tuning.shipped import DIRECTORY, file_name, read, tuned_text
from tcsym.tuning.start import structure_of
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Leaf, Tree, leaf_of, tree_from_json, tree_text, tree_to_json
from tcsym.tuning.workers import WorkerPool

KEPT_FIELDS = frozenset({"parallel_loops", "min_work_per_thread"})
MEASURED_SECONDS = 0.04  # at one size; a confirmation takes four times as long
LEAST_GAIN, WORST = 0.01, 0.10  # logarithms of time: in the mean beyond doubt; lost at any size
_DOUBT = 1.96  # standard errors


class Proof(Struct, frozen=True):
    """Logarithms of time by the default's at fresh sizes; for each number of threads."""

    logs: Mapping[int, Mapping[Values, float]]

    def mean(self, threads: int) -> tuple[float, float]:
        """The mean, and half of its 95 % interval."""
        found = list(self.logs[threads].values())
        mean = sum(found) / len(found)
        spread = math.sqrt(sum((x - mean) ** 2 for x in found) / max(1, len(found) - 1))
        return mean, _DOUBT * spread / math.sqrt(len(found))

    @property
    def is_good(self) -> bool:
        """Faster on one thread beyond doubt, no slower on more, at no size much slower."""
        for threads in self.logs:
            mean, half = self.mean(threads)
            wanted = -LEAST_GAIN if threads == 1 else LEAST_GAIN
            if mean + half > wanted or max(self.logs[threads].values()) > WORST:
                return False
        return True

    def __str__(self) -> str:
        parts = []
        for threads, logs in self.logs.items():
            mean, half = self.mean(threads)
            low, high = math.exp(-mean - half), math.exp(-mean + half)
            worst = math.exp(-max(logs.values()))
            parts.append(
                f"{threads} threads {math.exp(-mean):.3f} ({low:.3f} to {high:.3f}, "
                f"least {worst:.2f})"
            )
        return "; ".join(parts)


def proof_of(request: Request, options: Options, sizes: Sequence[Values], most: int) -> Proof:
    """Measure options beside the default."""
    pool = WorkerPool(1, request.timeout, request.memory)
    logs: dict[int, dict[Values, float]] = {}
    try:
        for threads in sorted({1, most}):
            job = replace(template_job(request), threads=threads)
            race = Race(job, pool, request.timeout, {})
            logs[threads] = {}
            for values in sizes:
                race.seconds = {values: MEASURED_SECONDS}
                rival = Attempt(DEFAULT, "measured", "", {values: Ratio(0.0, 0.0, 0.0)})
                attempt = Attempt(options, "raced")
                race.confirm(attempt, rival, (values,))
                logs[threads][values] = attempt.ratios[values].log if attempt.ratios else math.inf
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return Proof(logs)


class Kernel(Struct, frozen=True):
    """One kernel of the library on this machine."""

    name: str
    program: Program
    target: Target

    @staticmethod
    def named(name: str) -> Kernel:
        kernel = library.load(name)
        return Kernel(name, kernel.program, kernel._dispatcher.making.target)

    @property
    def machine(self) -> str:
        return machine_key(self.target)

    @property
    def path(self) -> Path:
        return Path(DIRECTORY) / file_name(self.name, self.program.canonical)

    def rows(self) -> list[Tuned]:
        """What is shipped now, for all machines."""
        return read(str(self.path)) if self.path.exists() else []

    def keep(self, row: Tuned | None) -> None:
        """Ship `row` for this machine; None: nothing."""
        rows = [r for r in self.rows() if r.machine != self.machine] + ([row] if row else [])
        if rows:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(tuned_text(rows), encoding="utf-8")
        else:
            self.path.unlink(missing_ok=True)


def tuned(kernel: Kernel, budget: str, seed: int) -> tuple[Tree, Distribution]:
    """The best options for all declared sizes, as a tree of one leaf."""
    from tcsym.tuning.tune import tune

    ranges = library.sizes(kernel.name)
    distribution = distribution_of(kernel.program, ranges, {}, None, seed)
    request = Request(
        kernel.program,
        kernel.target,
        distribution,
        budget,
        seed=seed,
        progress=False,
        kept_fields=KEPT_FIELDS,
        deepest=0,
    )
    return tune(request).tree, distribution


def ship(kernel: Kernel, arguments: argparse.Namespace, threads: int) -> str:
    """Tune, prove, and write the file. What became of it."""
    tree, distribution = tuned(kernel, arguments.budget, arguments.seed)
    assert isinstance(tree, Leaf)
    if tree.options == DEFAULT:
        kernel.keep(None)
        return "nothing is faster than the default"
    fresh = distribution.draw(kernel.program, arguments.count, arguments.seed + 17)
    request = Request(kernel.program, kernel.target, distribution, 1)
    proof = proof_of(request, tree.options, fresh, threads)
    if not proof.is_good:
        kernel.keep(None)
        return f"not shipped, {tree.options}: {proof}"
    kernel.keep(_row(kernel, tree, fresh, proof))
    return f"shipped, {tree.options}: {proof}"


def check(kernel: Kernel, arguments: argparse.Namespace, threads: int) -> str:
    """Measure again what is shipped for this machine; drop it if it wins no more."""
    rows = [row for row in kernel.rows() if row.machine == kernel.machine]
    if not rows:
        return "nothing is shipped"
    ranges = library.sizes(kernel.name)
    distribution = distribution_of(kernel.program, ranges, {}, None, arguments.seed)
    fresh = distribution.draw(kernel.program, arguments.count, arguments.seed + 17)
    tree = tree_from_json(json.loads(rows[0].tree), len(kernel.program.sizes))
    options = leaf_of(tree, fresh[0]).options
    request = Request(kernel.program, kernel.target, distribution, 1)
    proof = proof_of(request, options, fresh, threads)
    if not proof.is_good:
        kernel.keep(None)
        return f"dropped, {options}: {proof}"
    kernel.keep(_row(kernel, tree, fresh, proof))
    return f"stays, {tree_text(tree, kernel.program.sizes)}: {proof}"


def _row(kernel: Kernel, tree: Tree, fresh: Sequence[Values], proof: Proof) -> Tuned:
    return Tuned(
        kernel.program.canonical,
        kernel.machine,
        structure_of(kernel.program),
        json.dumps(tree_to_json(tree)),
        json.dumps([list(v) for v in fresh]),
        math.exp(-proof.mean(1)[0]),
        datetime.datetime.now(datetime.UTC).date().isoformat(),
        kernel.name,
        kernel.program.source,
    )


def remove_unknown(kernels: Sequence[Kernel]) -> None:
    """Files of programs that the library does not have any more."""
    known = {kernel.path.name for kernel in kernels}
    for path in Path(DIRECTORY).glob("*.json"):
        if path.name not in known:
            path.unlink()
            print(f"{path.name}: removed, its kernel has changed", file=sys.stderr)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="./dev tune-library",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add: Any = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="kernels of the library; default: all")
    add("--budget", default="20s", help="of each kernel's search")
    add("--count", type=int, default=24, help="fresh sizes to prove the result at")
    add("--seed", type=int, default=0)
    add("--check", action="store_true", help="only measure what is shipped, and drop losers")
    arguments = parser.parse_args(given)
    unknown = sorted(set(arguments.names) - set(library.names()))
    if unknown:
        parser.error(f"no kernel `{unknown[0]}` in the library; `tcsym list` lists them")
    kernels = [Kernel.named(name) for name in arguments.names or library.names()]
    if not arguments.names:
        remove_unknown(kernels)
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        parser.error("one core: what is shipped must be proved on several threads, too")
    set_num_threads(cores)
    for kernel in kernels:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TCSYM_CACHE_DIR"] = cache
            try:
                done = (check if arguments.check else ship)(kernel, arguments, cores)
            except TCError as error:
                done = f"failed: {error}"
        print(f"{kernel.name}: {done}", flush=True)


if __name__ == "__main__":
    main()
