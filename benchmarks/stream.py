# SPDX-License-Identifier: Apache-2.0
"""A stream of calls with ever new sizes, from a cold start: `./dev bench stream`.

Each contestant runs in a process of its own: definition, then the same sequence of calls over the
same sizes, every call timed by itself. The library is imported and the inputs stand in memory
before; what it imports later counts, and how long the first import took is told beside. A
contestant that exceeds its time is stopped; what it had done by then is reported.

What of the waits is the system's shows in two ways. A call is disturbed if the system gave it
pages of memory or took its core away meanwhile. And `fill` only has numpy write zeros into new
arrays of the results' shapes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.case import as_tuple, error_of
from benchmarks.contestant import Problem
from benchmarks.peers import PEERS
from benchmarks.sizes import Row, random_rows
from benchmarks.statistics import geometric_mean
from benchmarks.suite import BY_NAME
from benchmarks.surroundings import compile_python_files, cores_for, environment_for

KERNELS = ("tmm", "tbmm", "conv", "softmax", "layernorm", "attention", "lut1", "rnn")
CONTESTANTS = ("tcsym", "torch", "compile-dynamic", "compile", "jax", "numba", "fill")
COMPILING = ("compile-dynamic", "compile", "jax", "numba")
COLUMNS = (
    *("import", "total", "to first result", "wait 99.9 %", "undisturbed", "longest later"),
    *("compilations", "total / ours"),
)
_CHECKED = 5


def sequence(n_sizes: int, n_calls: int, seed: int) -> list[int]:
    """Positions of sizes: each at least once, in random order. `n_calls` >= `n_sizes`."""
    rng = random.Random(seed)
    drawn = [*range(n_sizes), *(rng.randrange(n_sizes) for _ in range(n_calls - n_sizes))]
    rng.shuffle(drawn)
    return drawn


# ---- in the contestant's process


def run_stream(request: Mapping[str, Any]) -> dict[str, Any]:
    """Definition, then every call, in milliseconds; what it is a call of; compilations."""
    case = BY_NAME[request["case"]]
    rows = list(random_rows(case, request["sizes"], request["seed"]))
    problems = [_problem(row, request["threads"]) for row in rows]
    order = sequence(len(rows), request["calls"], request["seed"])
    deadline = time.perf_counter() + request["limit"]
    start = time.perf_counter()
    importlib.import_module(_library(request["peer"]))
    imported = (time.perf_counter() - start) * 1e3
    start = time.perf_counter()
    caller = CALLERS[request["peer"]](case)
    calls = [(time.perf_counter() - start) * 1e3]
    disturbed: list[bool] = []
    prepared: dict[int, Callable[[], Any]] = {}
    for k in order:
        if k not in prepared:
            prepared[k] = caller.bind(problems[k])
        call = prepared[k]
        before = _disturbances()
        start = time.perf_counter()
        result = call()
        calls.append((time.perf_counter() - start) * 1e3)
        disturbed.append(_disturbances() != before)
        if len(calls) <= _CHECKED + 1 and caller.computes:
            _check(case, rows[k], result)
        if time.perf_counter() > deadline:
            break
    return {
        "import": imported,
        "milliseconds": calls,
        "order": order[: len(calls) - 1],
        "disturbed": disturbed,
        "compilations": caller.compilations(),
    }


def _library(peer: str) -> str:
    return "numpy" if peer == "fill" else PEERS[peer].place[0]


def _disturbances() -> tuple[int, int, int]:
    """So far: pages that this thread was given, and how often it had to leave its core."""
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_minflt, used.ru_majflt, used.ru_nivcsw


def _problem(row: Row, threads: int) -> Problem:
    arrays = row.case.arrays(row.sizes)
    seen = row.case.library_arrays(arrays, row.sizes)
    return Problem(row.case, row.sizes, arrays, seen, (), threads, None)


def _check(case: Any, row: Row, result: Any) -> None:
    arrays = case.arrays(row.sizes)
    expected = as_tuple(case.reference(*case.library_arrays(arrays, row.sizes)))
    error = error_of(as_tuple(result), expected)
    if not error <= case.tolerance:
        raise ValueError(f"wrong result at {row.label}: error {error:.2g}")


class _Caller:
    computes = True  # what the kernel does


class _Tcsym(_Caller):
    """The kernel as a user gets it: strategy auto."""

    def __init__(self, case: Any) -> None:
        import tcsym

        self._kernel = tcsym.define(case.text)

    def bind(self, problem: Problem) -> Callable[[], Any]:
        kernel, arrays = self._kernel, problem.arrays
        return lambda: kernel(*arrays)

    def compilations(self) -> int:
        return int(self._kernel.stats.compilations)


class _Torch(_Caller):
    """Eager, or compiled with the limit of recompilations that torch sets by itself."""

    def __init__(self, case: Any, compiled: bool = False, dynamic: bool = False) -> None:
        from benchmarks.peers import with_torch

        self._module = with_torch
        self._function = with_torch.plain_function(case.name)
        self._compiles = compiled
        if compiled:
            import torch

            self._function = torch.compile(self._function, dynamic=dynamic)

    def bind(self, problem: Problem) -> Callable[[], Any]:
        tensors, function = self._module.tensors_of(problem), self._function
        return lambda: function(*tensors)

    def compilations(self) -> int:
        if not self._compiles:
            return 0
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])


class _Jax(_Caller):
    def __init__(self, case: Any) -> None:
        from benchmarks.peers import with_jax

        self._module = with_jax
        self._function = with_jax.jitted(case.name)

    def bind(self, problem: Problem) -> Callable[[], Any]:
        return self._module.contestant_of(problem).call

    def compilations(self) -> int:
        return int(self._function._cache_size())


class _Numba(_Caller):
    def __init__(self, case: Any) -> None:
        from benchmarks.peers import with_numba

        self._name, self._module = case.name, with_numba

    def bind(self, problem: Problem) -> Callable[[], Any]:
        for _, make in self._module.contestants(problem):
            return make().call
        raise LookupError("numba: no such function")

    def compilations(self) -> int:
        return len(self._module.FUNCTIONS[self._name].signatures)


class _Fill(_Caller):
    """No kernel: numpy writes zeros into new arrays of the results' shapes."""

    computes = False

    def __init__(self, case: Any) -> None:
        import tcsym

        self._kernel = tcsym.define(case.text)

    def bind(self, problem: Problem) -> Callable[[], Any]:
        import numpy as np

        shapes = self._kernel.output_shapes(*problem.arrays).items()
        types = {name: x.dtype for name, x in self._kernel.signature.outputs.items()}
        wanted = [(shape, np.dtype(types[name].value)) for name, shape in shapes]

        def call() -> list[Any]:
            made = [np.empty(shape, dtype) for shape, dtype in wanted]
            for array in made:
                array.fill(0)
            return made

        return call

    def compilations(self) -> int:
        return 0


CALLERS: dict[str, Callable[[Any], Any]] = {
    "tcsym": _Tcsym,
    "torch": _Torch,
    "compile": lambda case: _Torch(case, compiled=True),
    "compile-dynamic": lambda case: _Torch(case, compiled=True, dynamic=True),
    "jax": _Jax,
    "numba": _Numba,
    "fill": _Fill,
}


# ---- in the driver


def summary_of(
    milliseconds: list[float], order: list[int], disturbed: list[bool], wanted: int
) -> dict[str, Any]:
    """Total, time to the first result, the longest later call, and how long later calls waited.

    A wait is a call's time beyond the least one of the same sizes; the 99.9th percentile (nearest
    rank) of the waits is what one call in a thousand exceeds; `undisturbed`: of those calls that
    the system did not disturb.
    """
    start, *calls = milliseconds
    least: dict[int, float] = {}
    for k, t in zip(order, calls, strict=True):
        least[k] = min(t, least.get(k, t))
    waits = [t - least[k] for k, t in zip(order[1:], calls[1:])]
    own = [wait for wait, was_disturbed in zip(waits, disturbed[1:]) if not was_disturbed]
    return {
        "calls": len(calls),
        "is_complete": len(calls) == wanted,
        "total": sum(milliseconds),
        "until_first": start + calls[0],
        "longest_later": max(calls[1:], default=0.0),
        "wait": _rarely_exceeded(waits),
        "undisturbed": _rarely_exceeded(own),
        "n_undisturbed": len(own),
    }


def _rarely_exceeded(waits: list[float]) -> float:
    ordered = sorted(waits) or [0.0]
    return ordered[min(len(ordered) - 1, int(0.999 * len(ordered)))]


def measure(case: str, peer: str, arguments: argparse.Namespace, cache: str) -> dict[str, Any]:
    """One contestant's figures, or {"failure": why}."""
    names = ("calls", "seed", "threads", "limit")
    request = {"case": case, "peer": peer, "sizes": arguments.count}
    request |= {name: getattr(arguments, name) for name in names}
    command = [sys.executable, "-m", "benchmarks.stream", "--run", json.dumps(request)]
    environment = environment_for(arguments.threads, None, cache)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=4 * arguments.limit
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"one call took more than {3 * arguments.limit:.0f} s"}
    if done.returncode:
        return {"failure": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    found = json.loads(done.stdout.splitlines()[-1])
    made = summary_of(found["milliseconds"], found["order"], found["disturbed"], arguments.calls)
    return {**made, "import": found["import"], "compilations": found["compilations"]}


def measure_case(case: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All contestants from empty caches; ours also a second time, from what the first one left."""
    found = {}
    for peer in arguments.peers:
        with tempfile.TemporaryDirectory() as cache:
            found[peer] = measure(case, peer, arguments, cache)
            if peer == "tcsym":
                found["tcsym warm"] = measure(case, peer, arguments, cache)
    return {"kernel": case, "contestants": found}


def print_table(rows: list[dict[str, Any]], arguments: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"{arguments.calls} calls, {arguments.count} sizes, {arguments.threads} threads"
    table = Table(title=f"{title}: milliseconds from a cold start")
    columns = ("kernel", "contestant", *COLUMNS)
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:2] else "right")
    for row in rows:
        ours = row["contestants"].get("tcsym", {}).get("total")
        for name, found in row["contestants"].items():
            table.add_row(row["kernel"], name, *cells(found, ours))
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    for line in goal_lines(rows):
        print(line)


def cells(found: Mapping[str, Any], ours: float | None) -> list[str]:
    """What stands under `COLUMNS` for one contestant; `ours`: our total from a cold start."""
    if "failure" in found:
        return [found["failure"]]
    total = f"{found['total']:.0f}"
    if not found["is_complete"]:
        total = f"> {total} ({found['calls']} calls)"
    columns = ("until_first", "wait", "undisturbed", "longest_later")
    times = [f"{found[k]:.3g}" if k in found else "" for k in columns]  # older figures lack some
    compared = f"{found['total'] / ours:.2f}" if ours else ""
    return [f"{found['import']:.0f}", total, *times, str(found["compilations"]), compared]


def goal_lines(rows: list[dict[str, Any]]) -> list[str]:
    """What the figures say of the goals: half of the best compiling peer, an eighth of dynamic."""
    lines, dynamic = [], []
    for row in rows:
        found = {n: f for n, f in row["contestants"].items() if "failure" not in f}
        if "tcsym" not in found:
            continue
        ours = found["tcsym"]["total"]
        best = min((found[p]["total"] for p in COMPILING if p in found), default=None)
        if best:
            lines.append(f"{row['kernel']}: best compiling peer / ours {best / ours:.2f} (goal 2)")
        if "torch" in found and "tcsym warm" in found:
            torch, warm = found["torch"], found["tcsym warm"]
            after = torch["total"] / warm["total"]
            whole = (torch["import"] + torch["total"]) / (warm["import"] + warm["total"])
            told = f"torch eager / ours warm {after:.2f} (goal 1), imports included {whole:.1f}"
            lines.append(f"{row['kernel']}: {told}")
        if row["kernel"] in ("softmax", "layernorm", "attention") and "compile-dynamic" in found:
            dynamic.append(found["compile-dynamic"]["total"] / ours)
    if dynamic:
        lines.append(f"torch.compile dynamic / ours, mean {geometric_mean(dynamic):.1f} (goal 8)")
    return lines


def command_text() -> str:
    return shlex.join(["./dev", "bench", *sys.argv[1:]])


def arguments_of(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench stream", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", default=list(KERNELS), choices=tuple(BY_NAME), metavar="KERNEL")
    add(
        "--peers", type=lambda text: text.split(","), default=list(CONTESTANTS), metavar="NAME,NAME"
    )
    add("--calls", type=int, default=1000)
    add("--count", type=int, default=300, help="distinct sizes")
    add("--threads", type=int, default=2)
    add("--seed", type=int, default=0)
    add("--limit", type=float, default=60, help="seconds for the calls of one contestant")
    add("--json", type=Path, help="write the figures there")
    add("--run", help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: list[str]) -> None:
    arguments = arguments_of(given)
    if arguments.run:
        print(json.dumps(run_stream(json.loads(arguments.run))))
        return
    import os

    os.sched_setaffinity(0, set(cores_for(arguments.threads)))
    compile_python_files()
    rows = []
    for case in arguments.only:
        rows.append(measure_case(case, arguments))
        print(f"measured {case}", file=sys.stderr, flush=True)
    print_table(rows, arguments)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"command": command_text(), "stream": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
