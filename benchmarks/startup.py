"""Definition to first result in fresh processes: cold (empty cache) and warm, by stage.

`python -m benchmarks.startup [--only TEXT] [--repeat 3]`. Times start after `import numpy`; the
least of the repeats is shown. Python's compiled files are there, as after any first run: without
them (PYTHONDONTWRITEBYTECODE) every process compiles 20,000 lines of Python. "lanes" and "threads":
share of innermost loops that are vectors, and whether some loop runs on threads.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from typing import Any

PROBE = """
import json, sys, time
import numpy as np
from benchmarks.kernels import CASES
case = next(c for c in CASES if c.name == sys.argv[1])
inputs = list(case.inputs(case.sizes[-1]).values())
start = time.perf_counter()
import tcsym
imported = time.perf_counter()
kernel = tcsym.define(case.source)
defined = time.perf_counter()
kernel(*inputs)
done = time.perf_counter()
kernel(*inputs)
again = time.perf_counter()
print(json.dumps({
    "import": (imported - start) * 1e3, "define": (defined - imported) * 1e3,
    "first call": (done - defined) * 1e3, "total": (done - start) * 1e3,
    "second call": (again - done) * 1e3,
    **{f"  {k}": v for k, v in kernel.stats.milliseconds.items()},
    "compilations": kernel.stats.compilations,
}))
"""


def probe(name: str, cache: str) -> dict[str, float]:
    environment = {**os.environ, "TCSYM_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": compiled_files()}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", PROBE, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


@lru_cache(None)
def compiled_files() -> str:
    """A directory for Python's compiled files, removed at exit."""
    directory = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def least(runs: list[dict[str, float]]) -> dict[str, float]:
    return min(runs, key=lambda r: r["total"])


def measure(name: str, repeat: int) -> tuple[dict[str, float], dict[str, float]]:
    cold, warm = [], []
    with tempfile.TemporaryDirectory() as cache:
        probe(name, cache)  # writes compiled files
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(probe(name, cache))
            warm.append(probe(name, cache))
    return least(cold), least(warm)


def loop_kinds(source: str) -> tuple[str, str]:
    """(vector innermost loops / innermost loops, parallel or not) of the mapped kernel."""
    import tcsym
    from tcsym.compiler import Lowering
    from tcsym.loop_ir import Loop, walk
    from tcsym.target import resolve_target

    program = tcsym.define(source).program
    layouts: Any = ("dense",) * (len(program.inputs) + len(program.outputs))
    stages = Lowering(program, resolve_target(None), tcsym.Options(), {}, layouts, {})
    body = stages.mapped(stages.scheduled()).kernel.body
    loops = [n for n, _ in walk(body) if isinstance(n, Loop)]
    inner = [x for x in loops if not any(isinstance(n, Loop) for n, _ in walk(x.body))]
    vectors = sum(x.kind == "vector" for x in inner)
    threads = any(x.kind == "parallel" for x in loops)
    return f"{vectors}/{len(inner)}", "yes" if threads else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    from rich.console import Console
    from rich.table import Table

    from benchmarks.kernels import CASES

    rows = []
    for case in CASES:
        if arguments.only in case.name:
            rows.append((case, *measure(case.name, arguments.repeat)))
    stages = list(dict.fromkeys(k for _, cold, _ in rows for k in cold if k.startswith("  ")))
    table = Table(title="milliseconds from import to first result")
    names = ("import", "define", "first call", "total")
    columns = ("kernel", *names, "warm", *(s.strip() for s in stages), "lanes", "threads")
    for column in columns:
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for case, cold, warm in rows:
        figures = [*(cold[k] for k in names), warm["total"], *(cold.get(s, 0.0) for s in stages)]
        table.add_row(case.name, *(f"{f:.0f}" for f in figures), *loop_kinds(case.source))
    console = Console(width=150)
    console.print(table)
    totals = [sorted(r[k]["total"] for r in rows) for k in (1, 2)]
    cold, warm = (t[len(t) // 2] for t in totals)
    console.print(f"median cold {cold:.0f} ms, warm {warm:.0f} ms")


if __name__ == "__main__":
    main()
