# SPDX-License-Identifier: Apache-2.0
"""Rounds of calls of the default, of a copy of it, and of a candidate -> does the candidate win?

In each round the three run one after another, so what slows the machine down for longer than a
round slows all of them: ratios are taken within rounds (paired ratios), and what is told of them is
their median with the interval of the sign test, which no outlier moves. The two copies of the
default are the control (A/A): what is seen between them is what this measurement takes for a
difference where there is none. Each process that measures is a sample; a candidate must win in
every one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from tcsym.tuning.timing import NORMAL_95, Ratio

LEAST_ROUNDS = 6  # with fewer, no interval of the sign test has 95 %
NOISY = (
    0.05  # logarithm of the ratio between copies of the default, above which nothing is believed
)
CROWDED = 0.05  # share of the time that threads of a call waited for a core
SLOWER = 0.02  # logarithm of time that options may cost at one size of a region where they win


class Sample(Struct, frozen=True):
    """Seconds of a call of the default, of its copy and of the candidate, by rounds; one process.

    waited: share of the time that threads beside the first were ready to run and had no core.
    """

    rounds: tuple[tuple[float, float, float], ...]
    waited: float = 0.0


class Verdict(Struct, frozen=True):
    """Logarithms of a candidate's time by the default's: the median, the ends of its 95 % interval.

    noise: as much was seen between copies of the default. seconds: of a call of the candidate.
    """

    log: float
    low: float
    high: float
    noise: float
    seconds: float
    is_crowded: bool = False

    @property
    def is_noisy(self) -> bool:
        """The measurement says nothing: copies of the default differ, or threads lacked cores.

        With threads that wait, options for fewer of them win that lose on a quiet machine.
        """
        return self.noise > NOISY or self.is_crowded

    @property
    def is_won(self) -> bool:
        """Faster, by more than what is seen between copies of the default."""
        return not self.is_noisy and self.high < -self.noise

    @property
    def is_lost(self) -> bool:
        """Options that are so slow at one size serve no region that has it."""
        return self.is_noisy or self.log > SLOWER

    @property
    def ratio(self) -> Ratio:
        """Its error reaches to the upper end, or as far as copies of the default differ."""
        half = max(self.high - self.log, self.noise)
        return Ratio(self.log, half / NORMAL_95, self.seconds)


def verdict_of(samples: Sequence[Sample]) -> Verdict:
    """Of one candidate at one size. ValueError: there is no sample."""
    if not samples:
        raise ValueError("no sample to judge by")
    found = [_judged(sample) for sample in samples]
    return Verdict(
        sum(v.log for v in found) / len(found),
        min(v.low for v in found),
        max(v.high for v in found),
        max(v.noise for v in found),
        min(v.seconds for v in found),
        any(v.is_crowded for v in found),
    )


def _judged(sample: Sample) -> Verdict:
    control = [math.log(b / a) for a, b, _ in sample.rounds]
    paired = [math.log(c / math.sqrt(a * b)) for a, b, c in sample.rounds]
    low, log, high = median_interval(paired)
    noise = max(map(abs, median_interval(control)))
    seconds = median_interval([c for _, _, c in sample.rounds])[1]
    return Verdict(log, low, high, noise, seconds, sample.waited > CROWDED)


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median between the ends of its 95 % interval, that of the sign test (order statistics).

    Infinite ends: so few values say nothing.
    """
    ordered = sorted(values)
    n = len(ordered)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else math.nan
    if n < LEAST_ROUNDS:
        return -math.inf, middle, math.inf
    k = max(0, math.floor((n - 1 - NORMAL_95 * math.sqrt(n)) / 2))
    return ordered[k], middle, ordered[n - 1 - k]


def wins(verdicts: Sequence[tuple[float, Verdict]]) -> bool:
    """Weights and verdicts at the sizes of a region: faster in the mean, nowhere slower."""
    total = sum(weight for weight, _ in verdicts)
    if not total or any(v.is_lost for _, v in verdicts):
        return False
    mean = sum(weight * (v.high + v.noise) for weight, v in verdicts) / total
    return mean < 0
