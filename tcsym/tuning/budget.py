# SPDX-License-Identifier: Apache-2.0
"""How much a tune may do: seconds, or trials."""

from __future__ import annotations

import math
import re
import time

from tcsym.errors import OptionError

_UNITS = {"s": 1.0, "": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Budget:
    """Made from `"60s"`, `"2min"` or a number of trials; starts when it is made, or at `began`."""

    def __init__(self, given: str | int, began: float | None = None) -> None:
        self.seconds: float | None = None
        self.trials: int | None = None
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            self.trials = given
        else:
            self.seconds = _seconds(given)
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
    found = re.fullmatch(r"([\d.]+)\s*([a-z]*)", given) if isinstance(given, str) else None
    if found is not None and found[2] in _UNITS:
        try:
            seconds = float(found[1]) * _UNITS[found[2]]
        except ValueError:
            seconds = 0.0
        if seconds > 0:
            return seconds
    raise OptionError(f'budget is {given!r}, expected time as in "60s" or a number of trials')
