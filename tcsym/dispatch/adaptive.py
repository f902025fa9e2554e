# SPDX-License-Identifier: Apache-2.0
"""The policy of `Auto`, and of `Specialize` in the background.

Symbolic versions serve all sizes. Which layers of the table come before them, and who proposes:

    points        hot sizes: their calls took much time               `hot_sizes`
    preferred     one way serves all calls fastest, if measured       `preferred`
    measured      tuned options that were measured at these sizes     `refined`
    stand-ins     versions whose code is not made yet                 `stand_ins`

The switch counts calls by sizes. A few of them are timed, which tells what is worth to be compiled
or measured next: always beside the calls, in another process.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tcsym.dispatch.beside import Beside
from tcsym.dispatch.hot_sizes import HotSizes
from tcsym.dispatch.kept_sizes import KeptSizes
from tcsym.dispatch.making import Making
from tcsym.dispatch.points import compile_seconds, corners, declared_sizes
from tcsym.dispatch.preferred import Preferred
from tcsym.dispatch.refined import REFINE_SECONDS, RefinedSizes
from tcsym.dispatch.stand_ins import StandIns
from tcsym.dispatch.table import Table
from tcsym.dispatch.trial import median
from tcsym.dispatch.version import Values, Version
from tcsym.process.threads import get_num_threads
from tcsym.runtime.stats import Decision
from tcsym.runtime.switch import NOTICED_FROM, missing_calls
from tcsym.sizes.region import Region
from tcsym.strategy import Auto, Specialize

TRIED_AHEAD = 16  # declared sizes that `precompile` compiles versions for, to see what they gain
FIRST_LOOK = 256  # calls after which one is timed; then each time they have doubled
WEIGHING = 3  # versions that are compiled to see how best to serve all calls
REGION_HOT = 0.25  # a region's version costs so much of what one for single sizes may
REFINE_HOT = 0.25  # and measuring options for single sizes


class Adaptive(Beside):
    """Symbolic versions, and beside them versions for sizes that are worth it."""

    def __init__(self, making: Making, strategy: Auto | Specialize) -> None:
        super().__init__(making, strategy.share)
        self.measured = isinstance(strategy, Auto)
        self.patience = strategy.hot if isinstance(strategy, Auto) else 0.0
        self.first_look = FIRST_LOOK if self.measured else 0
        self.hot = HotSizes(self, strategy)
        self.preferred = Preferred(self)
        self.refined = RefinedSizes(self)
        self.kept = KeptSizes(making)
        self._stand_ins = StandIns(self)
        self._looked: list[float] = []  # seconds of calls that were looked at

    # ---- tables

    def first(self) -> Table:
        """After the first, no call waits for a variant of other layouts."""
        return self.counted(self._beside(super().first()))

    def _beside(self, table: Table) -> Table:
        for version in table.ranges.versions if self.is_active else ():
            version.compile_beside = self.compile_layouts
        return table

    def counted(self, table: Table) -> Table:
        """Calls are counted as long as something may come of it; those of new sizes sooner where
        versions are for ranges, so that they soon enter theirs."""
        is_counted = self._is_open(table) or self._refines or bool(table.stand_ins)
        first = 2 if self.patience == 0 or table.leads else NOTICED_FROM
        n = first if is_counted else 0
        return table if table.noticed_after == n else replace(table, noticed_after=n)

    @property
    def _refines(self) -> bool:
        """True where options for single sizes are asked for: calls are counted all the time."""
        return self.measured and self.is_active and len(self.making.candidates) > 1

    def _is_open(self, table: Table) -> bool:
        """False once enough sizes were tried in vain."""
        return self.hot.is_open(gained=bool(table.preferred.versions))

    def wanted(self, table: Table, sizes: Values) -> Table:
        if not self.measured:
            return table
        kept = self.kept.wanted(table, sizes)
        return self.refined.wanted(table if kept is table else self._beside(kept), sizes)

    def answered(self, table: Table, own: Version) -> Table:
        """After the first call none waits: another version answers until its own is made."""
        return self.counted(self._stand_ins.answered(table, own)) if self.is_active else table

    def region_of(self, sizes: Values) -> Region:
        return self.refined.region_of(sizes) if self.measured else super().region_of(sizes)

    def others(self, table: Table, sizes: Values, calls: int) -> tuple[str, ...]:
        refined = self.refined.known(sizes) if self.measured else None
        told = (f"options {refined}",) if refined is not None and refined.seconds else ()
        return (*told, *self.hot.text(sizes, calls, self._is_open(table)))

    # ---- what is worth it

    def called(self, sizes: Values) -> None:
        if self.holder.table.leads:
            self.preferred.want(self.holder.table, sizes)
        if not self.measured:
            self.hot.specialise(sizes)

    def noticed(self, sizes: Values, seconds: float, calls: int) -> int:
        table = self.holder.table
        worth = REGION_HOT * self.patience * self._cost()
        if self._stand_ins.took(table.own(sizes), seconds * NOTICED_FROM, worth):
            return NOTICED_FROM
        if sizes in self.hot.states:
            self.hot.again(sizes)
            return 0
        if table.leads:
            self.preferred.want(table, sizes)
        return self._considered(sizes, seconds, calls)

    def _considered(self, sizes: Values, seconds: float, calls: int) -> int:
        """Measures options for these sizes or compiles a version, if their calls took long enough;
        else the number of calls after which they may have."""
        table, missing = self.holder.table, 0
        if self.refined.is_busy(sizes):
            return NOTICED_FROM
        if self.measured and self.refined.may_ask(sizes) and table.way(sizes) is None:
            missing = missing_calls(seconds, calls, REFINE_HOT * self.patience * REFINE_SECONDS)
            if not missing:
                self.refined.ask(sizes, get_num_threads())
                return NOTICED_FROM
        elif self._is_open(table):
            missing = missing_calls(seconds, calls, self.hot.worth())
            if not missing:
                self.hot.specialise(sizes)
        return missing

    def looked(self, seconds: float, total: int, counts: Mapping[Values, int]) -> int:
        """If all calls took long enough, see how best to serve them."""
        self._looked.append(seconds)
        spent = median(self._looked) * total
        mean = median(self._looked)
        self.kept.looked(self, mean, counts, self.patience * self._cost())
        is_due = spent >= WEIGHING * self.patience * self._cost()
        if not self.preferred.covers(counts):
            self.preferred.leave()
        if counts and is_due:
            self.preferred.begin(counts, get_num_threads())
        return 2 * total

    def _cost(self) -> float:
        """Seconds that compiling another version is likely to take."""
        return compile_seconds(self.making.stats)

    # ---- ahead of calls

    def precompile(self) -> None:
        """Compile the symbolic versions; with `Auto`, see where numbers for sizes pay.

        All declared sizes are tried if they are few, else the corners of what is declared.
        """
        super().precompile()
        plan = self.making.plan
        if self.measured and self.is_active:
            self.preferred.weigh_now(corners(plan), get_num_threads())
        most = min(self.hot.most, TRIED_AHEAD) if self.measured else self.hot.most
        every = declared_sizes(plan, most)
        if not self.measured:
            for sizes in every:
                self.hot.specialise(sizes)
            return
        tried = every or corners(plan)
        gained = sum([self.hot.measure(sizes, adopt=bool(every)) for sizes in tried])
        if tried and not gained:
            self.is_active = False
            self.propose(lambda now: now)
            self.making.stats.decide(
                Decision((), "symbolic", "no declared sizes gain by being numbers in the code")
            )
