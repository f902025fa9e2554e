# SPDX-License-Identifier: Apache-2.0
"""Definition to first result in fresh processes: cold (empty cache) and warm, by stage.

Times start after `import numpy`; the least of the repeats counts. Python's compiled files are
there, as in any installation. Work is what all threads of the process worked until then: less than
the time where others had the cores.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.sizes import random_rows
from benchmarks.surroundings import compile_python_files

PROBE = """
import json, sys, time
import numpy as np
from benchmarks.suite import BY_NAME
case = BY_NAME[sys.argv[1]]
inputs = case.arrays(json.loads(sys.argv[2]))
worked, start = time.process_time(), time.perf_counter()
import tcsym
imported = time.perf_counter()
kernel = tcsym.define(case.text, strategy="symbolic")
defined = time.perf_counter()
kernel(*inputs)
done, worked = time.perf_counter(), time.process_time() - worked
print(json.dumps({
    "import": (imported - start) * 1e3, "define": (defined - imported) * 1e3,
    "first_call": (done - defined) * 1e3, "total": (done - start) * 1e3, "work": worked * 1e3,
    "stages": dict(kernel.stats.milliseconds),
}))
"""


def startup_row(
    case: Case, repeat: int, environment: Mapping[str, str], tree: Path | None = None
) -> dict[str, Any]:
    """Milliseconds of the least cold and the least warm run, at small random sizes.

    `tree`: whose packages are imported.
    """
    (row,) = random_rows(case, 1, 0)
    runs: dict[str, list[dict[str, Any]]] = {"cold": [], "warm": []}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as cache:
            for kind in ("cold", "warm"):
                runs[kind].append(_probe(case.name, row.sizes, cache, environment, tree))
    cold, warm = (min(runs[k], key=lambda r: float(r["total"])) for k in ("cold", "warm"))
    return {
        "kernel": case.name,
        **{k: cold[k] for k in ("import", "define", "first_call", "stages")},
        "cold": cold["total"],
        "warm": warm["total"],
        **{f"{k}_work": min(float(r["work"]) for r in runs[k]) for k in runs},
    }


def startup_record(
    cases: Iterable[Case], repeat: int, environment: Mapping[str, str]
) -> list[dict[str, Any]]:
    """One row for each case."""
    compile_python_files()
    return [startup_row(case, repeat, environment) for case in cases]


def startup_line(rows: Iterable[Mapping[str, Any]]) -> str:
    listed = list(rows)
    cold, warm = ([float(r[k]) for r in listed] for k in ("cold", "warm"))
    return (
        f"cold: median {statistics.median(cold):.0f} ms, worst {max(cold):.0f} ms "
        f"(goals 300, 1000); warm: median {statistics.median(warm):.0f} ms (goal 20)"
    )


def _probe(
    name: str,
    sizes: Mapping[str, int],
    cache: str,
    environment: Mapping[str, str],
    tree: Path | None,
) -> dict[str, Any]:
    own = {**environment, "TCSYM_CACHE_DIR": cache}
    command = [sys.executable, "-c", PROBE, name, json.dumps(dict(sizes))]
    done = subprocess.run(command, cwd=tree, env=own, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))
