# SPDX-License-Identifier: Apache-2.0
"""Strategies side by side in streams of calls: `./dev bench strategies`.

One process for each kernel and stream. All strategies get the same declared ranges and the same
calls in turn: a first pass, whose compilations count, more passes until nothing is compiled any
more, then passes whose totals are compared. `auto` has a lower threshold than by default
(`--hot`), so that it settles within seconds.

Streams: `hot` one choice of sizes; `few` four; `uniform` many, in random order; `growing` many,
ascending; `batch` many that differ in their first size only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.case import Case, Sizes
from benchmarks.sizes import random_rows
from benchmarks.statistics import geometric_mean
from benchmarks.stream import command_text
from benchmarks.suite import BY_NAME
from benchmarks.surroundings import compile_python_files, cores_for, environment_for

KERNELS = ("tmm", "tbmm", "conv", "dwconv", "softmax", "layernorm", "attention", "lut1", "rnn")
KERNELS = (*KERNELS, "gelu_chain")
STREAMS = ("hot", "few", "uniform", "growing", "batch")
STRATEGIES = ("symbolic", "auto", "specialize", "bucket", "pad")
MOST_FLOPS = 1e7  # of one call: some hundred microseconds
N_SIZES = 40
SETTLING = 4  # passes of `auto` before the figures, with what it compiles beside in between


def stream_of(case: Case, stream: str, calls: int, seed: int) -> list[Sizes]:
    """Sizes of the calls, in order."""
    rows = [r.sizes for r in random_rows(case, 400, seed) if case.n_flops(r.sizes) <= MOST_FLOPS]
    rng = random.Random(f"{seed} {case.name} {stream}")
    many = rows[:N_SIZES]
    match stream:
        case "hot":
            return [many[0]] * calls
        case "few":
            return rng.choices(many[:4], weights=(8, 4, 2, 1), k=calls)
        case "uniform":
            return rng.choices(many, k=calls)
        case "growing":
            ascending = sorted(many, key=case.n_flops)
            return [ascending[k * len(ascending) // calls] for k in range(calls)]
        case "batch":
            first = next(iter(case.ranges))
            batches = sorted({s[first] for s in many})
            tried = ({**many[0], first: n} for n in batches)
            varied = [s for s in tried if case.n_flops(s) <= MOST_FLOPS]
            return rng.choices(varied, k=calls)
    raise ValueError(f"unknown stream {stream}, expected one of {', '.join(STREAMS)}")


# ---- in the process of one kernel and stream


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Milliseconds of the calls by strategy: `first`, the first pass; `steady`, later ones."""
    case = BY_NAME[request["case"]]
    order = stream_of(case, request["stream"], request["calls"], request["seed"])
    arrays = {tuple(s.values()): case.arrays(s) for s in order}
    calls = [arrays[tuple(s.values())] for s in order]
    made = kernels_of(case, order, request["hot"])
    found: dict[str, Any] = {name: {"first": run_pass(k, calls)} for name, k in made.items()}
    settle(made["auto"], calls)
    for name in made:
        found[name]["steady"] = []
    names = list(made)
    for _ in range(request["rounds"]):
        for name in names:
            found[name]["steady"].append(run_pass(made[name], calls))
        names = names[1:] + names[:1]
    for name, kernel in made.items():
        found[name]["compilations"] = kernel.stats.compilations
        found[name]["decisions"] = [str(d) for d in kernel.stats.decisions]
        found[name]["failures"] = kernel.stats.failures
    return found


def kernels_of(case: Case, order: Sequence[Sizes], hot: float) -> dict[str, Any]:
    import tcsym
    from tcsym.strategy import Auto, Bucket, Pad, Specialize

    values = {n: [s[n] for s in order] for n in order[0]}
    sizes = {n: tcsym.Dim(min(v), max(v)) for n, v in values.items()}
    ways = {
        "symbolic": "symbolic",
        "auto": Auto(hot=hot),
        "specialize": Specialize(),
        "bucket": Bucket(),
        "pad": Pad("max"),
    }
    modules = {name: tcsym.define(case.text, sizes=sizes, strategy=s) for name, s in ways.items()}
    return {name: module[next(iter(module))] for name, module in modules.items()}


def run_pass(kernel: Callable[..., Any], calls: Sequence[Any]) -> list[float]:
    spent = []
    for arrays in calls:
        start = time.perf_counter()
        kernel(*arrays)
        spent.append((time.perf_counter() - start) * 1e3)
    return spent


def settle(kernel: Any, calls: Sequence[Any]) -> None:
    """Until `auto` has decided what it was going to."""
    from tcsym.dispatch.compile_queue import compilations
    from tcsym.runtime.background import settle as entries

    for _ in range(SETTLING):
        until = time.perf_counter() + 1.0
        while time.perf_counter() < until:
            run_pass(kernel, calls)
        compilations.settle()
        entries()


# ---- in the driver


def summary_of(found: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """By strategy: steady time over that of `symbolic` (of the least passes), 99.9th percentile
    and longest of steady calls in us, first pass in ms, its longest call after the first in ms."""
    base = min(map(sum, found["symbolic"]["steady"]))
    made = {}
    for name, figures in found.items():
        later = sorted(t for one in figures["steady"] for t in one)
        made[name] = {
            "ratio": min(map(sum, figures["steady"])) / base,
            "late": later[min(len(later) - 1, int(0.999 * len(later)))] * 1e3,
            "longest": later[-1] * 1e3,
            "first": sum(figures["first"]),
            "wait": max(figures["first"][1:], default=0.0),
            "compilations": figures["compilations"],
        }
    return made


def measure(case: str, stream: str, arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("calls", "rounds", "seed", "hot")
    request = {"case": case, "stream": stream, **{n: getattr(arguments, n) for n in names}}
    command = [sys.executable, "-m", "benchmarks.strategies", "--run", json.dumps(request)]
    with tempfile.TemporaryDirectory() as cache:
        environment = environment_for(arguments.threads, None, cache)
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        return {"failure": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    found = json.loads(done.stdout.splitlines()[-1])
    made = {"strategies": summary_of(found), "decisions": found["auto"]["decisions"]}
    return {**made, "failures": found["auto"]["failures"]}


def lines_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table, and what the figures say of the goals."""
    lines = ["| kernel | stream | strategy | time / symbolic | 99.9 % us | longest us | first ms |"]
    lines[0] += " longest wait ms | compilations |"
    lines.append("|---|---|---|" + "--:|" * 6)
    for row in rows:
        for name, f in row.get("strategies", {}).items():
            figures = f"{f['ratio']:.3f} | {f['late']:.0f} | {f['longest']:.0f} | {f['first']:.0f}"
            told = f"{figures} | {f['wait']:.2f} | {f['compilations']:.0f}"
            lines.append(f"| {row['kernel']} | {row['stream']} | {name} | {told} |")
        if "failure" in row:
            lines.append(f"| {row['kernel']} | {row['stream']} | {row['failure']} |")
    done = [row for row in rows if "strategies" in row]
    for stream in dict.fromkeys(row["stream"] for row in done):
        of = [row["strategies"] for row in done if row["stream"] == stream]
        auto = [s["auto"]["ratio"] for s in of]
        best = [s["auto"]["ratio"] / min(f["ratio"] for f in s.values()) for s in of]
        told = f"auto / symbolic {geometric_mean(auto):.3f} in the mean, {max(auto):.3f} at worst"
        worst = f"auto / best {geometric_mean(best):.3f} in the mean, {max(best):.3f} at worst"
        lines.append(f"- {stream}: {told}; {worst}")
    return lines


def arguments_of(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench strategies", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", default=list(KERNELS), choices=tuple(BY_NAME), metavar="KERNEL")
    add("--streams", nargs="+", default=list(STREAMS), choices=STREAMS, metavar="STREAM")
    add("--calls", type=int, default=400, help="of one pass")
    add("--rounds", type=int, default=12, help="passes that are compared")
    add("--threads", type=int, default=1)
    add("--hot", type=float, default=0.05, help="the threshold of `Auto`")
    add("--seed", type=int, default=0)
    add("--json", type=Path, help="write the figures there")
    add("--run", help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: list[str]) -> None:
    arguments = arguments_of(given)
    if arguments.run:
        print(json.dumps(run(json.loads(arguments.run))))
        return
    cores_for(arguments.threads)  # refuses what the machine lacks; work beside calls has the rest
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compile_python_files()
    rows: list[dict[str, Any]] = []
    for case in arguments.only:
        for stream in arguments.streams:
            rows.append({"kernel": case, "stream": stream, **measure(case, stream, arguments)})
            print(f"measured {case} {stream}", file=sys.stderr, flush=True)
    print("\n".join(lines_of(rows)))
    if arguments.json:
        figures = {"command": command_text(), "strategies": rows}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
