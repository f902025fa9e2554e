"""Compile times by stage and speed beside numpy and torch, interleaved round by round.

`python -m benchmarks.compare [--threads 1] [--only TEXT] [--target cpu:avx2] [--json FILE]`
Ratios are the other's least time over ours: above 1 we are faster. Every result is compared with
numpy's first.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 12
ROUND_SECONDS = 0.02


def measure(contestants: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Least milliseconds of each, rounds interleaved."""
    repeats, best = {}, {}
    for name, run in contestants.items():
        run()
        start = time.perf_counter()
        run()
        repeats[name] = max(1, int(ROUND_SECONDS / (time.perf_counter() - start + 1e-7)))
        best[name] = float("inf")
    for _ in range(ROUNDS):
        for name, run in contestants.items():
            run()
            start = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            best[name] = min(best[name], (time.perf_counter() - start) / repeats[name] * 1e3)
    return best


def torch_contestant(case: Any, arrays: dict[str, Any], threads: int) -> Callable[[], Any] | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    tensors = [torch.from_numpy(a) for a in arrays.values()]

    def run() -> Any:
        with torch.inference_mode():
            return case.torch(*tensors)

    return run


def rows(case: Any, target: str | None, threads: int) -> list[dict[str, Any]]:
    import numpy as np

    import tcsym

    start = time.perf_counter()
    kernel = tcsym.define(case.source, target=target)
    kernel(**case.inputs(case.sizes[0]))
    cold = (time.perf_counter() - start) * 1e3
    stages = {k: round(v, 1) for k, v in kernel.stats.milliseconds.items()}
    out = []
    for sizes in case.sizes:
        arrays = case.inputs(sizes)
        want = case.numpy(*arrays.values())
        got = kernel(**arrays)
        error = float(np.abs(got - want).max() / max(1.0, np.abs(want).max()))
        contestants: dict[str, Callable[[], Any]] = {
            "tcsym": lambda a=arrays: kernel(*a.values()),
            "numpy": lambda a=arrays: case.numpy(*a.values()),
        }
        other = torch_contestant(case, arrays, threads)
        if other is not None:
            contestants["torch"] = other
        best = measure(contestants)
        rate = case.flops(sizes) / best["tcsym"] / 1e6 if case.flops else None
        out.append(
            {
                "kernel": case.name,
                "sizes": dict(sizes),
                "cold_ms": cold,
                "stages": stages,
                "error": error,
                "ms": best,
                "gflops": rate,
            }
        )
    return out


def show(results: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="least milliseconds; ratios: other's time / ours")
    for column in ("kernel", "sizes", "cold ms", "error", "ms", "GFLOP/s", "numpy", "torch"):
        table.add_column(column, justify="left" if column in ("kernel", "sizes") else "right")
    for r in results:
        ms = r["ms"]
        ratios = [f"{ms[p] / ms['tcsym']:.2f}" if p in ms else "" for p in ("numpy", "torch")]
        sizes = " ".join(f"{k}={v}" for k, v in r["sizes"].items())
        rate = f"{r['gflops']:.0f}" if r["gflops"] else ""
        table.add_row(
            r["kernel"],
            sizes,
            f"{r['cold_ms']:.0f}",
            f"{r['error']:.0e}",
            f"{ms['tcsym']:.3f}",
            rate,
            *ratios,
        )
    console = Console(width=130)
    console.print(table)
    stages = Table(title="milliseconds of each stage, cold")
    names = list(dict.fromkeys(s for r in results for s in r["stages"]))
    for column in ("kernel", *names):
        stages.add_column(column, justify="left" if column == "kernel" else "right")
    for r in {r["kernel"]: r for r in results}.values():
        stages.add_row(r["kernel"], *(str(r["stages"].get(s, "")) for s in names))
    console.print(stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--target")
    parser.add_argument("--json", help="also write the results there")
    arguments = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TCSYM_NUM_THREADS"):
        os.environ[variable] = str(arguments.threads)
    from benchmarks.kernels import CASES

    with tempfile.TemporaryDirectory() as cache:  # cold: nothing compiled before
        os.environ["TCSYM_CACHE_DIR"] = cache
        results = []
        for case in CASES:
            if arguments.only in case.name:
                results += rows(case, arguments.target, arguments.threads)
    show(results)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
