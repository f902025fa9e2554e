# SPDX-License-Identifier: Apache-2.0
"""Strategy `Auto`: sizes whose options were measured, each for itself, and what serves them.

The region's version answers calls of new sizes. Once these took some time, another process runs
all tuned options in turns at these sizes (`refine`); calls go on with the fastest. What was chosen
is kept in the options store; a later process takes it from its first call on.
"""

from __future__ import annotations

from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tcsym.dispatch.beside import Beside
from tcsym.dispatch.requests import Refining
from tcsym.dispatch.table import Table
from tcsym.dispatch.version import Values, Version
from tcsym.options import Options
from tcsym.runtime.stats import Decision
from tcsym.sizes.region import Region

if TYPE_CHECKING:
    from tcsym.dispatch.refine import Refined

REFINE_SECONDS = 0.05  # what measuring one choice of sizes is likely to take
MOST_SIZES = 4096


class RefinedSizes:
    """Of one kernel: `Table.measured`."""

    def __init__(self, policy: Beside) -> None:
        self.policy, self.making = policy, policy.making
        self._lock = RLock()
        self._versions: dict[Options, Version] = {}
        self._known: dict[Values, Refined] | None = None
        self._asked: set[Values] = set()  # and not answered yet

    # ---- tables

    def wanted(self, table: Table, sizes: Values) -> Table:
        """The table with the version for these sizes, if another than the region's is faster."""
        found = None if sizes in table.measured else self.known(sizes)
        if found is None or found.options == self.making.region_of(sizes).options:
            return table
        return replace(table, measured={**table.measured, sizes: self._version(found.options)})

    def known(self, sizes: Values) -> Refined | None:
        """What was measured at these sizes."""
        if len(self.making.candidates) < 2:
            return None
        if self._known is None:
            from tcsym.dispatch.refine import recall

            self._known = recall(self.making)
        return self._known.get(sizes)

    def _version(self, options: Options) -> Version:
        with self._lock:
            if options not in self._versions:
                self._versions[options] = self.making.refined(options)
            return self._versions[options]

    def region_of(self, sizes: Values) -> Region:
        """The options for these sizes, and why."""
        found = self.known(sizes)
        region = self.making.region_of(sizes)
        if found is None or found.options == region.options:
            return region
        return Region(found.options, self.making.point_context(sizes), "measured")

    # ---- asking

    def may_ask(self, sizes: Values) -> bool:
        """True if something can be measured here that is not known."""
        if not self.policy.is_active or len(self.making.candidates) < 2 or sizes in self._asked:
            return False
        return self.known(sizes) is None and len(self._known or ()) < MOST_SIZES

    def is_busy(self, sizes: Values) -> bool:
        return sizes in self._asked

    def ask(self, sizes: Values, threads: int) -> None:
        """Have the candidates measured beside the calls."""
        with self._lock:
            if not self.may_ask(sizes):
                return
            self._asked.add(sizes)
        done = lambda result: self._measured(sizes, result)  # noqa: E731
        self.policy.submit(Refining(self.making, sizes, threads, self.policy.share, done))

    def _measured(self, sizes: Values, result: Refined | str | None) -> None:
        """On the thread of `beside`."""
        from tcsym.dispatch.refine import Refined

        region = self.making.region_of(sizes)
        if isinstance(result, str):
            self.making.stats.failures.append(f"measuring candidates: {result}")
        if not isinstance(result, Refined):
            result = Refined(region.options, 0.0, 0.0)  # not to be asked for again
        self._told(sizes, result)
        if result.options == region.options:
            self._learned(sizes, result)
            return
        found, version = result, self._version(result.options)
        made = partial(self._learned, sizes, found, version)
        if version.variants.ready_dense is not None:
            made()
            return
        nothing = Refined(region.options, 0.0, 0.0)
        self.policy.compile(version, made, partial(self._learned, sizes, nothing))

    def _learned(self, sizes: Values, found: Refined, *compiled: Version) -> None:
        with self._lock:
            assert self._known is not None  # it was looked at before anything was asked
            self._known[sizes] = found
            self._asked.discard(sizes)
        self.policy.propose(lambda now: self.wanted(now, sizes), *compiled)

    def _told(self, sizes: Values, found: Refined) -> None:
        if found.seconds:
            named = tuple(zip(self.making.plan.sizes, sizes))
            costs = ("the region's options", found.before), ("these", found.seconds)
            why = f"the fastest of {len(self.making.candidates)}, measured beside the calls"
            self.making.stats.decide(Decision(named, f"options {found.options}", why, costs))
