# SPDX-License-Identifier: Apache-2.0
"""When each part of a tune ends, so that all of it keeps to its budget.

A budget is a promise: what is left of a part when its time is up is cut off, and the time that
confirming takes is set aside before the search begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tcsym.tuning.budget import Budget
from tcsym.tuning.confirm import CONFIRMED
from tcsym.tuning.distribution import Values
from tcsym.tuning.select_regions import LEAST_EVIDENCE, MOST_EVIDENCE
from tcsym.tuning.timing import Ratio

SEARCH_TRIALS, SEARCH_TIME = 0.65, 0.45  # share of a budget; the rest goes to other sizes
LEARNED, CLOSING = 0.1, 0.25  # share of the time: to learn regions, to measure winners again
ENDED, MARGIN = 0.02, 0.05  # share of the time for what comes after, and for what takes longer
LEAST_VISITED = 12.0  # seconds that must be left for other sizes to be worth a visit
_ROUNDS = 12  # of a confirmation, where calls take long


class Times:
    """left: seconds of the part that runs now; infinite for a number of trials."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.closing = 0.0
        self.visits = False
        self._start = 0.0
        self._end = math.inf if budget.seconds is None else (1 - ENDED) * budget.seconds

    def begun(self) -> None:
        """The first worker answers: others will take as long to begin."""
        self._start = self.budget.elapsed

    def left(self) -> float:
        return self._end - self.budget.elapsed

    def plan(self, default: Mapping[Values, Ratio], visits: bool) -> None:
        """The default was measured: the search may begin. visits: there are other sizes, too; they
        are visited if there is time for enough of them.
        """
        self.visits = visits
        if self.budget.seconds is None:
            return
        longest = max(ratio.seconds for ratio in default.values())
        each = max(2 * CONFIRMED, 3 * _ROUNDS * longest)
        begun, whole = self.budget.elapsed, self.budget.seconds
        self.visits = visits and whole - begun > LEAST_VISITED
        n = LEAST_EVIDENCE if self.visits else min(len(default), MOST_EVIDENCE)
        needed = self._start + n * 2 * each + MARGIN * whole
        self.closing = min(max(needed, CLOSING * whole * self.visits), whole / 2)
        share = SEARCH_TIME if self.visits else 1.0
        self._end = begun + share * (whole - self.closing - begun)

    def may_search(self, n_trials: int) -> bool:
        if self.budget.seconds is None:
            return self.budget.used(n_trials) < SEARCH_TRIALS
        return self.left() > 0

    def batch(self, n_trials: int, most: int) -> int:
        """Candidates that can be measured at once: together they have half of what is left."""
        if self.budget.seconds is None:
            return most
        spent = max(1e-3, self.budget.elapsed - self._start)  # at the default, and these trials
        fitting = self.left() / 2 / (spent / (1 + n_trials))
        return max(1, min(most, math.floor(fitting)))

    def survey(self) -> None:
        """The search is over, other sizes are visited."""
        if self.budget.seconds is not None:
            learned = LEARNED * self.budget.seconds * self.visits
            self._end = self.budget.seconds - self.closing - learned

    def learn(self) -> None:
        """Regions are learned."""
        if self.budget.seconds is not None:
            self._end = self.budget.seconds - self.closing
