"""Running a kernel on random inputs: for `tcsym run`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tcsym.cli.arrays import sizes_of_arrays
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
    free = free_sizes(kernel, given)

    def call() -> Any:
        return kernel(*inputs, sizes=free, threads=threads)

    before = _copies(kernel, inputs)
    start = time.perf_counter()
    # shapes of given arrays and given sizes may disagree
    result = kernel(*inputs, sizes=dict(given), threads=threads) if arrays else call()
    first = time.perf_counter() - start
    results = _results(kernel, result, _copies(kernel, inputs))
    settle()  # the quick entry is made beside us
    times = _times(call)
    deviations: tuple[Deviation, ...] = ()
    if check:
        expected = kernel.reference(*before, sizes=given or None)
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


def free_sizes(kernel: Kernel, given: Mapping[str, int]) -> dict[str, int] | None:
    """Those that no input has: only they go the quick way as `sizes=`. None: there are none."""
    shapes = (t.shape for t in kernel.signature.inputs.values())
    inferred = {name for shape in shapes for extent in shape for name in extent.variables()}
    return {n: v for n, v in given.items() if n not in inferred} or None


def kernel_inputs(kernel: Kernel, sizes: Mapping[str, int], seed: int) -> list[Array]:
    """Random inputs of these sizes. SizeError: one is missing."""
    missing = [name for name in kernel.sizes if name not in sizes]
    if missing:
        hint = f"--sizes {','.join(f'{name}=...' for name in missing)}"
        raise SizeError(f"size `{missing[0]}` of {kernel.name} is not given", hint=hint)
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
