# SPDX-License-Identifier: Apache-2.0
"""Tunes while other programs keep the cores busy; what they kept, measured when it is quiet.

`./dev bench noisy`: five kernels of the library, each tuned with one thread and with two, beside a
process that never rests, on the same core and on another one: 20 tunes. Then nothing else runs, and
the options that were kept are timed beside two copies of the default, as calls that programs make:
at the tuned sizes, and at others that the kept regions have. It fails if some are more than 5 %
slower than the default, or a tune took more than its budget and a tenth. With `--records FILE` a
run goes on where one before it stopped; `--no-quiet` and `--only-quiet` do either half.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.surroundings import environment_for

KERNELS: dict[str, list[dict[str, int]]] = {
    "matmul": [{"M": 8, "K": 8, "N": 8}],
    "linear_relu": [{"B": 4, "K": 64, "N": 64}, {"B": 64, "K": 64, "N": 64}],
    "softmax": [{"N": 16, "D": 64}, {"N": 256, "D": 257}],
    "layer_norm": [{"N": 32, "D": 100}],
    "gelu": [{"M": 16, "N": 128}, {"M": 100, "N": 1000}],
}
LOADS = ("same core", "other core")
THREADS = (1, 2)
SLOWER, OVER = 1.05, 1.10
SECONDS, OTHERS = 0.2, 4  # for one size in one order; sizes of kept regions beside the tuned ones
Found = dict[str, Any]
_BUSY = "import itertools\nfor _ in itertools.repeat(0): pass"


@contextmanager
def load_on(core: int) -> Iterator[None]:
    """A process that keeps that core busy."""
    busy = subprocess.Popen([sys.executable, "-c", _BUSY])
    os.sched_setaffinity(busy.pid, {core})
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def tuned(name: str, budget: float) -> Found:
    """One tune in this process: how long it took, what it kept and where."""
    from tcsym import library
    from tcsym.options import Options
    from tcsym.tuning.tree import leaf_of

    kernel = library.load(name)
    assert kernel.program
    start = time.monotonic()
    report = kernel.tune(KERNELS[name], f"{budget}s", progress=False)
    wall = time.monotonic() - start
    others = report.draw(60, 5)
    kept = [(v, leaf_of(report.tree, v).options) for v in (*report.weights, *others)]
    kept = [(v, options) for v, options in kept if options != Options()]
    tuned_sizes = [x for x in kept if x[0] in report.weights]
    beside = [x for x in kept if x[0] not in report.weights][:OTHERS]
    return {
        "wall": wall,
        "trials": len(report.trials),
        "gain": report.gain,
        "notes": list(report.notes),
        "kept": [[list(v), options.to_json()] for v, options in (*tuned_sizes, *beside)],
    }


def measured(name: str, kept: list[Any]) -> list[float]:
    """Times by the default's of real calls, at each size; with `TCSYM_OPTIONS=0`."""
    import tcsym
    from tcsym import library
    from tcsym.frontend.sample import random_inputs
    from tcsym.options import Options
    from tcsym.tuning.evidence import Sample, verdict_of
    from tcsym.tuning.timing import rounds_of

    source = library.load(name).program.source
    factors = []
    for values, options in kept:
        given = (None, None, Options.from_json(options))
        kernels = [tcsym.define(source, options=o, strategy="symbolic")[name] for o in given]
        program = kernels[0].program
        sizes = dict(zip(program.sizes, values, strict=True))
        inputs = random_inputs([(t.dtype, t.shape) for t in program.inputs], sizes, 0)
        calls = [partial(kernel, *inputs) for kernel in kernels]
        for call in calls * 20:
            call()
        there = rounds_of(calls, SECONDS, 400)
        back = rounds_of(calls[::-1], SECONDS, 400)
        rounds = tuple((a, b, c) for a, b, c in there), tuple((a, b, c) for c, b, a in back)
        samples = [Sample(some) for some in rounds]
        factors.append(math.exp(verdict_of(samples).log))
    return factors


def run(arguments: list[str], threads: int, cores: set[int], **environment: str) -> Any:
    """This module in a process of its own; the JSON that it prints."""
    with tempfile.TemporaryDirectory() as cache:
        env = environment_for(threads, None, cache) | environment
        ran = subprocess.run(
            [sys.executable, "-m", "benchmarks.noisy", *arguments],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
    return json.loads(ran.stdout)


def tune_all(found: dict[str, Found], budget: float, path: Path | None) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    for name in KERNELS:
        for threads in THREADS:
            for place in LOADS:
                key = f"{name}, {threads} threads, {place}"
                if key in found:
                    continue
                cores = {first} if threads == 1 else {first, second}
                with load_on(first if place == "same core" else second):
                    asked = ["--tune", name, "--budget", str(budget)]
                    found[key] = run(asked, threads, cores)
                if path:
                    path.write_text(json.dumps(found, indent=1) + "\n")
                print(f"{key}: {found[key]['wall']:.2f} s", file=sys.stderr, flush=True)


def measure_all(found: dict[str, Found], path: Path | None) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    for key, one in found.items():
        if "factors" in one or not one["kept"]:
            continue
        name, threads, _ = key.split(", ")
        n = int(threads.split()[0])
        asked = ["--measure", name, "--kept", json.dumps(one["kept"])]
        one["factors"] = run(asked, n, set(cores[:n]), TCSYM_OPTIONS="0")
        if path:
            path.write_text(json.dumps(found, indent=1) + "\n")


def lines(found: dict[str, Found]) -> list[str]:
    rows = ["| tune | seconds | trials | claimed | kept at | slowest by default | notes |"]
    rows.append("|---|--:|--:|--:|--:|--:|---|")
    for key, one in found.items():
        slowest = f"{max(one['factors']):.3f}" if one.get("factors") else ""
        cells = f"{one['wall']:.2f}", one["trials"], f"{one['gain']:.3f}", len(one["kept"])
        rows.append(f"| {key} | {' | '.join(map(str, cells))} | {slowest} | {_short(one)} |")
    return rows


def _short(one: Found) -> str:
    return "; ".join(note.split(":")[0] for note in one["notes"])


def failures(found: dict[str, Found], budget: float) -> list[str]:
    slow = [k for k, one in found.items() if max(one.get("factors") or [0]) > SLOWER]
    late = [k for k, one in found.items() if one["wall"] > OVER * budget]
    return [f"slower than the default: {k}" for k in slow] + [f"over budget: {k}" for k in late]


def main(given: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="./dev bench noisy", description=__doc__)
    add = parser.add_argument
    add("--budget", type=float, default=6.0, help="seconds of each tune")
    add("--records", type=Path)
    add("--no-quiet", action="store_true", help="only tune")
    add("--only-quiet", action="store_true", help="only measure what FILE says was kept")
    add("--tune", help=argparse.SUPPRESS)
    add("--measure", help=argparse.SUPPRESS)
    add("--kept", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.tune:
        print(json.dumps(tuned(arguments.tune, arguments.budget)))
        return
    if arguments.measure:
        print(json.dumps(measured(arguments.measure, arguments.kept)))
        return
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("one core: the load on another one needs two")
    path = arguments.records
    found: dict[str, Found] = json.loads(path.read_text()) if path and path.exists() else {}
    if not arguments.only_quiet:
        tune_all(found, arguments.budget, path)
    if not arguments.no_quiet:
        measure_all(found, path)
    print("\n".join(lines(found)))
    if failed := failures(found, arguments.budget):
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
