"""Calls that versions served which exist no more: none is lost from `stats.dispatch`."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tcsym.dispatch.ways import Ways

GONE = "versions that were given up"
_WATCHED = 64  # by then, the calls that were running when a version went have come back


class Gone:
    """Counters of native entries, of a few hundred bytes each, are read for a while yet."""

    def __init__(self) -> None:
        self._settled = 0
        self._watched: deque[Ways] = deque()

    def count(self, calls: int, ways: Ways | None = None) -> None:
        """These calls, and what the entries of a version counted and may yet count."""
        self._settled += calls
        if ways is None:
            return
        ways.close()
        self._watched.append(ways)
        if len(self._watched) > _WATCHED:
            self._settled += self._watched.popleft().served

    @property
    def calls(self) -> int:
        return self._settled + sum([ways.served for ways in tuple(self._watched)])
