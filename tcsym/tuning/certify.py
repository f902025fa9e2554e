"""Tuned regions at sizes that were not tuned -> what is lost against the best of some rivals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor

from tcsym.options import Options
from tcsym.tuning.choice import distance
from tcsym.tuning.distribution import Values
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.request import DEFAULT, Request, template_job
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Tree, leaf_of
from tcsym.tuning.workers import WorkerPool

RIVALS, FINALISTS = 12, 2
SCREENED, CONFIRMED = 0.015, 0.04  # seconds for one rival at one size; a confirmation takes four


def certify(
    request: Request, tree: Tree, trials: Sequence[Attempt], sizes: Sequence[Values]
) -> Iterator[tuple[Values, float]]:
    """Each of the sizes with the factor lost there by the tree's options.

    All rivals are measured briefly against them; the quickest count as measured again, longer.
    """
    pool = request.executor or WorkerPool(1, request.timeout, request.memory)
    try:
        for values in sizes:
            yield values, _lost(request, pool, leaf_of(tree, values).options, trials, values)
    finally:
        if request.executor is None:
            pool.shutdown(wait=True, cancel_futures=True)


def _lost(
    request: Request, pool: Executor, options: Options, trials: Sequence[Attempt], values: Values
) -> float:
    race = Race(template_job(request), pool, request.timeout, {values: SCREENED})
    chosen = Attempt(options, "measured", "", {values: Ratio(0.0, 0.0, 0.0)})
    attempts = [Attempt(o, "raced") for o in _rivals(trials, values, options)]
    race.measure(attempts, chosen, (values,))
    good = [a for a in attempts if a.ratios and a.ratios[values].log < 0]
    good.sort(key=lambda a: a.ratios[values].log)
    race.seconds[values] = CONFIRMED
    for a in good[:FINALISTS]:
        race.confirm(a, chosen, (values,))
    best = min((a.ratios[values].log for a in good[:FINALISTS]), default=0.0)
    return math.exp(max(0.0, -best))


def _rivals(trials: Sequence[Attempt], values: Values, chosen: Options) -> list[Options]:
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
    found.pop(chosen, None)
    return list(found)[:RIVALS]
