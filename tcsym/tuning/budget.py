# SPDX-License-Identifier: Apache-2.0
"""How much a tune may do: seconds, or candidates."""

from __future__ import annotations

import math
import re
import time

from tcsym.errors import OptionError

DEFAULT = 60.0  # seconds
_UNITS = {"s": 1.0, "": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Budget:
    """Made from `"2min"`, a number of seconds, or a number of candidates.

    It starts when it is made, or at `began`. OptionError: it is none of these, or both.
    """

    def __init__(
        self,
        given: str | float | None = None,
        candidates: int | None = None,
        began: float | None = None,
    ) -> None:
        self.seconds: float | None = None
        self.trials: int | None = None
        if candidates is None:
            self.seconds = _seconds(DEFAULT if given is None else given)
        elif given is not None:
            raise OptionError("a tune has a `budget` or a number of `candidates`, not both")
        else:
            self.trials = _candidates(candidates)
        self._start = time.monotonic() if began is None else began

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    @property
    def left(self) -> float:
        """Seconds; infinite for a number of trials."""
        return math.inf if self.seconds is None else self.seconds - self.elapsed

    def used(self, n_trials: int) -> float:
        """Share of it, 1.0 and more: none is left."""
        if self.trials is not None:
            return n_trials / self.trials
        assert self.seconds is not None
        return self.elapsed / self.seconds


def _seconds(given: object) -> float:
    seconds = 0.0
    if isinstance(given, int | float) and not isinstance(given, bool):
        seconds = float(given)
    elif isinstance(given, str) and (found := re.fullmatch(r"\s*(\d+\.?\d*)\s*([a-z]*)\s*", given)):
        seconds = float(found[1]) * _UNITS.get(found[2], 0.0)
    if 0 < seconds < math.inf:
        return seconds
    hint = "a number of candidates is `candidates=20`"
    raise OptionError(f'budget is {given!r}, expected seconds or time as in "2min"', hint=hint)


def _candidates(given: object) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    raise OptionError(f"candidates is {given!r}, expected a number from 1 on")
