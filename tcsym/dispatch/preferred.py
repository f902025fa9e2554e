# SPDX-License-Identifier: Apache-2.0
"""Strategy `Auto`: the way that a kernel's calls are served if it was measured to be the fastest.

Once all calls together took long enough, another process runs the ways in turns at the sizes called
most (`compare_entries`). The symbolic versions answer meanwhile, and keep what the way does not
cover. What was chosen is kept in the options store; a later process takes it without measuring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tcsym.dispatch.beside import Beside
from tcsym.dispatch.requests import Weighing
from tcsym.dispatch.table import NO_RANGES, Ranges, Table
from tcsym.dispatch.version import Values, Version
from tcsym.runtime.stats import Decision

if TYPE_CHECKING:
    from tcsym.dispatch.compare_entries import Weighed

MOST_SAMPLES = 4
LEAST_SIZES = 2  # with one, versions for single sizes do better
FITS = 0.9  # share of the calls that a way must cover to stay


class Preferred:
    """The way of one kernel: `Table.preferred`, `ready` and `before`."""

    def __init__(self, policy: Beside) -> None:
        self.policy, self.making = policy, policy.making
        self._lock = RLock()
        self.way = "symbolic"
        self.bound: dict[str, int] = {}
        self.is_begun = False
        self._wanted: set[Version] = set()  # asked for

    def want(self, table: Table, sizes: Values) -> None:
        """Have the version for these sizes compiled beside the calls, if the way has one."""
        found = table.preferred.serving(sizes)
        with self._lock:
            if found is None or found in table.ready or found in self._wanted:
                return
            self._wanted.add(found)
        self.policy.compile(
            found, lambda: self.policy.propose(lambda now: _ready(now, found), found)
        )

    def covers(self, counts: Mapping[Values, int]) -> bool:
        """True if the way serves nearly all of these calls."""
        if self.way != "bound":
            return True
        slots = [(self.making.plan.sizes.index(n), v) for n, v in self.bound.items()]
        inside = sum(n for s, n in counts.items() if all(s[k] == v for k, v in slots))
        return inside >= FITS * sum(counts.values())

    # ---- choosing

    def begin(self, counts: Mapping[Values, int], threads: int) -> None:
        """Choose for calls of these sizes, beside them."""
        if self.is_begun or not self.policy.is_active:
            return
        plan = self.making.plan
        self.bound = self._constant(list(counts))
        is_bounded = any(p.hi is not None for p in plan.promises.values())
        if not is_bounded and (not self.bound or len(counts) < LEAST_SIZES):
            return
        self.is_begun = True
        samples = sorted(counts, key=lambda s: -counts[s])[:MOST_SAMPLES]
        work = Weighing(self.making, samples, self.bound, threads, self.policy.share, self._weighed)
        self.policy.submit(work)

    def weigh_now(self, sizes: Sequence[Values], threads: int) -> None:
        """Choose for these sizes before any call."""
        from tcsym.dispatch.compare_entries import weigh
        from tcsym.dispatch.recorded_choice import keep, recall

        self.is_begun = True
        weighed = recall(self.making, {})
        why = "measured before"
        if weighed is None:
            weighed, why = weigh(self.making, sizes, {}, threads), "measured ahead"
            if weighed is not None:
                keep(self.making, {}, weighed)
        if weighed is None:
            return
        preferred = self._choose(weighed, why).preferred
        meant = [preferred.serving(sizes) for sizes in weighed.sizes]
        ready = [version for version in dict.fromkeys(meant) if version is not None]
        for version in ready:
            version.variants.made_for(version.variants.dense)
        self.policy.propose(lambda now: _ready(now, *ready), *ready)

    def _constant(self, sizes: Sequence[Values]) -> dict[str, int]:
        """Sizes that are the same in all calls, but not declared to be."""
        plan = self.making.plan
        return {
            name: sizes[0][k]
            for k, name in enumerate(plan.sizes)
            if plan.initial[k] is None and sizes and len({s[k] for s in sizes}) == 1
        }

    def _weighed(self, result: tuple[Weighed, str] | str | None) -> None:
        """On the thread of `compile_queue`."""
        if isinstance(result, str):
            self.making.stats.failures.append(f"weighing: {result}")
        if isinstance(result, tuple):
            table = self._choose(*result)
            for sizes in result[0].sizes:
                self.want(table, sizes)

    def _choose(self, weighed: Weighed, why: str) -> Table:
        """Take the fastest way; its versions may have to be compiled yet."""
        self.way = weighed.best()
        if self.way != "bound":
            self.bound = {}
        costs = tuple((way, weighed.mean_seconds(way)) for way in weighed.seconds)
        named = tuple(self.bound.items())
        self.making.stats.decide(Decision(named, self.way, f"{why}, all sizes", costs))
        ranges = self._ranges()
        is_before = self.way == "bound" and len(self.policy.holder.table.ranges.versions) == 1
        before = ranges.versions[0] if is_before else None
        return self.policy.propose(lambda now: replace(now, preferred=ranges, before=before))

    def _ranges(self) -> Ranges:
        """What is left by the versions of the way, symbolic versions serve."""
        from tcsym.dispatch.compare_entries import buckets_of, padding_of

        versions: tuple[Version, ...] = ()
        if self.way == "bound":
            versions = self.making.partly_bound(self.bound)
        elif self.way == "bucket":
            versions = buckets_of(self.making).versions
        elif self.way == "padded":
            versions = padding_of(self.making).versions
        return Ranges.of(versions, self.making.plan.sizes, is_total=False)

    def leave(self) -> None:
        """Back to the symbolic versions: calls have other sizes now."""
        self.making.stats.decide(Decision((), "symbolic", "calls have other sizes now"))
        self.way, self.bound, self.is_begun = "symbolic", {}, False
        self.policy.propose(
            lambda now: replace(now, preferred=NO_RANGES, ready=frozenset(), before=None)
        )


def _ready(table: Table, *versions: Version) -> Table:
    """With these versions of the way, unless another was taken meanwhile."""
    return replace(table, ready=table.ready | (set(versions) & set(table.preferred.versions)))
