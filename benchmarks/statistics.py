# SPDX-License-Identifier: Apache-2.0
"""Samples -> least time, median, ratio with a confidence interval, geometric mean."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence

from msgspec import Struct

_RESAMPLES = 1000
LEAST_ROUNDS = 3


class Ratio(Struct, frozen=True):
    """`value`: their least time over ours. [low, high]: 95 % interval by resampling rounds."""

    value: float
    low: float
    high: float
    rounds: int


def ratio(theirs: Sequence[float | None], ours: Sequence[float | None], seed: int = 0) -> Ratio:
    """Of two contestants' samples, round by round; None: the round was disturbed.

    Rounds are resampled in pairs, so drift that hits both contestants of a round cancels.
    Errors: ValueError with fewer than 3 rounds undisturbed for both.
    """
    pairs = [(a, b) for a, b in zip(theirs, ours) if a is not None and b is not None]
    if len(pairs) < LEAST_ROUNDS:
        raise ValueError(f"{len(pairs)} undisturbed rounds, need {LEAST_ROUNDS}")
    value = _least_ratio(pairs)
    rng = random.Random(seed)
    drawn = sorted(_least_ratio(rng.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
    cut = _RESAMPLES // 40
    return Ratio(value, min(value, drawn[cut]), max(value, drawn[-1 - cut]), len(pairs))


def _least_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return min(a for a, _ in pairs) / min(b for _, b in pairs)


def least(samples: Sequence[float | None]) -> float:
    return min(s for s in samples if s is not None)


def median(samples: Sequence[float | None]) -> float:
    return statistics.median(s for s in samples if s is not None)


def geometric_mean(values: Iterable[float]) -> float:
    """1 of nothing."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0
