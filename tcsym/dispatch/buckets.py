# SPDX-License-Identifier: Apache-2.0
"""The policy of `Bucket`: declared ranges of sizes, cut into buckets, a version for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from math import prod

from tcsym.dispatch.making import Making
from tcsym.dispatch.policy import Policy
from tcsym.dispatch.table import Table
from tcsym.dispatch.version import Values, Version
from tcsym.errors import OptionError
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.stats import Decision
from tcsym.sizes.context import Known
from tcsym.sizes.work import estimated_work
from tcsym.strategy import MOST_VERSIONS, Bucket

_UNBOUNDED = 256  # stands for a size without an upper bound where a number is needed

Ends = tuple[int, ...]


class Buckets(Policy):
    """Versions whose contexts are boxes of sizes; the boxes partition what is declared."""

    def __init__(self, making: Making, strategy: Bucket) -> None:
        super().__init__(making)
        self.strategy = strategy
        self.slots = bucket_slots(making.plan, strategy)
        self.per_size = _per_size(strategy, len(self.slots))
        self._seen: list[Values] = []

    def first(self) -> Table:
        if self.strategy.learn:
            only = self.making.symbolic(self.making.regions[0])
            return Table(self._ranges(only), stays_in_python=True)
        why = "edges as given" if self.strategy.edges else "edges by estimated work"
        return Table(self._ranges(*self._versions([self._ends(slot) for slot in self.slots], why)))

    def called(self, sizes: Values) -> None:
        if self.holder.table.stays_in_python:
            self._seen.append(sizes)
            if len(self._seen) >= self.strategy.learn:
                self.holder.propose(self._learned)

    def precompile(self) -> None:
        if self._seen:
            self.holder.propose(self._learned)
        super().precompile()

    # ---- edges

    def _learned(self, table: Table) -> Table:
        """Cut where equal parts of the calls seen so far lie below."""
        if not table.stays_in_python:
            return table
        n = self.per_size
        ends = []
        for slot in self.slots:
            column = sorted(sizes[slot] for sizes in self._seen)
            cuts = [column[(k * len(column)) // n - 1] for k in range(1, n)]
            ends.append(ascending([*cuts, self._upper(slot)]))
        why = f"edges learned from {len(self._seen)} calls"
        self._seen = []
        return Table(self._ranges(*self._versions(ends, why)))

    def _ends(self, slot: int) -> Ends:
        """Upper ends of the buckets of a size."""
        plan, edges = self.making.plan, self.strategy.edges
        if edges is not None:
            given = edges.get(plan.sizes[slot], ())
            return ascending([*given, self._upper(slot)])
        return work_edges(plan, slot, self.per_size)

    def _upper(self, slot: int) -> int:
        most = self.making.plan.promises[slot].hi
        assert most is not None
        return most

    def _versions(self, ends: Sequence[Ends], why: str) -> tuple[Version, ...]:
        making = self.making
        self._told(ends, why)
        boxes = [
            list(pairwise((making.plan.promises[slot].lo - 1, *e)))
            for slot, e in zip(self.slots, ends)
        ]
        return tuple(self._version(box) for box in product(*boxes))

    def _version(self, box: Sequence[tuple[int, int]]) -> Version:
        """For sizes above the first and up to the second number of each pair."""
        plan = self.making.plan
        corner, ranges = typical_sizes(plan), []
        for slot, (below, most) in zip(self.slots, box):
            corner[slot] = most
            step = plan.promises[slot].multiple_of
            ranges.append(Known(plan.sizes[slot], below + 1, most, step))
        return self.making.bucket(tuple(ranges), tuple(corner))

    def _told(self, ends: Sequence[Ends], why: str) -> None:
        names = [self.making.plan.sizes[slot] for slot in self.slots]
        chosen = "; ".join(f"{n} up to {', '.join(map(str, e))}" for n, e in zip(names, ends))
        self.making.stats.decide(Decision((), f"buckets of {chosen}", why))


def bucket_slots(plan: CallPlan, strategy: Bucket) -> tuple[int, ...]:
    """Slots of the sizes to cut. Errors: OptionError, with what to declare."""
    bounded = [
        k
        for k, _ in enumerate(plan.sizes)
        if plan.initial[k] is None and k in plan.promises and plan.promises[k].hi is not None
    ]
    free = [name for k, name in enumerate(plan.sizes) if plan.initial[k] is None]
    if strategy.edges is None:
        if free and not bounded:
            raise OptionError(
                f"Bucket: no size of `{plan.program.name}` has an upper bound",
                hint=f'declare one: `sizes={{"{free[0]}": Dim(1, 1024)}}`',
            )
        return tuple(bounded)
    for name, ends in strategy.edges.items():
        if name not in plan.sizes and name in plan.foreign_sizes:
            continue
        slot = plan.sizes.index(name) if name in plan.sizes else -1
        if slot not in bounded:
            declare = f'declare it: `sizes={{"{name}": Dim(1, {ends[-1]})}}`'
            named = f"sizes of `{plan.program.name}` are {', '.join(plan.sizes) or 'none'}"
            raise OptionError(
                f"Bucket: `{name}` is no size of `{plan.program.name}` with an upper bound",
                hint=declare if name in plan.sizes else named,
            )
        promise = plan.promises[slot]
        if ends[0] < promise.lo or ends[-1] > (promise.hi or 0):
            raise OptionError(f"Bucket: edges of `{name}` lie outside of its range {promise}")
    _require_few(prod(len(ends) + 1 for ends in strategy.edges.values()))
    return tuple(k for k in bounded if plan.sizes[k] in strategy.edges)


def _per_size(strategy: Bucket, n_sizes: int) -> int:
    """Buckets of each size: as asked, else as many as keep their product small."""
    if strategy.count:
        _require_few(strategy.count**n_sizes)
        return strategy.count
    return next(n for n in (4, 3, 2, 1) if n**n_sizes <= MOST_VERSIONS)


def _require_few(n_buckets: int) -> None:
    if n_buckets > MOST_VERSIONS:
        raise OptionError(
            f"Bucket: {n_buckets} buckets, at most {MOST_VERSIONS} are made",
            hint="give `edges` for fewer sizes",
        )


def ascending(ends: Sequence[int]) -> Ends:
    return tuple(sorted(set(ends)))


def typical_sizes(plan: CallPlan) -> list[int]:
    """The upper bounds, and a middling number for sizes without."""
    sizes = []
    for slot, _ in enumerate(plan.sizes):
        known, promise = plan.initial[slot], plan.promises.get(slot)
        least = promise.lo if promise else 0
        most = promise.hi if promise and promise.hi is not None else max(least, _UNBOUNDED)
        sizes.append(most if known is None else known)
    return sizes


def work_edges(plan: CallPlan, slot: int, count: int) -> Ends:
    """Ends of `count` buckets of one size, the other sizes as large as they may be.

    From the lower bound (or 1) to the upper the estimated work grows by the same factor in each.
    """
    promise = plan.promises[slot]
    assert promise.hi is not None
    sizes = typical_sizes(plan)

    def work(value: int) -> float:
        tried = [*sizes[:slot], value, *sizes[slot + 1 :]]
        return estimated_work(plan.program, dict(zip(plan.sizes, tried)))

    low = max(1, promise.lo)
    least, most = max(1.0, work(low)), max(1.0, work(promise.hi))
    ends = []
    for k in range(1, count):
        ends.append(_first_reaching(work, least * (most / least) ** (k / count), low, promise.hi))
    return ascending([*ends, promise.hi])


def _first_reaching(work: Callable[[int], float], wanted: float, low: int, high: int) -> int:
    """The least value from `low` to `high` of which the work, which only grows, is `wanted`."""
    while low < high:
        middle = (low + high) // 2
        if work(middle) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low
