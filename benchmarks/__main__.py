# SPDX-License-Identifier: Apache-2.0
"""`./dev bench`: the suite beside its peers. See `--help` and docs/notes/measurements.md.

`./dev bench stream`: calls of ever new sizes; `strategies`: all of them side by side in streams;
`tuned`: options tuned at few sizes, used at others; `searches`: guided against genetic search;
`noisy`: tunes beside other work, and what they kept when it is quiet;
`reuse`: docs/notes/reuse.md from the figures of `stream` and `tuned`;
`against COMMIT`: another commit beside these files, one thread;
`chart`: the chart and the table of docs/performance.md, from a record;
`forms`: texts as they are thought beside texts that help the compiler;
`network`: a network with planned memory beside torch;
`train`: backward passes beside torch autograd and JAX, the rest as in the suite; with
`--part layers`, forward and backward passes of the gallery's layers.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.case import Case
from benchmarks.machine import Guard, lanes_of, measure_machine
from benchmarks.peers import PEERS
from benchmarks.record import SCHEMA, row_record, summary
from benchmarks.rounds import FULL, QUICK, Field
from benchmarks.sizes import Row, rows_of
from benchmarks.startup import startup_record
from benchmarks.suite import CALL, CASES, LARGE, LAYERS, RAGGED, STEPS, SUITE, TRAINED, TRAINING
from benchmarks.surroundings import busy_seconds, cores_for, environment_for
from benchmarks.tables import print_tables, row_text

_RANDOM_ROWS = {False: 50, True: 4}


def arguments_of(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="+", default=[], metavar="TEXT", help="kernels whose name or row has one")
    add(
        "--part",
        choices=("suite", "other", "all", "recurrent", "ragged", "training", "layers"),
        default="all",
        help="kernels of the suite",
    )
    add("--sizes", choices=("suite", "ragged", "random"), default="suite")
    add("--seed", type=int, default=0, help="of random sizes")
    add("--count", type=int, help="random sizes of each kernel (50, quick: 4)")
    add("--threads", default="1,2", metavar="1,2", help="numbers of threads, one after another")
    add("--target", choices=("cpu", "cpu:avx512bf16", "cpu:avx512", "cpu:avx2", "cpu:novector"))
    add("--peers", metavar="NAME,NAME", help=f"of {','.join(PEERS)}; tcsym always takes part")
    add(
        "--clock",
        choices=("wall", "thread"),
        default="wall",
        help="thread: time that its threads had a core, for one of them",
    )
    add("--quick", action="store_true", help="fewer rounds and quick peers: minutes")
    add("--no-startup", action="store_true", help="leave out the table of first results")
    add("--json", type=Path, help="write the record there")
    add("--picture", type=Path, help="draw the ratios there (.svg or .png; needs matplotlib)")
    add(
        "--report",
        type=Path,
        nargs="+",
        metavar="JSON",
        help="write docs/notes/measurements.md, of `train` the table in docs/notes/comparisons.md",
    )
    return parser.parse_args(given)


def chosen_peers(arguments: argparse.Namespace) -> list[str]:
    if arguments.peers is not None:
        wanted = [p for p in arguments.peers.split(",") if p]
        unknown = [p for p in wanted if p not in PEERS]
        if unknown:
            raise SystemExit(f"unknown peer `{unknown[0]}`, it is one of {', '.join(PEERS)}")
        ours = "tcsym-train" if arguments.part in TRAINED else "tcsym"
        return [ours, *(p for p in wanted if p != ours)]
    part = "training" if arguments.part in TRAINED else ""
    return [
        name
        for name, peer in PEERS.items()
        if peer.part == part
        and (peer.in_quick or not arguments.quick)
        and (peer.every_size or arguments.sizes != "random")
    ]


def chosen_rows(arguments: argparse.Namespace) -> list[Row]:
    parts: dict[str, tuple[Case, ...]] = {
        "suite": SUITE,
        "all": CASES,
        "other": tuple(c for c in CASES if c.part == "other"),
        "recurrent": STEPS,
        "ragged": RAGGED,
        "training": TRAINING,
        "layers": LAYERS,
    }
    is_brief = arguments.quick and not arguments.only and arguments.part == "all"
    cases = SUITE if is_brief else parts[arguments.part]
    only = arguments.only

    def is_wanted(*names: str) -> bool:
        return not only or any(text in name for text in only for name in names)

    cases = tuple(c for c in cases if is_wanted(c.name, *c.sizes))
    count = arguments.count or _RANDOM_ROWS[arguments.quick]
    rows = rows_of(cases, arguments.sizes, count, arguments.seed)
    found = [r for r in rows if is_wanted(r.case.name, r.label)]
    if not found:
        raise SystemExit(f"no kernel's name has {' or '.join(only)}")
    return found


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """The whole record."""
    rows, peers = chosen_rows(arguments), chosen_peers(arguments)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "command": shlex.join(["./dev", "bench", *sys.argv[1:]]),
        "sizes": arguments.sizes,
        "seed": arguments.seed,
        "target": arguments.target or "cpu",
        "peers": peers,
        "machines": {},
        "versions": {},
        "rows": [],
        "startup": {"rows": [], "call": None},
    }
    try:
        _fill(record, arguments, rows)
    except KeyboardInterrupt:
        say("interrupted: what was measured so far follows")
    record["summary"] = summary(record["rows"], arguments.sizes == "random")
    return record


def _commit() -> str:
    """Of these files, with a `+` where they differ from it; empty where that cannot be told."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _fill(record: dict[str, Any], arguments: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Rows for each number of threads, then first results."""
    is_brief = arguments.quick or arguments.sizes == "random"  # many sizes rather than many rounds
    effort = replace(QUICK if is_brief else FULL, clock=arguments.clock)
    allowed = os.sched_getaffinity(0)
    for threads in [int(t) for t in arguments.threads.split(",")]:
        os.sched_setaffinity(0, allowed)
        cores = cores_for(threads)
        os.sched_setaffinity(0, set(cores))
        _measure_with(threads, cores, rows, record["peers"], effort, arguments.target, record)
    os.sched_setaffinity(0, allowed)
    if not arguments.no_startup:
        cases = list({row.case.name: row.case for row in rows}.values())
        wanted = arguments.only or [""]
        cases += [c for c in LARGE if any(text in c.name for text in wanted)]
        environment = environment_for(1, arguments.target, "")
        repeat = 1 if arguments.quick else 3
        record["startup"]["rows"] = startup_record(cases, repeat, environment)


def _measure_with(
    threads: int,
    cores: list[int],
    rows: Sequence[Row],
    peers: Sequence[str],
    effort: Any,
    target: str | None,
    record: dict[str, Any],
) -> None:
    lanes = lanes_of(target)
    guard = Guard(cores, lanes)
    machine = measure_machine(guard, lanes, cores)
    record["machines"][str(threads)] = machine.as_json()
    levels = ", ".join(f"{x.name} {x.gb_per_s:.0f}" for x in machine.levels)
    say(f"{machine.name}, {threads} threads: {machine.gflop_per_s:.0f} GFLOP/s; GB/s: {levels}")
    with tempfile.TemporaryDirectory() as cache:
        field = Field(peers, environment_for(threads, target, cache), guard, effort)
        record["versions"] |= field.versions()
        for row in rows:
            started, busy = time.perf_counter(), busy_seconds()
            measured = field.measure(row, threads, target)
            made = row_record(row, measured, machine, threads)
            made["seconds"] = time.perf_counter() - started
            made["busy_cores"] = (busy_seconds() - busy) / made["seconds"]
            record["rows"].append(made)
            say(row_text(made))
        if record["startup"]["call"] is None and "tcsym" in peers:
            row = Row(CALL, "call_add_4", CALL.sizes["call_add_4"])
            measured = field.measure(row, threads, target)
            record["startup"]["call"] = row_record(row, measured, machine, threads)
        field.close()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    commands = (
        "stream",
        "strategies",
        "tuned",
        "searches",
        "noisy",
        "reuse",
        "against",
        "forms",
        "network",
        "chart",
    )
    if sys.argv[1:] and sys.argv[1] in commands:
        import_module(f"benchmarks.{sys.argv[1]}").main(sys.argv[2:])
        return
    given = sys.argv[1:]
    if given[:1] == ["train"]:
        given = ["--part", "training", "--no-startup", *given[1:]]
    arguments = arguments_of(given)
    if arguments.report:
        from benchmarks.report import write_report, write_training

        (write_training if arguments.part in TRAINED else write_report)(arguments.report)
        return
    record = measure(arguments)
    from rich.console import Console

    print_tables(record, Console(width=None if sys.stdout.isatty() else 240))
    if arguments.json:
        arguments.json.write_text(json.dumps(record) + "\n")
    if arguments.picture:
        from benchmarks.picture import draw

        draw(record, arguments.picture)


if __name__ == "__main__":
    main()
