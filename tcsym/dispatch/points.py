# SPDX-License-Identifier: Apache-2.0
"""Versions for single sizes: a bounded number of them, made on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import isqrt, prod

from tcsym.dispatch.making import Making
from tcsym.dispatch.policy import Policy
from tcsym.dispatch.table import Point, Table
from tcsym.dispatch.version import Values, Version
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.stats import Counters
from tcsym.strategy import Pad, Specialize

COMPILE_SECONDS = 0.3  # where no version of the kernel was compiled in this process


class Room:
    """For at most `most` versions: the least used is given up for another. Uses fade, slowly."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._forgotten: dict[Values, int] = {}  # uses that count no more
        self._evictions = 0

    def given_up(
        self, points: Mapping[Values, Point], calls: Callable[[Version], int]
    ) -> Values | None:
        """Which of these goes before there is another one. calls: that a version served."""
        if len(points) < self.most:
            return None
        forgotten = self._forgotten
        uses = {k: calls(p.version) - forgotten.get(k, 0) for k, p in points.items()}
        least = min(uses, key=lambda k: uses[k])
        forgotten.pop(least, None)
        self._evictions += 1
        if self._evictions % (4 * self.most) == 0:
            for k in points.keys() - {least}:
                forgotten[k] = forgotten.get(k, 0) + uses[k] // 2
        return least


def compile_seconds(stats: Counters) -> float:
    """What compiling another version of a kernel is likely to take."""
    spent = sum(stats.milliseconds.values()) / 1e3
    return spent / stats.compilations if stats.compilations else COMPILE_SECONDS


class OnDemand(Policy):
    """`Specialize` where calls wait: each new sizes get a version of their own."""

    key: Callable[[Values], Values] | None = None  # of sizes that share a version

    def __init__(self, making: Making, strategy: Specialize | Pad) -> None:
        super().__init__(making)
        self.strategy = strategy
        self.room = Room(strategy.max_variants)

    def first(self) -> Table:
        return Table(key=self.key)

    def wanted(self, table: Table, sizes: Values) -> Table:
        key = sizes if self.key is None else self.key(sizes)
        return table if key in table.points else table.with_point(key, Point(self.make(key)))

    def admitted(self, table: Table, sizes: Values) -> Table:
        return self.kept(table, sizes if self.key is None else self.key(sizes))

    def kept(self, table: Table, key: Values) -> Table:
        """The table with a version for this key; the least used one makes room."""
        if key in table.points:
            return table
        gone = self.room.given_up(table.points, self.holder.calls)
        if gone is not None:
            table = table.without_point(gone)
            self.making.stats.evictions += 1
        return table.with_point(key, Point(self.make(key)))

    def others(self, table: Table, sizes: Values, calls: int) -> tuple[str, ...]:
        version = self.wanted(table, sizes).serving(sizes)
        if version is None or version.variants.made:
            return ()
        seconds = compile_seconds(self.making.stats)
        return (f"not compiled yet: the first call waits about {seconds:.2g} s",)

    def precompile(self) -> None:
        """Versions for all declared sizes, if these are few enough to be kept."""
        for sizes in declared_sizes(self.making.plan, self.room.most):
            version = self.holder.serving(sizes)
            version.variants.made_for(version.variants.dense)

    def make(self, key: Values) -> Version:
        """The version for these sizes, or for all that have this key."""
        return self.making.point(key, self.strategy.bind)


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
