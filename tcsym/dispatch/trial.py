# SPDX-License-Identifier: Apache-2.0
"""Two versions, one call of the user at a time: which is faster where it counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

Function = Callable[..., Any]
PAIRS, ROUNDS = 20, 2
NEEDED_GAIN = 0.02


class Trial:
    """Called in place of both: turn by turn (A B B A ...) it runs one of them and times it.

    Every call is the user's own and has its own result. `decide(adopt, symbolic, specialised)` is
    told once: `adopt` if the specialised version won every round, by median and by minimum, and the
    median seconds of both.
    """

    def __init__(
        self,
        symbolic: Function,
        specialised: Function,
        decide: Callable[[bool, float, float], None],
    ) -> None:
        self.functions = (symbolic, specialised)
        self._decide = decide
        self._seconds: tuple[list[float], list[float]] = ([], [])
        self._rounds_won = 0
        self._turn = -2  # the first pair only warms up
        self._open = True
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            turn = self._turn
            self._turn += 1
        which = (turn ^ (turn >> 1)) & 1
        start = perf_counter()
        result = self.functions[which](*args, **kwargs)
        if turn >= 0:
            self._note(which, perf_counter() - start)
        return result

    def _note(self, which: int, seconds: float) -> None:
        with self._lock:
            self._seconds[which].append(seconds)
            symbolic, specialised = self._seconds
            if not self._open or min(len(symbolic), len(specialised)) < PAIRS:
                return
            medians = median(symbolic), median(specialised)
            won = is_faster(specialised, symbolic)
            self._rounds_won += won
            self._seconds = ([], [])
            if won and self._rounds_won < ROUNDS:
                return
            self._open = False
        self._decide(won, *medians)


def median(values: Sequence[float]) -> float:
    """Of at least one value. (The module that has it takes 8 ms to import.)"""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def is_faster(new: list[float], old: list[float]) -> bool:
    """True if `new` is faster by median and by minimum, by more than noise explains."""
    factor = 1 - NEEDED_GAIN
    return median(new) < factor * median(old) and min(new) < factor * min(old)
