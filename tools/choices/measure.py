# SPDX-License-Identifier: Apache-2.0
"""A program -> lines of the table: the plans that ran at some sizes, and their times."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

import tcsym
from tcsym.compiler import Lowering, analyse
from tcsym.frontend.program import Program
from tcsym.frontend.sample import random_inputs
from tcsym.index.expr import Condition, condition_variables
from tcsym.index.values import holds
from tcsym.ir.launched import chosen
from tcsym.ir.loops import THREADS
from tcsym.mapping.text import with_nest
from tcsym.plan_costs import Alternative, alternatives
from tcsym.schedule.chosen import Choice, Note, Taken
from tcsym.schedule.map_cpu import Mapped, map_cpu
from tcsym.target.names import resolve_target
from tcsym.tuning.plans import plans_of
from tools.choices.programs import Drawn, Sizes, sizes_of

MOST_NESTS, MOST_PLANS = 4, 24
SAMPLE_NS, ROUNDS = 300_000, 9


def alternatives_of(program: Program, target: str) -> list[Alternative]:
    """The default first, then each version of directives, then plans by name: `alternatives`."""
    dense = ("dense",) * (len(program.inputs) + len(program.outputs))
    found_target, options = resolve_target(target), tcsym.Options()
    machine = found_target.machine
    kernel = Lowering(program, found_target, options, {}, dense, (), {}).scheduled().kernel
    default, *by_name = alternatives(kernel, machine, options, MOST_NESTS, MOST_PLANS)
    found = [default]
    for x in plans_of(kernel, machine, options):
        asked = replace(options, plan=with_nest("", x.nest, x.text))
        found.append(Alternative(x.nest, x.name, asked, map_cpu(kernel, machine, asked, True)))
    return [*found, *by_name][:MOST_PLANS]


def plans_at(mapped: Mapped, sizes: Mapping[str, int]) -> list[str]:
    """What runs at these sizes, as text: plans of all nests, each with those inside it."""
    values = {THREADS: 1, **sizes}
    return _plans_at(mapped.choices, {**values, **chosen(mapped.kernel, values)})


def _plans_at(record: Iterable[Choice | Note], values: Mapping[str, int]) -> list[str]:
    found = []
    for x in record:
        if isinstance(x, Choice):
            versions = (t for t in x.versions if isinstance(t, Taken))
            taken = next((t for t in versions if _holds(t.when, values)), None)
            if taken is None:  # beside what another choice is of
                continue
            inside = _plans_at(taken.inside, values)
            text = re.sub(r"(?<=\w)\.\d+\b", "", str(taken.plan))
            found.append(f"{text} [{'; '.join(inside)}]" if inside else text)
    return found


def _holds(c: Condition, values: Mapping[str, int]) -> bool:
    """Those that sizes do not tell count as true."""
    return not condition_variables(c) <= values.keys() or holds(c, values)


def measure(drawn: Drawn, target: str, n_sizes: int, seed: int) -> Iterator[dict[str, Any]]:
    module = analyse(drawn.source)
    entry = drawn.entry or next(iter(module))
    program = module[entry]
    found = alternatives_of(program, target)
    if len(found) < 2:
        return
    kernels = []
    for x in found:
        made = tcsym.define(drawn.source, target=target, strategy="symbolic", options=x.options)
        kernels.append(made[entry])
    rng = random.Random(f"{seed} {drawn.name}")
    for sizes in sizes_of(drawn, program, n_sizes, rng):
        by_plans: dict[str, tuple[Alternative, Any]] = {}
        for x, kernel in zip(found, kernels, strict=True):
            by_plans.setdefault(" | ".join(plans_at(x.mapped, sizes)), (x, kernel))
        if len(by_plans) < 2:
            continue
        times = _times(program, [k for _, k in by_plans.values()], sizes, rng)
        yield {
            "program": drawn.name,
            "family": drawn.family,
            "source": drawn.source,
            "def": entry,
            "target": target,
            "sizes": sizes,
            "alternatives": [
                {"option": x.option, "plans": plans, "ns": ns}
                for (plans, (x, _)), ns in zip(by_plans.items(), times, strict=True)
                if ns is not None
            ],
        }


def _times(
    program: Program, kernels: Sequence[Any], sizes: Sizes, rng: random.Random
) -> list[float | None]:
    """Least nanoseconds of a call of each; None where the results are not those of the first."""
    inputs = random_inputs([(t.dtype, t.shape) for t in program.inputs], sizes, rng.randrange(99))
    results = [_tuple(k(*inputs)) for k in kernels]
    good = [all(map(_is_close, results[0], r)) for r in results]
    repeats = []
    for k in kernels:
        once = min(_sample(k, inputs, 1) for _ in range(3))
        repeats.append(max(1, min(1000, round(SAMPLE_NS / max(once, 100)))))
    least = [math.inf] * len(kernels)
    for _ in range(ROUNDS):
        for i in rng.sample(range(len(kernels)), len(kernels)):
            least[i] = min(least[i], _sample(kernels[i], inputs, repeats[i]))
    return [round(ns, 1) if ok else None for ns, ok in zip(least, good, strict=True)]


def _sample(kernel: Any, inputs: Sequence[Any], repeats: int) -> float:
    start = time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID)
    for _ in range(repeats):
        kernel(*inputs)
    return (time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID) - start) / repeats


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _is_close(a: Any, b: Any) -> bool:
    a, b = (np.nan_to_num(np.asarray(x, np.float64)) for x in (a, b))
    scale = max(1.0, float(np.abs(a).max(initial=0.0)))
    return bool(np.abs(a - b).max(initial=0.0) <= 1e-3 * scale)
