# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.fuzz.chunks --minutes 5 --seed 0`: random programs on random chunks of Dask.

Blocks are run by the interpreter, a part of them by machine code, and joined; the interpreter runs
the whole, too. So what differs was cut wrongly.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import dask
import dask.array as da
import numpy as np

import tcsym
import tcsym.dask
from tcsym.dask import task
from tcsym.dask.blocks import blocks_of
from tcsym.errors import TCError
from tests.fuzz.calls import outcome
from tests.fuzz.compare import MANY_RUNS, RUNS, difference, tolerances
from tests.fuzz.generate import random_program
from tests.fuzz.layouts import GARBAGE
from tests.fuzz.model import Case, Sizes

_COMPILED = 0.05  # of the programs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--level", type=int, default=-1)
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    totals: Counter[str] = Counter()
    seed = arguments.seed
    while time.monotonic() < deadline:
        level = seed % 4 if arguments.level < 0 else arguments.level
        case = random_program(random.Random(seed), level)
        for said in tried(case, compiles=random.Random(seed).random() < _COMPILED):
            totals[said.partition("\n")[0]] += 1
            if said.startswith("wrong"):
                print(f"---- seed {seed} level {level} {said}\n{case.source}", flush=True)
        seed += 1
    print(f"{seed - arguments.seed} programs; {dict(totals)}")
    sys.stdout.flush()
    return int(any(said.startswith("wrong") for said in totals))


def tried(case: Case, compiles: bool) -> Iterator[str]:
    """What became of each call: "right, cut", "wrong ...", or why there was none."""
    try:
        kernel = tcsym.define(case.source)[case.name].functional()
    except TCError:
        yield "no program"
        return
    if kernel.program.size_parameters:
        yield "size parameters"
        return
    names = [t.name for t in kernel.program.outputs]
    for sizes in case.sizes:
        inputs = case.arrays(sizes)
        want = outcome(kernel.reference, names, inputs, sizes)
        chunked = _chunked(inputs, random.Random(f"{case.seed} {sizes}"))
        try:
            room = patch.object(task, "room", _garbage)  # nothing reads beyond the ends of inputs
            run = nullcontext() if compiles else interpreted()
            with room, run, _cuts() as cuts, dask.config.set(scheduler="sync"):
                got = outcome(
                    lambda **given: _computed(kernel, given), names, chunked, case.told(sizes)
                )
            found = _difference(kernel, case, got, want, inputs, sizes)
        except Exception as error:
            found = type(error).__name__, str(error)
        if found[0]:
            chunks = {n: x.chunks for n, x in chunked.items()}
            yield f"wrong {found[0]}\n{found[1]}\n{dict(sizes)} {chunks}"
        else:
            what = "error" if isinstance(want, TCError) else "right"
            yield f"{what}, {'cut' if any(cuts) else 'whole'}"


def _computed(kernel: Any, given: dict[str, Any]) -> Any:
    sizes = given.pop("sizes", None)
    lazy = tcsym.dask.apply(kernel, **given, sizes=sizes)
    lazy = lazy if isinstance(lazy, tuple) else (lazy,)
    results = dask.compute(*lazy)
    for x, y in zip(lazy, results):
        if x.shape != y.shape or x.dtype != y.dtype:
            raise AssertionError(f"{x.dtype}{x.shape} was promised, {y.dtype}{y.shape} came")
    return results if len(results) > 1 else results[0]


def _difference(
    kernel: Any, case: Case, got: Any, want: Any, inputs: dict[str, Any], sizes: Sizes
) -> tuple[str, str]:
    if isinstance(want, TCError) or isinstance(got, TCError):
        return difference(got, want, {})
    found = "", ""
    for runs in (RUNS, MANY_RUNS):
        allowed = tolerances(kernel.reference, want, inputs, sizes, case.seed, runs)
        found = difference(got, want, allowed)
        if not found[0]:
            break
    is_special = case.at(sizes).is_special  # infinities that meet in another order
    return ("", "") if found[0] == "values" and is_special else found


def _chunked(inputs: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    made = {}
    for name, x in inputs.items():
        chunks = tuple([_drawn_chunks(n, rng) for n in x.shape])
        made[name] = da.from_array(np.ascontiguousarray(x).reshape(x.shape), chunks=chunks)
    return made


def _drawn_chunks(extent: int, rng: random.Random) -> tuple[int, ...]:
    if extent < 2 or rng.random() < 0.4:
        return (extent,)
    edges = sorted({0, extent, *(rng.randrange(1, extent) for _ in range(rng.randint(1, 3)))})
    return tuple([b - a for a, b in pairwise(edges)])


@contextmanager
def _cuts() -> Iterator[list[int]]:
    """Along how many axes each part of a program is cut."""
    found: list[int] = []

    def noted(*given: Any) -> Any:
        made = blocks_of(*given)
        found.append(len(made.cuts))
        return made

    with patch("tcsym.dask.apply.blocks_of", noted):
        yield found


@contextmanager
def interpreted() -> Iterator[None]:
    """Blocks go to the interpreter."""
    original = task.kernel_of

    def reference(given: Any) -> Any:
        kernel = original(given)
        return lambda *args, sizes, threads: kernel.reference(*args, sizes=sizes)

    with patch.object(task, "kernel_of", reference):
        yield


def _garbage(shape: Any, dtype: Any) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(bytes((GARBAGE,)) * size, dtype).reshape(shape).copy()


if __name__ == "__main__":
    sys.exit(main())
