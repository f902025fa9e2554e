# SPDX-License-Identifier: Apache-2.0
"""Running a kernel on random inputs: for `tcsym run`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tcsym.cli.arrays import sizes_of_arrays
from tcsym.cli.output import nearest
from tcsym.errors import SizeError
from tcsym.frontend.sample import Array, Deviation, deviation, random_inputs
from tcsym.kernel.kernel import Kernel
from tcsym.runtime.background import settle

_SECONDS = 0.2  # of repetition, for the times
_FEWEST, _MOST = 3, 10_000


class Run(Struct, frozen=True):
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
    kernel: Kernel,
    given: Mapping[str, int],
    threads: int | None,
    check: bool,
    seed: int,
    arrays: Mapping[str, Array] | None = None,
) -> Run:
    """Calls the kernel until the times are known, on random arrays of these sizes.

    arrays: inputs that are not random; they bring their sizes.
    """
    arrays = arrays or {}
    fixed = {n: v for n, v in kernel.sizes.items() if isinstance(v, int)}
    sizes = {**fixed, **sizes_of_arrays(kernel, arrays), **given}
    names = list(kernel.signature.inputs)
    if set(names) == set(arrays):
        inputs = [arrays[name] for name in names]
    else:
        inputs = kernel_inputs(kernel, sizes, seed)
        inputs = [arrays.get(name, x) for name, x in zip(names, inputs)]
    args, free = kernel.program.arguments(inputs, free_sizes(kernel, sizes))

    def call() -> Any:
        return kernel(*args, sizes=free, threads=threads)

    before = _copies(kernel, inputs)
    start = time.perf_counter()
    # shapes of given arrays and given sizes may disagree
    result = kernel(*args, sizes=dict(given), threads=threads) if arrays else call()
    first = time.perf_counter() - start
    results = _results(kernel, result, _copies(kernel, inputs))
    settle()  # the quick entry is made beside us
    times = _times(call)
    deviations: tuple[Deviation, ...] = ()
    if check:
        args, _ = kernel.program.arguments(before, free_sizes(kernel, sizes))
        expected = kernel.reference(*args, sizes=given or None)
        references = _results(kernel, expected, before)
        deviations = tuple(deviation(n, x, references[n], sizes) for n, x in results.items())
    return Run(kernel, sizes, results, first, min(times), statistics.median(times), deviations)


def _copies(kernel: Kernel, inputs: Sequence[Array]) -> list[Array]:
    """The inputs, with copies of those that the next call updates."""
    signature = kernel.signature
    return [x.copy() if n in signature.inouts else x for n, x in zip(signature.inputs, inputs)]


def _results(kernel: Kernel, result: Any, inputs: Sequence[Array]) -> dict[str, Array]:
    """By name what a call returned, and what it updated among its inputs."""
    signature = kernel.signature
    names = list(signature.outputs)
    given = zip(signature.inputs, inputs)
    updated = {n: x for n, x in given if n in signature.inouts}
    return dict(zip(names, result if len(names) > 1 else (result,))) | updated


def free_sizes(kernel: Kernel, known: Mapping[str, int]) -> dict[str, int]:
    """Those that no input has, and that are not fixed or are parameters. SizeError: one of these is
    missing."""
    program = kernel.program
    fixed = {n for n, v in kernel.sizes.items() if isinstance(v, int)}
    fixed -= {p.name for p in program.size_parameters}
    require_sizes(kernel, known, program.free_sizes)
    return {n: known[n] for n in program.free_sizes if n not in fixed}


def require_sizes(kernel: Kernel, known: Mapping[str, int], names: Iterable[str]) -> None:
    missing = [name for name in names if name not in known]
    if missing:
        hint = f"--sizes {','.join(f'{name}=...' for name in missing)}"
        raise SizeError(f"size `{missing[0]}` of {kernel.name} is not given", hint=hint)


def kernel_inputs(kernel: Kernel, sizes: Mapping[str, int], seed: int) -> list[Array]:
    """Random inputs of these sizes. SizeError: one is missing, or is none of the kernel's."""
    require_sizes(kernel, sizes, kernel.sizes)
    unknown = [name for name in sizes if name not in kernel.sizes]
    if unknown:
        near = nearest(unknown[0], kernel.sizes)
        hint = " ".join(filter(None, (near, f"its sizes are {', '.join(kernel.sizes)}")))
        raise SizeError(f"`{unknown[0]}` is no size of {kernel.name}", hint=hint)
    tensors = [(t.dtype, t.shape) for t in kernel.signature.inputs.values()]
    return random_inputs(tensors, sizes, seed)


def _times(call: Any) -> list[float]:
    times: list[float] = []
    stop = time.perf_counter() + _SECONDS
    while len(times) < _FEWEST or (time.perf_counter() < stop and len(times) < _MOST):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times
