# SPDX-License-Identifier: Apache-2.0
"""The acceptance programs under every strategy: `./dev programs --strategies [NAMES] [--jobs N]`.

The folder of the programs is the first argument. Besides the sizes of each record, sizes with a
zero are tried, against the reference; where sizes are declared, also one beyond the bound.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

import tcsym
from tcsym.strategy import Auto, Bucket, Pad, Specialize, Symbolic

Sizes = dict[str, int]
STRATEGIES: dict[str, Any] = {
    "symbolic": "symbolic",
    "specialize": Specialize(),
    "specialize-before": Specialize(bind="before", max_variants=2),
    "background": Specialize(background=1.0),
    "bucket": Bucket(),
    "pad": Pad(8),
    "pad-max": Pad("max"),
    "auto": Auto(hot=0.0, share=1.0),
    "declared": Symbolic(),
}
DECLARED = ("bucket", "pad-max", "declared")


def load_runner(folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("acceptance_run", folder / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kernel_of(record: Any, strategy: str, sets: list[Sizes]) -> Any:
    declared: dict[str, Any] = {}
    if strategy in DECLARED:
        names = sorted({name for s in sets for name in s})
        values = {n: [s.get(n, 0) for s in sets] for n in names}
        declared = {n: tcsym.Dim(0, max(v), max(1, gcd(*v))) for n, v in values.items()}
    how = STRATEGIES[strategy] if declared or strategy not in DECLARED else "symbolic"
    module = tcsym.define(record["source"], strategy=how, sizes=declared)
    return module[record["entry"]] if record.get("entry") else module[next(iter(module))]


def size_sets(record: Any) -> list[Sizes]:
    """Those of the record, and its first with each size in turn 0."""
    given: list[Sizes] = record["sizes"] or [{}]
    zeros = [{**given[0], name: 0} for name in given[0]]
    return [*given, *(z for z in zeros if z not in given)]


def outcome(call: Any, names: list[str]) -> Any:
    try:
        results = call()
    except tcsym.TCError as e:
        return e
    return dict(zip(names, results if len(names) > 1 else (results,)))


def check(runner: Any, k: int, record: Any, strategy: str) -> str:
    """What is wrong, '' if nothing."""
    sets = size_sets(record)
    try:
        kernel = kernel_of(record, strategy, sets)
    except tcsym.OptionError as e:
        return f"refused: {e}"
    names = list(kernel.signature.outputs)
    for sizes in sets:
        try:
            inputs = {
                n: runner.make(s, sizes, np.random.default_rng(k + 1))
                for n, s in record["inputs"].items()
            }
        except Exception:
            continue  # the record's recipe for values does not allow these sizes
        want = outcome(lambda i=inputs, s=sizes: kernel.reference(**i, sizes=s), names)
        for _ in range(3):
            got = outcome(lambda i=inputs, s=sizes: kernel(**i, sizes=s), names)
            if isinstance(want, tcsym.TCError) or isinstance(got, tcsym.TCError):
                if getattr(got, "kind", None) != getattr(want, "kind", None):
                    return f"{sizes}: got {got!r}, want {want!r}"
                continue
            try:
                runner.compare(record, got, want)
            except AssertionError as e:
                return f"{sizes}: {e}"
    return crossing(runner, record, kernel, sets) if strategy in DECLARED else ""


def crossing(runner: Any, record: Any, kernel: Any, sets: list[Sizes]) -> str:
    """A size beyond its declared bound must be a size error that says so."""
    for name, dim in kernel.sizes.items():
        if not isinstance(dim, tcsym.Dim) or dim.hi is None:
            continue
        sizes = {**sets[0], name: dim.hi + 1}
        try:
            inputs = {
                n: runner.make(s, sizes, np.random.default_rng(0))
                for n, s in record["inputs"].items()
            }
        except Exception:
            continue
        got = outcome(lambda i=inputs, s=sizes: kernel(**i, sizes=s), [])
        if getattr(got, "kind", "") != "size" or "declared to be from" not in str(got):
            return f"{sizes}: got {got!r}, want a size error for `{name}`"
    return ""


def work(job: tuple[str, int, Any, str]) -> tuple[str, str, str]:
    folder, k, record, strategy = job
    runner = load_runner(Path(folder))
    try:
        why = check(runner, k, record, strategy)
    except BaseException as e:
        why = f"{type(e).__name__}: {e}"
    return strategy, record["name"], why[:400]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--jobs", type=int, default=1)
    a = parser.parse_args()
    with open(a.folder / "programs.jsonl") as lines:
        records = [json.loads(line) for line in lines]
    chosen = [(k, r) for k, r in enumerate(records) if r["valid"] and a.only in r["name"]]
    held: Counter[str] = Counter()
    start, failed = time.perf_counter(), 0
    jobs = [(str(a.folder), k, r, s) for s in a.strategies.split(",") for k, r in chosen]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(a.jobs, mp_context=context) as pool:
        for strategy, name, why in pool.map(work, jobs, chunksize=4):
            held[strategy] += not why
            failed += bool(why)
            if why:
                print(f"FAIL {strategy} {name}: {why}", flush=True)
    for strategy, n in held.items():
        print(f"{strategy}: {n} of {len(chosen)} programs hold")
    print(f"{time.perf_counter() - start:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
