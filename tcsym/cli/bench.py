# SPDX-License-Identifier: Apache-2.0
"""Speed of a kernel at several sizes: for `tcsym bench`."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from tcsym.cli.run import free_sizes, kernel_inputs
from tcsym.display.progress import Progress
from tcsym.frontend.program import (
    Binary,
    Call,
    Expr,
    For,
    If,
    Item,
    Program,
    Read,
    Statement,
    Unary,
    dtype_of,
    subexpressions,
)
from tcsym.index.expr import Index, var
from tcsym.index.values import evaluate
from tcsym.kernel.kernel import Kernel
from tcsym.runtime.background import settle
from tcsym.trees import preorder

_ROUNDS = 10
_ROUND_SECONDS = 0.02


class Speed(Struct, frozen=True):
    """At one set of sizes. Times in seconds.

    gflops: floating operations of the text by our least time, where their number is known.
    gbytes: inputs and outputs, once each, by our least time. einsum: numpy's least time, where the
    program is one contraction.
    """

    sizes: dict[str, int]
    best: float
    median: float
    gflops: float | None
    gbytes: float
    einsum: float | None

    def as_json(self) -> dict[str, Any]:
        return dict(to_builtins(self))


def bench_kernels(
    kernel: Kernel, all_sizes: Sequence[Mapping[str, int]], threads: int | None, seed: int
) -> Iterator[Speed]:
    """At each of these sizes."""
    n = len(all_sizes)
    with Progress(f"bench {kernel.name}") as progress:
        for k, sizes in enumerate(all_sizes):
            progress.tell(f"{k} of {n} sizes" if n > 1 else "", k / n)
            yield bench_kernel(kernel, sizes, threads, seed)


def bench_kernel(kernel: Kernel, sizes: Mapping[str, int], threads: int | None, seed: int) -> Speed:
    """Times the kernel on random arrays; turns with numpy's einsum alternate."""
    known = {**{n: v for n, v in kernel.sizes.items() if isinstance(v, int)}, **sizes}
    inputs = kernel_inputs(kernel, known, seed)
    args, free = kernel.program.arguments(inputs, free_sizes(kernel, known))

    def ours() -> Any:
        return kernel(*args, sizes=free, threads=threads)

    result = ours()
    settle()  # the quick entry is made beside us
    runs: list[Callable[[], Any]] = [ours]
    spec = contraction(kernel.program)
    if spec is not None:
        runs.append(lambda: np.einsum(spec, *inputs, optimize=True))
    times = _alternating(runs)
    best = min(times[0])
    results = result if isinstance(result, tuple) else (result,)
    operations = count_operations(kernel.program, known)
    return Speed(
        known,
        best,
        statistics.median(times[0]),
        operations / best / 1e9 if operations else None,
        sum(a.nbytes for a in (*inputs, *results)) / best / 1e9,
        min(times[1]) if len(times) > 1 else None,
    )


def _alternating(runs: Sequence[Callable[[], Any]]) -> list[list[float]]:
    """Seconds of a call in each round, for each of `runs`."""
    repeats = []
    for run in runs:
        run()
        start = time.perf_counter()
        run()
        seconds = time.perf_counter() - start
        repeats.append(max(1, int(_ROUND_SECONDS / max(seconds, 1e-7))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(_ROUNDS):
        for run, n, found in zip(runs, repeats, times):
            run()
            start = time.perf_counter()
            for _ in range(n):
                run()
            found.append((time.perf_counter() - start) / n)
    return times


# ---- work


def count_operations(program: Program, sizes: Mapping[str, int]) -> int | None:
    """Floating operations of the text; a function counts as one. None under `if`, where the number
    of iterations depends on more than sizes."""
    return _operations(program.body, sizes)


def _operations(items: Iterable[Item], sizes: Mapping[str, int]) -> int | None:
    total = 0
    for item in items:
        match item:
            case Statement():
                bounds = [b for r in item.walked for b in (r.lower, r.upper)]
                if not _are_known(bounds, sizes):
                    return None
                extents = (evaluate(r.upper, sizes) - evaluate(r.lower, sizes) for r in item.walked)
                points = math.prod(max(0, n) for n in extents)
                total += points * (_of_value(item.value) + (item.op != "="))
            case For(_, lower, upper, body):
                inside = _operations(body, sizes)
                if inside is None or not _are_known((lower, upper), sizes):
                    return None
                total += max(0, evaluate(upper, sizes) - evaluate(lower, sizes)) * inside
            case If():
                return None
    return total


def _are_known(bounds: Iterable[Index], sizes: Mapping[str, int]) -> bool:
    return all(b.variables() <= sizes.keys() for b in bounds)


def _of_value(e: Expr) -> int:
    counts = (
        isinstance(x, Binary | Call | Unary) for x in subexpressions(e) if dtype_of(x).is_float
    )
    return sum(counts)


def contraction(program: Program) -> str | None:
    """The subscripts of `numpy.einsum` if the program is one sum of products over whole inputs."""
    match program.body:
        case (Statement(op="+=", initialise=True) as statement,):
            factors = _factors(statement.value)
        case _:
            return None
    if factors is None or statement.scattered or not statement.is_box or len(statement.domain) > 26:
        return None
    letters = {r.variable: chr(ord("a") + k) for k, r in enumerate(statement.domain)}
    extents = {r.variable: r.upper for r in statement.domain if r.lower.as_int() == 0}
    positions = {read.tensor: read for read in factors}
    if [t.name for t in program.inputs] != [r.tensor for r in factors] or len(positions) < 2:
        return None
    parts = []
    for read in factors:
        shape = program.tensor(read.tensor).shape
        names = _variables(read.subscripts, letters)
        if names is None or any(extents.get(n) != d for n, d in zip(names, shape)):
            return None
        parts.append("".join(letters[n] for n in names))
    out = _variables(statement.subscripts, letters)
    used = set("".join(parts))
    if out is None or not used >= {letters[r.variable] for r in statement.domain}:
        return None
    return f"{','.join(parts)}->{''.join(letters[n] for n in out)}"


def _factors(e: Expr) -> list[Read] | None:
    """The reads whose product `e` is, in text order."""
    found: list[Read] = []
    for x in preorder(e, _operands):
        if isinstance(x, Read):
            found.append(x)
        elif not _operands(x):
            return None
    return found


def _operands(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Binary("mul", a, b, dtype) if dtype.is_float:
            return a, b
    return ()


def _variables(subscripts: Iterable[Index | Expr], letters: Mapping[str, str]) -> list[str] | None:
    """Their names if all subscripts are index variables."""
    found = []
    for s in subscripts:
        name = str(s) if isinstance(s, Index) else ""
        if name not in letters or s != var(name):
            return None
        found.append(name)
    return found
