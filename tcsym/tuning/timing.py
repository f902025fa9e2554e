# SPDX-License-Identifier: Apache-2.0
"""Two calls -> the ratio of their times, with its noise: interleaved, and stopped when it is clear.

Each round times a batch of both, in turning order, so that what disturbs the machine disturbs
both. Disturbances only add time, so the estimate is the ratio of the means of each one's quickest
quarter; its standard error is the bootstrap's (Efron 1979) over rounds.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

LEAST_BATCH = 2e-4
LEAST_ROUNDS, MOST_ROUNDS = 5, 60
LEAST_FIELD_ROUNDS, BEHIND = 3, 0.25
_RESAMPLES = 40
CLEAR = 3.0  # standard errors
NORMAL_95 = 1.96


class Ratio(Struct, frozen=True):
    """`log`: logarithm of candidate's time by rival's; `noise`: its standard error.

    seconds: of one call of the candidate. gave_up: it was clearly slower, and measured no further.
    """

    log: float
    noise: float
    seconds: float
    gave_up: bool = False

    @property
    def gain(self) -> tuple[float, float]:
        """How many times as fast the candidate is, and half of the interval of 95 %."""
        gain = math.exp(-self.log)
        return gain, gain * NORMAL_95 * self.noise


def compare(
    candidate: Callable[[], object],
    rival: Callable[[], object],
    seconds: float,
    precision: float,
    give_up: float,
) -> Ratio:
    """Measure for at most about `seconds`, until the standard error is below `precision`.

    Gives up on a candidate that is slower by the factor exp(give_up) beyond doubt.
    """
    stop = time.perf_counter() + seconds
    n_calls = (batch_of(candidate), batch_of(rival))
    rounds: list[tuple[float, float]] = []
    log, noise = 0.0, math.inf
    while len(rounds) < MOST_ROUNDS:
        rounds.append(_round(candidate, rival, n_calls, len(rounds) % 2 == 1))
        if len(rounds) < LEAST_ROUNDS or len(rounds) % 2 == 0:
            continue
        log, noise = estimate(rounds)
        gave_up = log - CLEAR * noise > give_up
        if gave_up or noise < precision or time.perf_counter() > stop:
            return Ratio(log, noise, min(a for a, _ in rounds), gave_up)
    return Ratio(log, noise, min(a for a, _ in rounds))


def compare_all(
    calls: Sequence[Callable[[], object]], seconds: float, precision: float
) -> list[Ratio]:
    """Each call's time by the first one's, all in turn, in another order every round.

    For about `seconds`, or until all that are near the quickest are known to `precision`. A call
    that is behind the quickest by the factor exp(BEHIND) is measured no further.
    """
    stop = time.perf_counter() + seconds
    n_calls = [batch_of(call) for call in calls]
    times: list[list[float]] = [[] for _ in calls]
    alive = list(range(len(calls)))
    while len(times[0]) < MOST_ROUNDS:
        turn = len(times[0]) % len(alive)
        for k in (*alive[turn:], *alive[:turn]):
            times[k].append(_timed(calls[k], n_calls[k]))
        if len(times[0]) < LEAST_FIELD_ROUNDS:  # one time may be anything: the process may sleep
            continue
        least = min(map(min, times))
        alive = [k for k in alive if k == 0 or math.log(min(times[k]) / least) < BEHIND]
        noises = [_noise(times[k]) for k in alive]
        if max(noises) < precision or time.perf_counter() > stop:
            break
    first, its_noise = _quickest(times[0]), _noise(times[0])
    found = [Ratio(0.0, 0.0, min(times[0]))]
    for k, some in enumerate(times[1:], 1):
        noise = math.hypot(_noise(some), its_noise)
        log = math.log(_quickest(some) / first)
        found.append(Ratio(log, max(1e-4, noise), min(some), k not in alive))
    return found


def rounds_of(
    calls: Sequence[Callable[[], object]], seconds: float, most: int
) -> tuple[tuple[float, ...], ...]:
    """Seconds of each call, round by round: all in turn, in another order every round.

    Rounds end after `seconds`, or when there are `most`.
    """
    stop = time.perf_counter() + seconds
    n_calls = [batch_of(call) for call in calls]
    found: list[tuple[float, ...]] = []
    order = list(range(len(calls)))
    while len(found) < most and (len(found) < 2 or time.perf_counter() < stop):
        spent = [0.0] * len(calls)
        for k in order:
            spent[k] = _timed(calls[k], n_calls[k])
        found.append(tuple(spent))
        order = [*order[1:], order[0]] if len(found) % 2 else order[::-1]
    return tuple(found)


def batch_of(call: Callable[[], object]) -> int:
    """How many calls take `LEAST_BATCH` seconds: fewer would be lost in the clock's own time.

    Found by doubling, and a batch that is long enough is timed twice more: one that was
    interrupted says nothing of the call.
    """
    n = 1
    while min(_timed(call, n) * n for _ in range(3)) < LEAST_BATCH:
        n *= 2
    return n


def _quickest(times: Sequence[float]) -> float:
    """Mean of the quickest quarter."""
    n = max(2, len(times) // 4)
    return sum(sorted(times)[:n]) / min(n, len(times))


def _noise(times: Sequence[float]) -> float:
    """Standard error of the logarithm of `_quickest`."""
    n = max(2, len(times) // 4)
    drawn = np.random.default_rng(0).choice(np.asarray(times), (_RESAMPLES, len(times)))
    return float(np.log(np.sort(drawn, axis=1)[:, :n].mean(axis=1)).std())


def estimate(rounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Logarithm of the ratio of the quickest times, and its standard error."""
    draw = random.Random(0)
    n = len(rounds)
    logs = [_log_ratio(draw.choices(rounds, k=n)) for _ in range(_RESAMPLES)]
    mean = sum(logs) / _RESAMPLES
    variance = sum((x - mean) ** 2 for x in logs) / (_RESAMPLES - 1)
    return _log_ratio(rounds), max(1e-4, math.sqrt(variance))


def _log_ratio(rounds: Sequence[tuple[float, float]]) -> float:
    n = max(2, len(rounds) // 4)
    quickest = [sum(sorted(times)[:n]) for times in zip(*rounds)]
    return math.log(quickest[0] / quickest[1])


def _round(
    candidate: Callable[[], object],
    rival: Callable[[], object],
    n_calls: tuple[int, int],
    rival_first: bool,
) -> tuple[float, float]:
    if rival_first:
        b = _timed(rival, n_calls[1])
        return _timed(candidate, n_calls[0]), b
    return _timed(candidate, n_calls[0]), _timed(rival, n_calls[1])


def _timed(call: Callable[[], object], n: int) -> float:
    """Seconds of one call, of `n`. Where calls return before they have run, they have `wait`."""
    wait = getattr(call, "wait", None)
    start = time.perf_counter()
    for _ in range(n):
        call()
    if wait is not None:
        wait()
    return max(1e-9, (time.perf_counter() - start) / n)
