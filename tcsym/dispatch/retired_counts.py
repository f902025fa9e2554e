# SPDX-License-Identifier: Apache-2.0
"""Calls that versions served which exist no more: none is lost from `stats.dispatch`."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tcsym.dispatch.entries import Ways

GONE = "versions that were given up"


class Gone:
    """Counters of native entries, of a few hundred bytes each, are read as long as these live.

    lock: held where a call is counted and where its version goes, so that it counts in one place.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self._settled = 0
        self._watched: deque[Ways] = deque()

    def count(self, calls: int, ways: Ways | None = None) -> None:
        """These calls, and what a version's entries counted and may yet count; with the lock."""
        self._settled += calls
        if ways is not None:
            ways.close()
            self._watched.append(ways)
        while self._watched and not self._watched[0].is_entered:
            self._settled += self._watched.popleft().served

    @property
    def calls(self) -> int:
        with self.lock:
            return self._settled + sum([ways.served for ways in self._watched])
