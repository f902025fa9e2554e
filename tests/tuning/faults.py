# SPDX-License-Identifier: Apache-2.0
"""Compilers that misbehave for marked options, and executors, for tests of the tuner."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import lru_cache
from typing import Any

from tcsym.compiler import analyse
from tcsym.frontend.program import Program
from tcsym.ir.compiled import Compiled
from tcsym.options import Options
from tcsym.target.target import Target
from tcsym.tuning.confirm import RoundsJob, code_of
from tcsym.tuning.evaluate import Job, Outcome, compile_dense
from tcsym.tuning.evidence import Sample
from tcsym.tuning.side_by_side import Entrant, FieldJob
from tcsym.tuning.space import Space, space_of
from tcsym.tuning.timing import Ratio

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
WRONG = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) * 1.001 }"
CRASH, EXIT, WRONG_RESULT, HUNGRY, RAISE, HANG = (
    Options(min_work_per_thread=marked) for marked in (41, 42, 43, 44, 45, 46)
)


def faulty(program: Program, target: Target, options: Options) -> Compiled:
    """Misbehaves for the options above, in its own process or in what it makes."""
    if options == CRASH:
        os.kill(os.getpid(), signal.SIGSEGV)
    if options == EXIT:
        os._exit(3)
    if options == HUNGRY:
        kept = [bytearray(2**33) for _ in range(1000)]
        assert kept
    if options == RAISE:
        raise ZeroDivisionError("a bug of the compiler")
    if options == HANG:
        time.sleep(1000)
    if options == WRONG_RESULT:
        program = analyse(WRONG)["mm"]
    return compile_dense(program, target, options)


class Inline(Executor):
    """Runs jobs at once, here; counts them; `before` is called with each."""

    def __init__(self, before: Callable[[Any], None] = lambda _: None) -> None:
        self.jobs: list[Job] = []
        self.fields: list[FieldJob] = []
        self.confirmed: list[RoundsJob] = []
        self.before = before

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if is_measured(fn, args):
            self.before(args[0])
            self.noted(args[0])
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def noted(self, job: Any) -> None:
        kinds: dict[type, list[Any]] = {FieldJob: self.fields, RoundsJob: self.confirmed}
        kinds.get(type(job), self.jobs).append(job)


def is_measured(fn: Any, args: tuple[Any, ...]) -> bool:
    """Not if it is one of the other things that a tune has workers do."""
    return bool(args) and isinstance(args[0], Job | FieldJob | RoundsJob) and fn is not code_of


class Modelled(Inline):
    """No compiling: `seconds` of options at sizes are what a function says."""

    def __init__(
        self,
        seconds: Callable[[Options, tuple[int, ...]], float],
        before: Callable[[Any], None] = lambda _: None,
    ) -> None:
        super().__init__(before)
        self.seconds = seconds

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if is_measured(fn, args):
            return super().submit(self._outcome, *args)
        if fn is code_of:
            future: Future[Any] = Future()
            future.set_exception(RuntimeError("nothing was compiled"))
            return future
        return super().submit(fn, *args, **kwargs)

    def _outcome(self, job: Job | FieldJob | RoundsJob) -> Outcome | Sample | tuple[Entrant, ...]:
        if isinstance(job, RoundsJob):
            default, ours = (self.seconds(o, job.values) for o in (Options(), job.candidate))
            return Sample(((default, default, ours),) * 12)
        if isinstance(job, FieldJob):
            times = [self.seconds(options, job.values) for options in job.candidates]
            return tuple(Entrant(Ratio(math.log(t / times[0]), 0.001, t)) for t in times)
        ratios = []
        for values in job.sizes:
            ours, theirs = self.seconds(job.candidate, values), self.seconds(job.rival, values)
            ratios.append((values, Ratio(math.log(ours / theirs), 0.001, ours)))
        return Outcome("measured", "", job.candidate.to_json(), tuple(ratios))


@lru_cache(None)
def _space_of(program: Program, target: Target, default: Options, threads: int) -> Space:
    return space_of(program, target, default, threads)


def cached_space_of(program: Program, target: Target, default: Options, threads: int) -> Space:
    """Found once: it takes as long as compiling ten candidates."""
    return _space_of(program, target, default, threads)
