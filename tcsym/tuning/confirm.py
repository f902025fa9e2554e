# SPDX-License-Identifier: Apache-2.0
"""Options, sizes -> a verdict: measured again, in processes that the search never ran in.

A search looks at hundreds of times and takes the least: some of what it sees is luck. So what it
found is measured anew, longer, beside two copies of the default, in two fresh processes, of which
the second loads and runs everything in the opposite order; `evidence` says what counts.
"""

from __future__ import annotations

import glob
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as Late
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Program
from tcsym.index.expr import Condition
from tcsym.ir.compiled import Compiled
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
)
from tcsym.tuning.evidence import Sample, Verdict, verdict_of
from tcsym.tuning.timing import rounds_of
from tcsym.tuning.workers import WorkerPool

CONFIRMED = 0.15  # seconds for one size in one process
MOST_ROUNDS = 200
_DEFAULT = Options()
_USED = 0.01  # share of the time that another thread must have run to count as one of the call's
Answer = TypeVar("Answer")


class Given(Struct, frozen=True):
    """Compiles what is not among `codes`: they were compiled where the search ran."""

    codes: tuple[tuple[Options, Compiled], ...]
    otherwise: Compile

    def __call__(self, program: Program, target: Target, options: Options) -> Compiled:
        found = dict(self.codes).get(options)
        return self.otherwise(program, target, options) if found is None else found


class RoundsJob(Struct, frozen=True):
    """The default, its copy and a candidate at one size, for `seconds`.

    regions: sizes that have options of their own once the candidate is kept, which its calls find.
    """

    program: Program
    target: Target
    candidate: Options
    values: Values
    threads: int
    seconds: float = CONFIRMED
    seed: int = 0
    context: Context = ()
    compile: Compile = compile_dense
    is_reversed: bool = False
    regions: tuple[Condition, ...] = ()


@depth_checked
def evaluate_rounds(job: RoundsJob) -> Sample:
    """Runs in a worker. Errors: whatever compiling or a call raises."""
    require_alike(job.target)
    inputs = inputs_at(job.program, job.values, job.seed)
    entrants = [(0, _DEFAULT, 1), (1, _DEFAULT, 2), (2, job.candidate, 1)]
    order = entrants[::-1] if job.is_reversed else entrants
    given = job.context, job.values, inputs, job.threads
    calls = []
    for _, options, copy in order:
        kernel = loaded(job.program, job.target, options, job.compile, copy)
        regions = job.regions if options == job.candidate else ()
        calls.append(call_of(job.program, job.target, kernel, *given, regions))
        calls[-1]()
    start, before = time.perf_counter(), _spent_by_others()
    rounds = rounds_of(calls, job.seconds, MOST_ROUNDS)
    waited = _waited(before, _spent_by_others(), time.perf_counter() - start)
    places = [k for k, _, _ in order]
    at = [places.index(k) for k in range(3)]
    return Sample(tuple((r[at[0]], r[at[1]], r[at[2]]) for r in rounds), waited)


def _spent_by_others() -> dict[str, tuple[float, float]]:
    """Seconds that each other thread of this process ran, and that it waited for a core.

    From Linux' scheduler; nothing where it does not tell.
    """
    found: dict[str, tuple[float, float]] = {}
    own = str(threading.get_native_id())
    for path in glob.glob("/proc/self/task/*/schedstat"):
        task = path.split("/")[4]
        try:
            with open(path, encoding="ascii") as file:
                ran, waited, *_ = map(int, file.read().split())
        except (OSError, ValueError):
            continue  # it ended meanwhile
        if task != own:
            found[task] = ran / 1e9, waited / 1e9
    return found


def _waited(
    before: dict[str, tuple[float, float]], after: dict[str, tuple[float, float]], seconds: float
) -> float:
    """Share of the time that threads which ran waited for a core."""
    found = 0.0
    for task, (ran, waited) in after.items():
        ran_before, waited_before = before.get(task, (0.0, 0.0))
        if ran - ran_before + waited - waited_before > _USED * seconds:
            found += waited - waited_before
    return found / max(seconds, 1e-9)


def code_of(job: Job) -> Compiled:
    """The code of a job's candidate, which the worker that measured it still has."""
    return loaded(job.program, job.target, job.candidate, job.compile).compiled


def ready() -> float:
    """A worker that answers has begun."""
    return time.monotonic()


class Confirmation:
    """Two processes of its own; with a given executor, wherever that runs jobs.

    left: seconds until there must be an answer. regions: as of `RoundsJob`.
    """

    def __init__(
        self, template: Job, executor: Executor | None, memory: int, left: Callable[[], float]
    ) -> None:
        self.template = template
        self.left = left
        self.codes: dict[Options, Compiled] = {}
        self.regions: tuple[Condition, ...] = ()
        self.each = 2 * CONFIRMED  # seconds for one verdict, as far as is known
        self._own = [] if executor else [WorkerPool(1, memory=memory) for _ in range(2)]
        self.executors: list[Executor] = [executor, executor] if executor else [*self._own]
        self.begin(0)

    def begin(self, k: int) -> None:
        """The k-th process begins, if it is one of its own: that takes a while."""
        for pool in self._own[k : k + 1]:
            pool.submit(ready)

    def close(self) -> None:
        """What still runs is killed."""
        for pool in self._own:
            pool.kill()

    def verdict(self, options: Options, values: Values) -> Verdict | str:
        """Of these options at these sizes; or why there is none: no time, or they failed."""
        if self.left() < self.each:
            return LATE
        start = time.monotonic()
        samples = []
        for k, executor in enumerate(self.executors):
            job = replace(self._job(options, values), is_reversed=k == 1)
            try:
                samples.append(answer(executor.submit(evaluate_rounds, job), self.left()))
            except Late:
                return LATE
            except Exception as error:  # a failure of the candidate is a result
                return f"{options}: {type(error).__name__}: {error}"[:300]
        self.each = max(self.each, time.monotonic() - start)
        return verdict_of(samples)

    def _job(self, options: Options, values: Values) -> RoundsJob:
        t = self.template
        known = {o: c for o, c in self.codes.items() if o in (_DEFAULT, options)}
        compile = Given(tuple(known.items()), t.compile) if known else t.compile
        given = t.program, t.target, options, values, t.threads
        return RoundsJob(
            *given, seed=t.seed, context=t.context, compile=compile, regions=self.regions
        )


LATE = "no time was left to measure again what the search found"


def answer(future: Future[Answer], seconds: float) -> Answer:
    """The result. TimeoutError: it takes longer; the job is cancelled."""
    try:
        return future.result(None if seconds == float("inf") else max(0.0, seconds))
    except BaseException:
        future.cancel()
        raise
