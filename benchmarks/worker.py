# SPDX-License-Identifier: Apache-2.0
"""A process that holds contestants and times one of them when told: `python -m benchmarks.worker`.

Requests and answers are lines of JSON on standard input and output. The driver has set affinity
and thread variables before this process started. Libraries print to standard error.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.case import as_tuple, error_of
from benchmarks.contestant import Contestant, Maker, Peer, Problem
from benchmarks.peers import PEERS
from benchmarks.suite import BY_NAME

_SETTLE = 0.0015  # seconds in which another contestant's spinning threads fall asleep
_ESTIMATES = 6  # calls that tell how long a call takes
_ESTIMATING = 0.05  # seconds after which fewer do


class Worker:
    """The contestants of one problem at a time."""

    def __init__(self, peers: list[str]) -> None:
        self._functions: dict[str, Peer] = {}
        self._missing: dict[str, str] = {}
        self._contestants: dict[str, Contestant] = {}
        for name in peers:
            module, function = PEERS[name].place
            try:
                self._functions[name] = getattr(importlib.import_module(module), function)
            except Exception as error:  # a peer that cannot be imported is reported, not fatal
                self._missing[name] = f"not available: {error}"

    def prepare(self, case: str, sizes: dict[str, int], threads: int, target: str | None) -> Any:
        """Makes all contestants, checks their results, finds out how long a call takes."""
        self._contestants.clear()
        chosen = BY_NAME[case]
        arrays = chosen.arrays(sizes)
        seen = chosen.library_arrays(arrays, sizes)
        expected = as_tuple(chosen.reference(*seen))
        problem = Problem(chosen, sizes, arrays, seen, expected, threads, target)
        found: dict[str, Any] = {}
        failures = dict(self._missing)
        for peer, function in self._functions.items():
            for name, make in _makers(peer, function, problem, failures):
                try:
                    found[name] = self._admit(name, make, problem)
                except Exception as error:  # each contestant fails alone
                    failures[name] = f"{type(error).__name__}: {str(error).strip()[:300]}"
        work = {"flops": chosen.n_flops(sizes), "bytes": chosen.n_bytes(sizes, arrays, expected)}
        gc.collect()
        return {"contestants": found, "failures": failures, **work}

    def _admit(self, name: str, make: Maker, problem: Problem) -> dict[str, float]:
        start = time.perf_counter()
        contestant = make()
        result = contestant.call()
        first = time.perf_counter() - start
        error = error_of(contestant.to_numpy(result), problem.expected)
        if not error <= problem.case.tolerance:
            raise ValueError(f"wrong result: error {error:.2g}")
        contestant.ready()
        contestant.call()
        seconds = _least_seconds(contestant.call)
        self._contestants[name] = contestant
        return {"error": error, "first_ms": first * 1e3, "call_ms": seconds * 1e3}

    def time(self, contestant: str, repeats: int, clock: str = "wall") -> float:
        """Milliseconds of a call: the mean of `repeats` after half as many that are not counted.

        Clock `thread`: those that threads of this process worked, whoever else had the core
        meanwhile; of several at once, all of it. (JAX computes in threads of its own.)

        Data that just fit the last cache are back in it after several calls only, and the one who
        had the turn before may have left them there, or have been another process.
        """
        call = self._contestants[contestant].call
        time.sleep(_SETTLE)
        for _ in range(1 + repeats // 2):
            call()
        now = time.process_time if clock == "thread" else time.perf_counter
        start = now()
        for _ in range(repeats):
            call()
        return (now() - start) / repeats * 1e3

    def versions(self) -> dict[str, str]:
        from importlib.metadata import PackageNotFoundError, version

        found = {}
        for package in {p for name in self._functions for p in PEERS[name].packages}:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                found[package] = "unknown"
        return found


def _least_seconds(call: Callable[[], Any]) -> float:
    """The quickest of a few calls: one that waits for a sleeping thread may lose a time slice.

    Who seems far slower than others takes part in few rounds, with few calls in each.
    """
    least, spent = math.inf, 0.0
    for _ in range(_ESTIMATES):
        start = time.perf_counter()
        call()
        seconds = time.perf_counter() - start
        least = min(least, seconds)
        spent += seconds
        if spent > _ESTIMATING:
            break
    return least


def _makers(
    peer: str, function: Peer, problem: Problem, failures: dict[str, str]
) -> Iterator[tuple[str, Maker]]:
    try:
        yield from function(problem)
    except Exception as error:
        failures[peer] = f"{type(error).__name__}: {error}"


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    gc.disable()
    worker = Worker(sys.argv[1].split(","))
    for line in sys.stdin:
        request = json.loads(line)
        method = getattr(worker, request.pop("do"))
        answers.write(json.dumps(method(**request)) + "\n")


if __name__ == "__main__":
    main()
