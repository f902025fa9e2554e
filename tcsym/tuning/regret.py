# SPDX-License-Identifier: Apache-2.0
"""Tuned options at sizes that were not tuned -> what is lost against the best of some rivals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from tcsym.options import Options
from tcsym.tuning.confirm import CONFIRMED
from tcsym.tuning.distribution import Values, distance
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.request import DEFAULT, Request, template_job
from tcsym.tuning.side_by_side import template_field
from tcsym.tuning.survey import ask
from tcsym.tuning.workers import WorkerPool

RIVALS, FINALISTS = 12, 2
SCREENED = 0.1  # seconds for all rivals at one size; the finalists have `CONFIRMED`
PRECISION = 0.004


def certify(
    request: Request,
    serving: Callable[[Values], Sequence[Options]],
    trials: Sequence[Attempt],
    sizes: Sequence[Values],
) -> Iterator[tuple[Values, tuple[float, ...]]]:
    """Each of the sizes with the factors lost there by what serves it, one or several options.

    All rivals are measured briefly against them; the quickest count as measured again, longer.
    """
    with _contest(request) as contest:
        for values in sizes:
            chosen = tuple(serving(values))
            yield values, contest.lost(chosen, _rivals(trials, values, chosen), values)


def noise(request: Request, sizes: Sequence[Values]) -> Iterator[tuple[Values, float]]:
    """What the same procedure says that the default loses to copies of itself."""
    with _contest(request) as contest:
        for values in sizes:
            (factor,) = contest.lost((DEFAULT,), [DEFAULT] * RIVALS, values)
            yield values, factor


class _Contest:
    def __init__(self, race: Race) -> None:
        self.race, self.template = race, template_field(race.template)

    def lost(
        self, chosen: Sequence[Options], rivals: Sequence[Options], values: Values
    ) -> tuple[float, ...]:
        """Of each of those chosen."""
        own = tuple(dict.fromkeys(chosen))
        screened = self._logs((*own, *rivals), values, SCREENED, 4 * PRECISION)
        order = sorted(range(len(own), len(screened)), key=lambda k: screened[k])
        slowest = max(screened[: len(own)])
        best = [k for k in order[:FINALISTS] if screened[k] < slowest]
        if len(own) + len(best) == 1:
            return (1.0,) * len(chosen)
        named = (*own, *(rivals[k - len(own)] for k in best))
        logs = self._logs(named, values, CONFIRMED, PRECISION)
        found = {o: math.exp(log - min(logs)) for o, log in zip(own, logs)}
        return tuple(found[o] for o in chosen)

    def _logs(
        self, candidates: Sequence[Options], values: Values, seconds: float, precision: float
    ) -> list[float]:
        """Logarithms of times by the first one's; of those that fail, infinite."""
        job = replace(
            self.template, candidates=tuple(candidates), seconds=seconds, precision=precision
        )
        (answer,) = ask(self.race, job, [values])
        if isinstance(answer, str):
            return [0.0] + [math.inf] * (len(candidates) - 1)
        return [math.inf if e.ratio is None else e.ratio.log for e in answer]


@contextmanager
def _contest(request: Request) -> Iterator[_Contest]:
    pool = request.executor or WorkerPool(1, request.timeout, request.memory)
    try:
        yield _Contest(Race(template_job(request), pool, request.timeout, {}))
    finally:
        if request.executor is None:
            pool.shutdown(wait=True, cancel_futures=True)


def _rivals(trials: Sequence[Attempt], values: Values, chosen: Sequence[Options]) -> list[Options]:
    """The default, and the best candidates at the tuned sizes: of the nearest ones first."""
    measured = [a for a in trials if a.ratios and a.state in ("measured", "raced")]
    tuned = sorted({v for a in measured for v in a.ratios}, key=lambda v: distance(v, values))
    ranked = {
        v: sorted((a for a in measured if v in a.ratios), key=lambda a: a.ratios[v].log)
        for v in tuned
    }
    found: dict[Options, None] = {DEFAULT: None}
    for rank in range(RIVALS):
        found |= dict.fromkeys(ranked[v][rank].options for v in tuned if rank < len(ranked[v]))
    return [options for options in found if options not in chosen][:RIVALS]
