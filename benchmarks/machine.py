# SPDX-License-Identifier: Apache-2.0
"""The machine: its name, caches, multiply-add peak and read bandwidth by level; disturbances.

Peaks are measured, not read from a table: a virtual machine's differ from its processor's.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from benchmarks.native import Loops, compile_loops, host_lanes

_GUARD_SECONDS = 0.0005
_LEVEL_SECONDS = 0.05
_PASS_BYTES = 10_000_000  # read by one call, in as many passes as that takes


class Level(Struct, frozen=True):
    """A cache of `bytes` for all threads together (memory: 0), read at `gb_per_s`."""

    name: str
    bytes: int
    gb_per_s: float


class Machine(Struct, frozen=True):
    name: str
    system: str
    threads: int
    lanes: int
    gflop_per_s: float
    levels: tuple[Level, ...]

    def bound_ms(self, flops: float, n_bytes: float) -> float:
        """The least time that peak and the bandwidth of the level holding the data allow."""
        holding = next((x for x in self.levels if n_bytes <= 0.8 * x.bytes), self.levels[-1])
        return max(flops / self.gflop_per_s, n_bytes / holding.gb_per_s) / 1e6

    def as_json(self) -> dict[str, Any]:
        return to_builtins(self)


class Guard:
    """Runs the multiply-add loop on every core in use: slower than usual means disturbed."""

    def __init__(self, cores: list[int], lanes: int) -> None:
        self.loops: Loops = compile_loops(lanes)
        self._out = np.zeros((len(cores), 64), np.float32)
        self._cores = cores
        self._pool = ThreadPoolExecutor(len(cores)) if len(cores) > 1 else None
        self._rounds = 100_000
        self._rounds = int(100_000 * _GUARD_SECONDS / min(self._seconds(0) for _ in range(5)))
        self._usual = statistics.median(self.speed() for _ in range(99))

    def _seconds(self, k: int) -> float:
        self.loops.fma(self._rounds // 4, self._out[k].ctypes.data)  # wakes the vector unit
        start = time.perf_counter()
        self.loops.fma(self._rounds, self._out[k].ctypes.data)
        return time.perf_counter() - start

    def _seconds_on_core(self, k: int) -> float:
        os.sched_setaffinity(0, {self._cores[k]})  # of this thread of the pool only
        return self._seconds(k)

    def speed(self) -> float:
        """GFLOP/s of the slowest core, now."""
        if self._pool is None:
            seconds = self._seconds(0)
        else:
            seconds = max(self._pool.map(self._seconds_on_core, range(len(self._cores))))
        return self._rounds * self.loops.flops_per_round / seconds / 1e9

    def is_quiet(self) -> bool:
        return self.speed() >= 0.95 * self._usual


def measure_machine(guard: Guard, lanes: int, cores: list[int]) -> Machine:
    threads = len(cores)
    capacities = _cache_capacities(threads)
    levels = []
    for name, capacity in capacities:
        working_set = int(capacity * 0.5) if name != "memory" else 8 * capacities[-2][1]
        speed = _bandwidth(guard.loops, max(working_set, 4096) // threads, threads)
        levels.append(Level(name, capacity if name != "memory" else 0, speed))
    peak = max(guard.speed() for _ in range(50))
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return Machine(_processor_name(), system, threads, lanes, peak * threads, tuple(levels))


def lanes_of(target: str | None) -> int:
    """float32 in one vector of the target; `cpu:avx2` limits what a peak means, too."""
    limits = {"cpu:avx2": 8, "cpu:novector": 4}
    return min(host_lanes(), limits.get(target or "", 16))


def _bandwidth(loops: Loops, n_bytes: int, threads: int) -> float:
    """GB/s of all threads together, each reading an array of its own again and again."""
    blocks = max(1, n_bytes // loops.block_bytes)
    passes = max(1, _PASS_BYTES // (blocks * loops.block_bytes))
    parts = [_aligned_ones(blocks * loops.block_bytes // 4) for _ in range(threads)]
    out = np.zeros((threads, 64), np.float32)

    def read(k: int) -> float:
        best, stop = float("inf"), time.perf_counter() + _LEVEL_SECONDS
        while time.perf_counter() < stop:
            start = time.perf_counter()
            loops.read(parts[k].ctypes.data, blocks, passes, out[k].ctypes.data)
            best = min(best, (time.perf_counter() - start) / passes)
        return best

    with ThreadPoolExecutor(threads) as pool:
        seconds = max(pool.map(read, range(threads)))
    return threads * blocks * loops.block_bytes / seconds / 1e9


def _aligned_ones(n: int) -> np.ndarray:
    """float32 from the start of a cache line: a vector across two lines is two reads."""
    x = np.ones(n + 16, np.float32)
    start = -x.ctypes.data % 64 // 4
    return x[start : start + n]


def _cache_capacities(threads: int) -> list[tuple[str, int]]:
    """Levels from the operating system; private caches count once for each thread."""
    found = {}
    for entry in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (entry / "type").read_text().strip() == "Instruction":
            continue
        level = int((entry / "level").read_text())
        text = (entry / "size").read_text().strip()
        size = int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20}[text[-1]]
        found[level] = size * (threads if level <= 2 else 1)
    if not found:
        found = {1: 32768 * threads, 2: (1 << 19) * threads}
    return [*((f"L{k}", v) for k, v in sorted(found.items())), ("memory", 1 << 62)]


def _processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
