"""Tuned regions at sizes that were not tuned -> what is lost against the best of some rivals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tcsym.options import Options
from tcsym.tuning.choice import distance
from tcsym.tuning.distribution import Values
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.request import DEFAULT, Request, template_job
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Tree, leaf_of
from tcsym.tuning.workers import WorkerPool

RIVALS = 6
SECONDS = 0.04  # for one rival at one size


def certify(
    request: Request, tree: Tree, trials: Sequence[Attempt], n: int, seed: int
) -> list[tuple[Values, float]]:
    """Factors lost at other sizes by the tree's options against the best of some rivals."""
    sizes = request.distribution.draw(request.program, n, seed)
    pool = request.executor or WorkerPool(1, request.timeout, request.memory)
    found: list[tuple[Values, float]] = []
    try:
        for values in sizes:
            race = Race(template_job(request), pool, request.timeout, {values: SECONDS})
            chosen = Attempt(leaf_of(tree, values).options, "measured")
            chosen.ratios[values] = Ratio(0.0, 0.0, 0.0)
            rivals = _rivals(trials, values, chosen.options)
            attempts = [Attempt(o, "raced") for o in rivals]
            race.measure(attempts, chosen, (values,))
            good = [a for a in attempts if a.ratios]
            best = min(good, key=lambda a: a.ratios[values].log, default=None)
            if best is None or best.ratios[values].log >= 0:
                found.append((values, 1.0))
                continue
            race.confirm(best, chosen, (values,))
            found.append((values, math.exp(max(0.0, -best.ratios[values].log))))
    finally:
        if request.executor is None:
            pool.shutdown(wait=True, cancel_futures=True)
    return found


def _rivals(trials: Sequence[Attempt], values: Values, chosen: Options) -> list[Options]:
    """The default, and the best candidates at the tuned sizes, the nearest first."""
    measured = [a for a in trials if a.ratios and a.state in ("measured", "raced")]
    tuned = sorted({v for a in measured for v in a.ratios}, key=lambda v: distance(v, values))
    ranked: dict[Options, None] = {DEFAULT: None}
    for rank in range(2):
        for near in tuned[:RIVALS]:
            known = sorted(
                (a for a in measured if near in a.ratios), key=lambda a: a.ratios[near].log
            )
            if rank < len(known):
                ranked[known[rank].options] = None
    ranked.pop(chosen, None)
    return list(ranked)[:RIVALS]
