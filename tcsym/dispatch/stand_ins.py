"""Versions of tuned regions that have no code yet: which ones answer for them, and until when.

Any version is right for all sizes. One whose code is in the cache is loaded at once; else a version
that is compiled stands in until calls in the region took so long that compiling its own pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import RLock

from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.requests import Asked, Work
from tcsym.dispatch.version import Values, Version
from tcsym.ir.compiled import Compiled
from tcsym.runtime.stats import Stats

MOST_SIZES = 4096
MOST_CALLS = 1000  # through Python, where time is not taken


@dataclass(slots=True, eq=False)
class Waiting:
    """A version without code: sizes that another serves, and what their calls took so far."""

    by: Version
    sizes: set[Values] = field(default_factory=set)
    seconds: float = 0.0
    calls: int = 0
    is_begun: bool = False


class StandIns:
    """Of one kernel; to be used under `lock`. share: of a core, to compile beside calls."""

    def __init__(self, stats: Stats, share: float, lock: RLock, entrance: Entrance) -> None:
        self._stats = stats
        self._share = share
        self._lock = lock
        self._entrance = entrance
        self._waiting: dict[Version, Waiting] = {}
        self._beside = Asked()

    def found(self, own: Version, versions: Sequence[Version]) -> Version:
        """What runs a call that `own` is meant for; `own` itself if no other is compiled."""
        if own.variants.made:
            return own
        ready = next((v for v in versions if v.variants.made), None)
        if ready is None:
            return own
        if own not in self._waiting:
            compiled = own.variants.cached(own.variants.dense)
            if compiled is not None:
                own.variants.adopt(own.variants.dense, compiled)
                return own
            self._waiting[own] = Waiting(ready)
        waiting = self._waiting[own]
        waiting.calls += 1
        if waiting.calls >= MOST_CALLS:
            self._begin(own, waiting)
        return waiting.by

    def now(self, own: Version) -> Version:
        """What serves calls that `own` is meant for."""
        return self._waiting[own].by if own in self._waiting else own

    def may_enter(self, own: Version, sizes: Values) -> bool:
        """True if calls of these sizes may enter another version's code until `own` has some."""
        waiting = self._waiting.get(own)
        if own.variants.made or waiting is None or len(waiting.sizes) >= MOST_SIZES:
            return False
        waiting.sizes.add(sizes)
        return True

    def took(self, own: Version, seconds: float, worth: float) -> bool:
        """Calls that another version served took `seconds`; from `worth` on, `own` is compiled.

        False if `own` does not wait for that (any more).
        """
        waiting = self._waiting.get(own)
        if waiting is None or own.variants.made or waiting.is_begun:
            return False
        waiting.seconds += seconds
        if waiting.seconds >= worth:
            self._begin(own, waiting)
        return True

    def _begin(self, own: Version, waiting: Waiting) -> None:
        if waiting.is_begun:
            return
        waiting.is_begun = True
        from tcsym.dispatch.compile_queue import compilations

        def done(result: Compiled | str) -> None:
            with self._lock:
                self._compiled(own, waiting, result)

        compilations.submit(self._beside, Work(own.variants, own.variants.dense, self._share, done))

    def _compiled(self, own: Version, waiting: Waiting, result: Compiled | str) -> None:
        if isinstance(result, str):
            self._stats.failures.append(f"{own}: {result}")
            return
        own.variants.adopt(own.variants.dense, result)
        del self._waiting[own]
        for sizes in waiting.sizes:
            self._entrance.forget(sizes)
