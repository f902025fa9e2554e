# SPDX-License-Identifier: Apache-2.0
"""Versions of tuned regions that have no code yet: which ones answer for them, and until when.

Any version without numbers is right for all sizes. One whose code is in the cache is loaded at
once; else a version that is compiled stands in until calls in the region took so long that
compiling its own pays.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.dispatch.beside import Beside
from tcsym.dispatch.table import Table
from tcsym.dispatch.version import Version

MOST_CALLS = 1000  # through Python, where time is not taken


class _Waiting(Struct):
    """What calls of a version without code took so far."""

    seconds: float = 0.0
    calls: int = 0
    is_begun: bool = False


class StandIns:
    """Of one kernel: `Table.stand_ins`."""

    def __init__(self, policy: Beside) -> None:
        self.policy = policy
        self._waiting: dict[Version, _Waiting] = {}

    def answered(self, table: Table, own: Version) -> Table:
        """The table in which another version answers for `own`, if that has no code."""
        if own.variants.made:
            return _without(table, own)
        if own not in table.stand_ins:
            versions = (*table.ranges.versions, *table.measured.values())
            known = self.policy.making.known.keys()
            ready = next((v for v in versions if v.variants.made and v.fixed.keys() <= known), None)
            if ready is None:
                return table
            compiled = own.variants.cached(own.variants.dense)
            if compiled is not None:
                own.variants.adopt(own.variants.dense, compiled)
                return table
            table = replace(table, stand_ins={**table.stand_ins, own: ready})
        waiting = self._waiting.setdefault(own, _Waiting())
        waiting.calls += 1
        if waiting.calls >= MOST_CALLS:
            self._begin(own, waiting)
        return table

    def took(self, own: Version | None, seconds: float, worth: float) -> bool:
        """Calls that another version served took `seconds`; from `worth` on, `own` is compiled.

        False if `own` does not wait for that (any more).
        """
        waiting = self._waiting.get(own) if own is not None and not own.variants.made else None
        if own is None or waiting is None or waiting.is_begun:
            return False
        waiting.seconds += seconds
        if waiting.seconds >= worth:
            self._begin(own, waiting)
        return True

    def _begin(self, own: Version, waiting: _Waiting) -> None:
        if not waiting.is_begun:
            waiting.is_begun = True
            propose = self.policy.propose
            self.policy.compile(own, lambda: propose(lambda now: _without(now, own), own))


def _without(table: Table, own: Version) -> Table:
    if own not in table.stand_ins:
        return table
    return replace(table, stand_ins={k: by for k, by in table.stand_ins.items() if k is not own})
