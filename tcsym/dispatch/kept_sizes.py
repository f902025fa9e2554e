# SPDX-License-Identifier: Apache-2.0
"""Size parameters of which calls keep the value -> versions that have it as a number.

Only those that multiply or divide an index (`sizes.shaping`); all other sizes stay symbols. The
first call decides for its values; versions for others are compiled beside the calls once these took
long enough, and until then the symbolic version serves them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import RLock

from msgspec.structs import replace

from tcsym.dispatch.beside import Beside
from tcsym.dispatch.making import Making
from tcsym.dispatch.policy import Policy
from tcsym.dispatch.table import Ranges, Table
from tcsym.dispatch.version import Values, Version

MOST_VALUES = 8  # that versions are made for


class KeptSizes:
    """Of one kernel: versions in `Table.ranges`, before those for all values."""

    def __init__(self, making: Making) -> None:
        self.making = making
        plan = making.plan
        self.slots = tuple([plan.sizes.index(name) for name in making.shaping_left])
        self._lock = RLock()
        self._asked: set[Values] = set()

    def values(self, sizes: Values) -> Values:
        """Those of the size parameters."""
        return tuple([sizes[slot] for slot in self.slots])

    def wanted(self, table: Table, sizes: Values) -> Table:
        """The table of the first call, with a version for its values."""
        if not self.slots or any(map(self._is_for_values, table.ranges.versions)):
            return table
        self._asked.add(self.values(sizes))
        return self._with(table, self._made(self.values(sizes)))

    def looked(
        self, policy: Beside, seconds: float, counts: Mapping[Values, int], worth: float
    ) -> None:
        """Have versions compiled for values whose calls, `seconds` each, took more than `worth`."""
        calls: dict[Values, int] = {}
        for sizes, n in counts.items() if self.slots else ():
            calls[self.values(sizes)] = calls.get(self.values(sizes), 0) + n
        for values, n in calls.items():
            if seconds * n >= worth and self._may_ask(values):
                self._compile(policy, self._made(values))

    def _may_ask(self, values: Values) -> bool:
        with self._lock:
            if values in self._asked or len(self._asked) >= MOST_VALUES:
                return False
            self._asked.add(values)
            return True

    def _compile(self, policy: Beside, versions: Sequence[Version]) -> None:
        left = list(versions)

        def made() -> None:
            left.pop()
            if not left:
                policy.propose(lambda now: self._with(now, versions), *versions)

        for version in versions:
            version.compile_beside = policy.compile_layouts
            policy.compile(version, made)

    def _made(self, values: Values) -> tuple[Version, ...]:
        names = self.making.shaping_left
        return self.making.partly_bound(dict(zip(names, values, strict=True)))

    def _with(self, table: Table, versions: Sequence[Version]) -> Table:
        every = (*versions, *table.ranges.versions)
        return replace(table, ranges=Ranges.of(every, self.making.plan.sizes))

    def _is_for_values(self, version: Version) -> bool:
        return any(name in version.fixed for name in self.making.shaping_left)


class FirstValues(Policy):
    """In place of `Auto` where calls cannot be timed: only the first call decides."""

    def __init__(self, making: Making) -> None:
        super().__init__(making)
        self._kept = KeptSizes(making)

    def wanted(self, table: Table, sizes: Values) -> Table:
        return self._kept.wanted(table, sizes)
