"""Versions for single sizes: a bounded store, and the dispatcher that fills it on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import isqrt, prod

from tcsym.dispatch.dispatcher import Dispatcher
from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.dispatch.version import Values, Version
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.stats import Stats
from tcsym.runtime.variants import Variant
from tcsym.runtime.view import View
from tcsym.strategy import Pad, Specialize

COMPILE_SECONDS = 0.3  # where no version of the kernel was compiled in this process


class Points:
    """Sizes -> version, at most `most`: the least used makes room. Uses fade, slowly."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.made: dict[Values, Version] = {}
        self._forgotten: dict[Values, int] = {}  # uses that count no more
        self._evictions = 0

    def add(
        self, key: Values, version: Version, calls: Callable[[Version], int]
    ) -> tuple[Values, Version] | None:
        """Keep a version; the one that had to make room. `calls`: that a version served."""
        gone = None
        if len(self.made) >= self.most:
            forgotten = self._forgotten
            uses = {k: calls(v) - forgotten.get(k, 0) for k, v in self.made.items()}
            least = min(uses, key=lambda k: uses[k])
            gone = least, self.made.pop(least)
            forgotten.pop(least, None)
            self._evictions += 1
            if self._evictions % (4 * self.most) == 0:
                for k in self.made:
                    forgotten[k] = forgotten.get(k, 0) + uses[k] // 2
        self.made[key] = version
        return gone


def compile_seconds(stats: Stats) -> float:
    """What compiling another version of a kernel is likely to take."""
    spent = sum(stats.milliseconds.values()) / 1e3
    return spent / stats.compilations if stats.compilations else COMPILE_SECONDS


class OnDemand(Dispatcher):
    """`Specialize` where calls wait: each new sizes get a version of their own."""

    def __init__(self, making: Making, entrance: Entrance, strategy: Specialize | Pad) -> None:
        super().__init__(making, entrance)
        self.strategy = strategy
        self.points = Points(strategy.max_variants)

    def serving(self, sizes: Values) -> Version:
        return self.points.made.get(sizes) or self._added(sizes, sizes)

    def meant(self, sizes: Values) -> Version:
        return self.points.made.get(sizes) or self.make(sizes)

    def served(
        self, sizes: Values, views: Sequence[View], version: Version, variant: Variant
    ) -> None:
        if self.points.made.get(sizes) is version:  # else it was evicted meanwhile
            self.entrance.enter(version, views, variant, sizes)

    def versions(self) -> tuple[Version, ...]:
        return tuple(self.points.made.values())

    def others(self, sizes: Values) -> tuple[str, ...]:
        version = self.meant(sizes)
        if version.variants.made:
            return ()
        seconds = compile_seconds(self.making.stats)
        return (f"not compiled yet: the first call waits about {seconds:.2g} s",)

    def precompile(self) -> None:
        """Versions for all declared sizes, if these are few enough to be kept."""
        declared = declared_sizes(self.making.plan, self.points.most)
        for sizes in declared:
            version = self.serving(sizes)
            version.variants.made_for(version.variants.dense)

    def make(self, key: Values) -> Version:
        return self.making.point(key, self.strategy.bind)

    def _added(self, key: Values, sizes: Values) -> Version:
        with self.lock:
            found = self.points.made.get(key)
            if found is None:
                found = self.make(key)
                gone = self.points.add(key, found, self.calls)
                if gone is not None:
                    self.drop(*gone)
                    self.making.stats.evictions += 1
            return found


def declared_sizes(plan: CallPlan, most: int, slots: Sequence[int] | None = None) -> list[Values]:
    """All sizes that calls may have, if they are declared to be at most `most`; else none.

    slots: of these sizes alone.
    """
    choices: list[range | tuple[int, ...]] = []
    for slot in range(len(plan.sizes)) if slots is None else slots:
        known, promise = plan.initial[slot], plan.promises.get(slot)
        if known is not None:
            choices.append((known,))
        elif promise is None or promise.hi is None:
            return []
        else:
            step = promise.multiple_of
            choices.append(range(-(-promise.lo // step) * step, promise.hi + 1, step))
    return list(product(*choices)) if prod(map(len, choices)) <= most else []


def corners(plan: CallPlan) -> list[Values]:
    """The least, the middling and the largest declared sizes; none if some have no bound."""
    ends = []
    for slot, _ in enumerate(plan.sizes):
        known, promise = plan.initial[slot], plan.promises.get(slot)
        if known is not None:
            ends.append((known, known, known))
        elif promise is None or promise.hi is None:
            return []
        else:
            step = promise.multiple_of
            low, high = -(-max(1, promise.lo) // step), promise.hi // step
            ends.append((low * step, isqrt(low * high) * step, high * step))
    return list(dict.fromkeys(zip(*ends)))
