"""Kernels on the CUDA device here, beside torch -> JSON: milliseconds a call, by its clock.

    python -m tools.device_benchmark OUT.json

Each of the ways runs 20 times before and is then timed in turn with the others, in 5 rounds of as
many calls as take 50 ms; the median of the rounds counts. Inputs are the same tensors throughout.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tcsym

WARMING, ROUNDS, ROUND_MS = 20, 5, 50.0
PRODUCTS = (512, 1000, 4096)
ROWS_OF = ((1024, 1000), (16384, 4096))
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
ROWS = "def rows(float(N,D) X) -> (O) { O(n,d) = X(n,d) * 2 + 1 }"
Function = Callable[..., Any]


def cases(torch: Any) -> list[tuple[str, Function, Function, tuple[Any, ...]]]:
    """Name, kernel, the same by torch, arguments: sizes that fill a device, and smaller ones."""

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda")

    mm = tcsym.define(MM, target="cuda").mm
    rows = tcsym.define(ROWS, target="cuda").rows
    softmax = tcsym.define(tcsym.library.source("softmax"), target="cuda").softmax
    torch.backends.cuda.matmul.allow_tf32 = False  # float32 means float32
    found: list[tuple[str, Function, Function, tuple[Any, ...]]] = []
    for n in PRODUCTS:
        found.append((f"mm {n}", mm, torch.matmul, (random(n, n), random(n, n))))
    for n, d in ROWS_OF:
        by_torch: Function = lambda x: torch.softmax(x, 1)  # noqa: E731
        found.append((f"softmax {n}x{d}", softmax, by_torch, (random(n, d),)))
        found.append((f"map {n}x{d}", rows, lambda x: x * 2 + 1, (random(n, d),)))
    return found


def milliseconds(torch: Any, run: Function, arguments: tuple[Any, ...], calls: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        run(*arguments)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / calls


def measured(torch: Any, ways: dict[str, Function], arguments: tuple[Any, ...]) -> dict[str, float]:
    calls = {}
    for name, run in ways.items():
        for _ in range(WARMING):
            run(*arguments)
        calls[name] = max(1, int(ROUND_MS / milliseconds(torch, run, arguments, 10)))
    rounds = [
        {n: milliseconds(torch, run, arguments, calls[n]) for n, run in ways.items()}
        for _ in range(ROUNDS)
    ]
    return {n: statistics.median(r[n] for r in rounds) for n in ways}


def imported_torch() -> Any:
    import torch

    return torch


def difference(got: Any, expected: Any) -> float:
    """Relative to the largest."""
    return float((got - expected).abs().max() / expected.abs().max())


def main(path: str) -> None:
    torch = imported_torch()
    results = []
    for name, kernel, eager, arguments in cases(torch):
        expected, got = eager(*arguments), kernel(*arguments)
        tcsym.synchronize()
        error = difference(got, expected)
        ways = {"tcsym": kernel, "eager": eager, "compile": torch.compile(eager)}
        results.append({"case": name, "error": error, "ms": measured(torch, ways, arguments)})
        print(json.dumps(results[-1]), flush=True)
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    Path(path).write_text(json.dumps({**about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
