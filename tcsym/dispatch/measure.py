"""Two variants, sizes -> seconds of a run of each, turn by turn on made-up inputs."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from tcsym.dispatch.version import Values
from tcsym.runtime.arrays import View, numpy_view
from tcsym.runtime.plan import CallPlan
from tcsym.threads import get_num_threads
from tcsym.variants import Variant

_SECONDS, _MOST_RUNS, _LEAST_RUNS = 0.1, 200, 5

Seconds = list[float]


def run_in_turns(
    plan: CallPlan, first: Variant, second: Variant, sizes: Values
) -> tuple[Seconds, Seconds] | None:
    """Seconds of single runs of both, for about a tenth of a second. None if a run fails.

    Inputs are zeros: valid as positions of gathers, wherever a gather has something to read.
    """
    views = _views(plan, sizes)
    threads = get_num_threads()
    spent: tuple[Seconds, Seconds] = ([], [])
    until = perf_counter() + _SECONDS
    while len(spent[1]) < _LEAST_RUNS or (perf_counter() < until and len(spent[1]) < _MOST_RUNS):
        for variant, seconds in zip((first, second), spent):
            start = perf_counter()
            if variant.run(views, sizes, threads):
                return None
            seconds.append(perf_counter() - start)
    return spent[0][1:], spent[1][1:]


def _views(plan: CallPlan, sizes: Values) -> tuple[View, ...]:
    extents = dict(zip(plan.sizes, sizes))
    shapes = [
        (p.dtype, tuple(d if isinstance(d, int) else extents[d] for d in p.dimensions))
        for p in plan.inputs
    ]
    shapes += [(o.dtype, shape) for o, shape in zip(plan.outputs, plan.shapes(*sizes))]
    return tuple(numpy_view(np.zeros(shape, dtype.numpy)) for dtype, shape in shapes)
