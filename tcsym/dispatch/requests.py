"""Work beside the calls that one part of a kernel asked for, before it begins."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tcsym.dispatch.compile_queue import AnyWork


class Asked:
    """The queue of the process knows this weakly: what waits goes with the kernel that wants it."""

    def __init__(self) -> None:
        self._works: deque[AnyWork] = deque()

    def submit(self, work: AnyWork) -> None:
        from tcsym.dispatch.compile_queue import compilations

        self._works.append(work)
        compilations.submit(self)

    def next(self) -> AnyWork | None:
        return self._works.popleft() if self._works else None

    def clear(self) -> None:
        self._works.clear()
