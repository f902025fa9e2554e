# SPDX-License-Identifier: Apache-2.0
"""Candidates over sizes: all at a few sizes first, the better half at more (successive halving).

Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013. What wins
at any single size stays in: regions need the best of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.options import Options
from tcsym.tuning.evaluate import Job, Outcome, Values, evaluate_job
from tcsym.tuning.timing import Ratio

Answer = TypeVar("Answer")
CLOSE = 0.05  # a candidate this near the incumbent at a size may be the best there


class Attempt(Struct):
    """What is known of one candidate. Ratios are by the default's time.

    is_lost: its last job died with its worker, of whatever cause.
    """

    options: Options
    state: str
    reason: str = ""
    ratios: dict[Values, Ratio] = field(default_factory=dict)
    elapsed: float = 0.0
    is_lost: bool = False

    def __str__(self) -> str:
        """One line: a tune's candidates are measured at hundreds of sizes."""
        told = f"{self.state}, {self.reason}" if self.reason else self.state
        if self.ratios:
            mean = sum(r.log for r in self.ratios.values()) / len(self.ratios)
            told += f", {math.exp(-mean):.3f} times as fast at {len(self.ratios)} sizes"
        return f"{self.options}: {told}"

    def cost(self, weights: Mapping[Values, float]) -> tuple[float, float]:
        """Logarithm of the weighted mean ratio over the sizes measured, and its standard error."""
        known = {v: r for v, r in self.ratios.items() if v in weights}
        total = sum(weights[v] for v in known)
        if not total or self.state == "failed":
            return math.inf, 0.0
        mean = sum(weights[v] * r.log for v, r in known.items()) / total
        error = math.sqrt(sum((weights[v] * r.noise) ** 2 for v, r in known.items())) / total
        return mean, error

    def is_complete(self, weights: Mapping[Values, float]) -> bool:
        return self.state == "measured" and all(v in self.ratios for v in weights)


class Race(Struct):
    """Runs jobs like `template` on an executor; `timeout` in seconds a job.

    left: seconds until the race is over, whatever still runs. What had no time is no failure.
    """

    template: Job
    executor: Executor
    timeout: float
    seconds: dict[Values, float]
    left: Callable[[], float] = lambda: math.inf
    twins: dict[str, Attempt] = field(default_factory=dict)

    def is_over(self) -> bool:
        return self.left() <= 0

    def wait_for(self, futures: Sequence[Future[Any]]) -> None:
        """Until all are done, or time is up: then those that did not begin never do."""
        try:
            wait(futures, timeout=max(0.0, min(self.timeout * (1 + len(futures)), self.left())))
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        if self.is_over():
            for future in futures:
                future.cancel()

    def run(
        self, candidates: Sequence[Options], rival: Attempt, weights: Mapping[Values, float]
    ) -> list[Attempt]:
        """Measure candidates against the rival at more and more of the sizes."""
        attempts = [Attempt(options, "raced") for options in candidates]
        alive = attempts
        todo = tuple(sorted(weights, key=lambda v: self.seconds[v]))
        for rung in _rungs(todo):
            if self.is_over():
                break
            self.measure(alive, rival, rung)
            alive = [a for a in alive if a.state in ("raced", "measured")]
            alive = self._survivors(alive, rival, weights)
        for a in alive:
            if all(v in a.ratios for v in todo):
                a.state = "measured"
        return attempts

    def confirm(self, candidate: Attempt, rival: Attempt, sizes: tuple[Values, ...]) -> None:
        """Measure again, four times as long; what was found before counts no more."""
        fresh = Attempt(candidate.options, candidate.state)
        slow = {v: 4 * s for v, s in self.seconds.items()}
        patient = Race(self.template, self.executor, self.timeout, slow, self.left)
        patient.measure([fresh], rival, sizes, precision=0.004)
        candidate.ratios.update(fresh.ratios)
        if fresh.state == "failed":
            candidate.state, candidate.reason = fresh.state, fresh.reason

    def _survivors(
        self, alive: list[Attempt], rival: Attempt, weights: Mapping[Values, float]
    ) -> list[Attempt]:
        def wins_somewhere(a: Attempt) -> bool:
            return any(r.log < rival.ratios[v].log + CLOSE for v, r in a.ratios.items())

        ranked = sorted(alive, key=lambda a: a.cost(weights)[0])
        half = math.ceil(len(ranked) / 2)
        kept = [a for k, a in enumerate(ranked) if wins_somewhere(a) or k < half]
        return [a for a in kept if not all(r.gave_up for r in a.ratios.values())]

    def measure(
        self,
        attempts: Sequence[Attempt],
        rival: Attempt,
        sizes: tuple[Values, ...],
        precision: float = 0.01,
    ) -> None:
        jobs = [self._job(a, rival, sizes, precision) for a in attempts]
        futures = [self._submitted(job) for job in jobs]
        self.wait_for(futures)
        for attempt, future in zip(attempts, futures):
            if self.is_over() and (future.cancelled() or not future.done()):
                continue
            outcome = outcome_of(future)
            attempt.is_lost = _is_lost(future)
            if isinstance(outcome, str):
                outcome = Outcome("failed", outcome)
            self._record(attempt, rival, outcome)

    def _submitted(self, job: Job) -> Future[Outcome]:
        """A broken executor takes none: that is the job's failure, too. Nor is there any when time
        is up: an executor may run what it is given at once."""
        future: Future[Outcome] = Future()
        if self.is_over():
            future.cancel()
            return future
        try:
            return self.executor.submit(evaluate_job, job)
        except Exception as error:
            future.set_exception(error)
            return future

    def _job(self, a: Attempt, rival: Attempt, sizes: tuple[Values, ...], precision: float) -> Job:
        known = frozenset(self.twins) if not a.ratios else frozenset[str]()
        seconds = sum(self.seconds[v] for v in sizes) / len(sizes)
        return replace(
            self.template,
            candidate=a.options,
            rival=rival.options,
            sizes=sizes,
            seconds=seconds,
            precision=precision,
            known=known,
        )

    def _record(self, attempt: Attempt, rival: Attempt, outcome: Outcome) -> None:
        if outcome.state in ("failed", "same"):
            attempt.state, attempt.reason = outcome.state, outcome.reason
            if outcome.state == "same":
                attempt.ratios = self.twins[outcome.fingerprint].ratios
            return
        self.twins.setdefault(outcome.fingerprint, attempt)
        for values, ratio in outcome.ratios:
            known = rival.ratios[values]
            noise = math.hypot(ratio.noise, known.noise)
            attempt.ratios[values] = replace(ratio, log=ratio.log + known.log, noise=noise)


def _rungs(sizes: tuple[Values, ...]) -> list[tuple[Values, ...]]:
    """A quarter of the sizes, the next quarter, the rest: spread over the order given."""
    n = len(sizes)
    spread = [sizes[k] for step in (4, 2, 1) for k in range(0, n, step)]
    order = tuple(dict.fromkeys(spread))
    first, second = math.ceil(n / 4), math.ceil(n / 2)
    return [r for r in (order[:first], order[first:second], order[second:]) if r]


def _is_lost(future: Future[Outcome]) -> bool:
    """True if not the job but its worker failed, and not by taking too long."""
    if future.cancelled() or not future.done():
        return False
    error = future.exception()
    return error is not None and not isinstance(error, TimeoutError | ValueError)


def outcome_of(future: Future[Answer]) -> Answer | str:
    """What a job came to, or why it did not."""
    if not future.done():
        future.cancel()
        return "no answer from the executor"
    try:
        return future.result()
    except Exception as error:  # a candidate's failure is a result
        return f"{error}" or type(error).__name__
