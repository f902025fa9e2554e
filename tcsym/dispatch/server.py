# SPDX-License-Identifier: Apache-2.0
"""What a process beside the calls does: compile and measure what no call has to wait for.

In another process neither Python's lock nor LLVM's is taken from the user's threads.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, assert_never

from tcsym.compiler import compile_program
from tcsym.dispatch.requests import AnyWork, Refining, Weighing, Work
from tcsym.process.helper import request
from tcsym.sizes.dims import Dim

if TYPE_CHECKING:
    from tcsym.dispatch.compare_entries import Weighed
    from tcsym.dispatch.making import Making
    from tcsym.dispatch.refine import Contest, Refined
    from tcsym.dispatch.version import Values


def asked(work: AnyWork) -> bytes:
    """What to send for one work."""
    match work:
        case Work(variants, layouts, share):
            program, target, options = variants.plan.program, variants.target, variants.options
            given = program, target, options, variants.fixed, layouts, variants.context
            return request(compile_program, *given, share=share)
        case Weighing(making, sizes, bound, threads, share):
            return request(weigh_kernel, _kernel(making), sizes, bound, threads, share=share)
        case Refining(making, sizes, threads, share):
            return request(refine_kernel, _kernel(making), sizes, threads, share=share)
        case _:
            assert_never(work)


def _kernel(making: Making) -> bytes:
    """A key, too, of what is made of it once."""
    plan = making.plan
    declared: dict[str, Dim | int] = {plan.sizes[k]: d for k, d in plan.promises.items()}
    facts = plan.program, {**declared, **making.known}, making.target, making.given
    return pickle.dumps((*facts, making.candidates))


def _making(kernel: bytes) -> Making:
    from tcsym.dispatch.making import Making
    from tcsym.runtime.plan import plan_call
    from tcsym.runtime.stats import Counters

    program, declared, target, options, _ = pickle.loads(kernel)
    return Making(plan_call(program, declared, frozenset(), target), target, options, Counters())


def weigh_kernel(
    kernel: bytes, sizes: Sequence[Values], bound: Mapping[str, int], threads: int
) -> tuple[Weighed, str] | None:
    """What `dispatch.weigh` measures, or what an earlier process did."""
    from tcsym.dispatch.compare_entries import weigh
    from tcsym.dispatch.recorded_choice import keep, recall
    from tcsym.process.threads import set_num_threads

    set_num_threads(threads)  # options are tuned for one, or for several
    making = _making(kernel)
    weighed = recall(making, bound)
    if weighed is not None:
        return weighed, "measured before"
    weighed = weigh(making, sizes, bound, threads)
    if weighed is None:
        return None
    keep(making, bound, weighed)
    return weighed, "measured beside the calls"


def refine_kernel(kernel: bytes, sizes: Values, threads: int) -> Refined | None:
    """What `dispatch.refine` measures."""
    from tcsym.dispatch.refine import keep
    from tcsym.process.threads import set_num_threads

    set_num_threads(threads)  # options are tuned for one, or for several
    contest = _contest(kernel)
    found = contest.fastest(sizes, threads)
    if found is not None:
        keep(contest.making, sizes, found)
    return found


@lru_cache(8)
def _contest(kernel: bytes) -> Contest:
    """Made once: the code of its candidates is kept from one choice of sizes to the next."""
    from tcsym.dispatch.refine import Contest

    return Contest(_making(kernel))
