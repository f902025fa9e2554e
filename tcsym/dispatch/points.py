"""Versions for single sizes: a bounded store, and the dispatcher that fills it on demand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from tcsym.dispatch.dispatcher import Dispatcher
from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.dispatch.version import Values, Version
from tcsym.runtime.arrays import View
from tcsym.runtime.plan import CallPlan
from tcsym.strategy import Pad, Specialize
from tcsym.variants import Variant


class Points:
    """Sizes -> version, at most `most`: the least used makes room, and all uses fade then."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.made: dict[Values, Version] = {}
        self._uses: dict[Values, int] = {}

    def add(self, key: Values, version: Version) -> bool:
        """Keep a version; True if another one had to make room."""
        full = len(self.made) >= self.most
        if full:
            for k, v in self.made.items():
                self._uses[k] = self._uses.get(k, 0) // 2 + v.calls
            least = min(self.made, key=lambda k: self._uses[k])
            del self.made[least]
            self._uses = {k: self._uses[k] for k in self.made}
        self.made[key] = version
        return full


class OnDemand(Dispatcher):
    """`Specialize` where calls wait: each new sizes get a version of their own."""

    def __init__(self, making: Making, entrance: Entrance, strategy: Specialize | Pad) -> None:
        super().__init__(making, entrance)
        self.strategy = strategy
        self.points = Points(strategy.max_variants)

    def serving(self, sizes: Values) -> Version:
        return self.points.made.get(sizes) or self._added(sizes, sizes)

    def served(
        self, sizes: Values, views: Sequence[View], version: Version, variant: Variant
    ) -> None:
        """There is no native way yet: calls of single sizes are dispatched in Python."""

    def versions(self) -> tuple[Version, ...]:
        return tuple(self.points.made.values())

    def counts(self) -> dict[str, int]:
        return {str(v): v.calls for v in self.versions()}

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
                self.making.stats.evictions += self.points.add(key, found)
            return found


def declared_sizes(plan: CallPlan, most: int) -> list[Values]:
    """All sizes that calls may have, if they are declared to be at most `most`; else none."""
    choices: list[range | tuple[int, ...]] = []
    for slot, _ in enumerate(plan.sizes):
        known, promise = plan.initial[slot], plan.promises.get(slot)
        if known is not None:
            choices.append((known,))
        elif promise is None or promise.hi is None:
            return []
        else:
            step = promise.multiple_of
            choices.append(range(-(-promise.lo // step) * step, promise.hi + 1, step))
    return list(product(*choices)) if prod(map(len, choices)) <= most else []
