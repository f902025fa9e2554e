"""Running a kernel on random inputs: for `tcsym run`."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcsym.errors import SizeError
from tcsym.index import evaluate
from tcsym.kernel import Kernel
from tcsym.types import DType

Array = NDArray[Any]
_SECONDS = 0.2  # of repetition, for the times
_FEWEST, _MOST = 3, 10_000
_EPSILON = {"float64": 2**-52, "float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}
_SLACK = 16  # roundings of an element apart from its sum


@dataclass(frozen=True, slots=True)
class Deviation:
    """Of one output from the interpreter's: largest absolute error, and the largest allowed."""

    output: str
    error: float
    allowed: float

    @property
    def is_good(self) -> bool:
        return self.error <= self.allowed


@dataclass(frozen=True, slots=True)
class Run:
    """What `tcsym run` reports. Times in seconds."""

    kernel: Kernel
    sizes: dict[str, int]
    results: dict[str, Array]
    first: float
    best: float
    median: float
    deviations: tuple[Deviation, ...]

    @property
    def is_good(self) -> bool:
        return all(d.is_good for d in self.deviations)

    def as_json(self) -> dict[str, Any]:
        return {
            "def": self.kernel.name,
            "sizes": self.sizes,
            "outputs": {
                n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in self.results.items()
            },
            "seconds": {"first": self.first, "best": self.best, "median": self.median},
            "compilations": self.kernel.stats.compilations,
            "cache_hits": self.kernel.stats.cache_hits,
            "check": [
                {"output": d.output, "error": d.error, "allowed": d.allowed, "good": d.is_good}
                for d in self.deviations
            ],
        }


def run_kernel(
    kernel: Kernel, given: Mapping[str, int], threads: int | None, check: bool, seed: int
) -> Run:
    """Calls the kernel on random arrays of these sizes until the times are known."""
    sizes = {**{n: v for n, v in kernel.sizes.items() if isinstance(v, int)}, **given}
    inputs = random_inputs(kernel, sizes, seed)

    def call() -> Any:
        return kernel(*inputs, sizes=given or None, threads=threads)

    start = time.perf_counter()
    result = call()
    first = time.perf_counter() - start
    times = _times(call)
    names = list(kernel.signature.outputs)
    results = dict(zip(names, result if len(names) > 1 else (result,)))
    deviations: tuple[Deviation, ...] = ()
    if check:
        expected = kernel.reference(*inputs, sizes=given or None)
        references = dict(zip(names, expected if len(names) > 1 else (expected,)))
        work = math.prod(max(1, v) for v in sizes.values())
        deviations = tuple(_deviation(n, results[n], references[n], work) for n in names)
    return Run(kernel, sizes, results, first, min(times), statistics.median(times), deviations)


def random_inputs(kernel: Kernel, sizes: Mapping[str, int], seed: int) -> list[Array]:
    """Normal floats; integers from 0 below the least extent, so that they can be subscripts."""
    random = np.random.default_rng(seed)
    missing = [name for name in kernel.sizes if name not in sizes]
    if missing:
        hint = f"--sizes {','.join(f'{name}=...' for name in missing)}"
        raise SizeError(f"size `{missing[0]}` of {kernel.name} is not given", hint=hint)
    least = max(1, min(sizes.values(), default=1))
    return [
        _random_array(random, t.dtype, tuple(evaluate(e, sizes) for e in t.shape), least)
        for t in kernel.signature.inputs.values()
    ]


def _random_array(
    random: np.random.Generator, dtype: DType, shape: tuple[int, ...], least: int
) -> Array:
    if dtype.is_float:
        return np.asarray(random.standard_normal(shape)).astype(dtype.numpy)
    high = 2 if dtype is DType.BOOL else min(least, dtype.highest)
    return np.asarray(random.integers(0, max(1, high), shape)).astype(dtype.numpy)


def _times(call: Any) -> list[float]:
    times: list[float] = []
    stop = time.perf_counter() + _SECONDS
    while len(times) < _FEWEST or (time.perf_counter() < stop and len(times) < _MOST):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def _deviation(name: str, found: Array, expected: Array, work: int) -> Deviation:
    """Integers must be equal. Floats may be off by a rounding for each term of the longest sum."""
    if found.dtype.kind in "biu":
        wrong = int(np.count_nonzero(found != expected))
        return Deviation(name, float(wrong), 0.0)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        errors = np.where(same, 0.0, np.abs(a - b))
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, float(finite.max(initial=0.0)))
    terms = _SLACK + work / max(1, found.size)
    error = float(np.nan_to_num(errors, nan=np.inf).max(initial=0.0))
    return Deviation(name, error, _EPSILON[str(found.dtype)] * terms * scale)
