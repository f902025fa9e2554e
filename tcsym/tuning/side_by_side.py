# SPDX-License-Identifier: Apache-2.0
"""Several candidates at one size -> each one's time by the first one's; runs in a worker.

What a race learns of one candidate against its incumbent, this learns of many at once: their calls
are interleaved, inputs and expected results are made once. So hundreds of sizes can be visited.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Program
from tcsym.options import Options
from tcsym.process.recursion import depth_checked
from tcsym.sizes.context import Context
from tcsym.target.target import Target
from tcsym.tuning.called import call_of
from tcsym.tuning.evaluate import (
    Compile,
    Job,
    Values,
    compile_dense,
    inputs_at,
    loaded,
    require_alike,
    wrong_at,
)
from tcsym.tuning.timing import Ratio, compare_all


class FieldJob(Struct, frozen=True):
    """Candidates at one size; the first is the yardstick. One that is listed twice is loaded twice.

    seconds: for all together, about. precision: as of `compare_all`.
    """

    program: Program
    target: Target
    candidates: tuple[Options, ...]
    values: Values
    threads: int
    seconds: float
    precision: float = 0.01
    seed: int = 0
    context: Context = ()
    compile: Compile = compile_dense


class Entrant(Struct, frozen=True):
    """What became of one candidate: its ratio, or the reason why there is none."""

    ratio: Ratio | None
    reason: str = ""


@depth_checked
def evaluate_field(job: FieldJob) -> tuple[Entrant, ...]:
    """Compile, check, time. Candidates that fail have reasons; ValueError if the first one does."""
    require_alike(job.target)
    reasons = [""] * len(job.candidates)
    calls = {}
    inputs = inputs_at(job.program, job.values, job.seed)
    copies: Counter[Options] = Counter()
    for k, options in enumerate(job.candidates):
        copies[options] += 1
        try:
            kernel = loaded(job.program, job.target, options, job.compile, copies[options])
            reasons[k] = wrong_at(_as_job(job, options), kernel, job.values, interpreted=False)
        except Exception as error:  # any failure of a candidate is a result
            reasons[k] = f"{type(error).__name__}: {error}"[:500]
        if not reasons[k]:
            given = job.context, job.values, inputs, job.threads
            calls[k] = call_of(job.program, job.target, kernel, *given)
    if 0 not in calls:
        raise ValueError(reasons[0])
    ratios = dict(zip(calls, compare_all(list(calls.values()), job.seconds, job.precision)))
    return tuple(Entrant(ratios.get(k), reason) for k, reason in enumerate(reasons))


def template_field(job: Job) -> FieldJob:
    """The same program, machine and compiler; no candidates yet."""
    given = job.program, job.target, (), (), job.threads, 0.0
    return FieldJob(*given, seed=job.seed, context=job.context, compile=job.compile)


def _as_job(job: FieldJob, options: Options) -> Job:
    given = job.program, job.target, options, options, (job.values,), job.threads
    return replace(Job(*given), seed=job.seed, context=job.context, compile=job.compile)
