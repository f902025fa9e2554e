# SPDX-License-Identifier: Apache-2.0
"""Work beside the caller, each in a thread of its own: what the next call needs, not this one.

Such work must not be missed if it fails, which is logged: whoever needs its result makes it again
and sees the error. Ends before the process does, and before a fork, so that no child inherits half
of it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from tcsym.process.forks import Beside, at_fork, ended
from tcsym.process.threads import ShortTurns

_log = logging.getLogger("tcsym.runtime")
_PAUSE_SECONDS = 1e-3  # a new thread would keep Python's lock from the caller for 5 ms
_threads: set[threading.Thread] = set()


def beside(work: Callable[[], object]) -> None:
    """Runs `work` in a thread; its errors are logged."""

    def run() -> None:
        with Beside():
            time.sleep(_PAUSE_SECONDS)
            try:
                with ShortTurns():
                    work()
            except Exception:
                _log.warning("work beside the calls failed, which go on without", exc_info=True)

    _threads.difference_update([t for t in tuple(_threads) if t.ident and not t.is_alive()])
    thread = threading.Thread(target=run, name="tcsym background")
    _threads.add(thread)
    try:
        thread.start()
    except RuntimeError:  # no more threads, or the interpreter is ending
        _threads.discard(thread)


def settle() -> None:
    """Waits until all work begun before is done."""
    me = threading.current_thread()
    while begun := [t for t in tuple(_threads) if t.ident and t is not me]:
        for thread in begun:  # they may begin more
            ended(thread)
            _threads.discard(thread)


class Turns:
    """One thread at a time; work beside callers lets callers go first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_taken = False
        self._n_callers = 0

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """For a caller that waits: the next turn."""
        self.take()
        try:
            yield
        finally:
            self.give_back()

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """For work that nobody waits for: a turn that no caller wants."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taken and not self._n_callers)
            self._is_taken = True
        try:
            yield
        finally:
            self.give_back()

    def take(self) -> None:
        with self._changed:
            self._n_callers += 1
            try:
                self._changed.wait_for(lambda: not self._is_taken)
            finally:
                self._n_callers -= 1
            self._is_taken = True

    def give_back(self) -> None:
        with self._changed:
            self._is_taken = False
            self._changed.notify_all()

    def reset(self) -> None:
        """In the child of a fork, which has none of the threads that wait."""
        Turns.__init__(self)


compiling_parts = Turns()
# Registered first, so taken last: what settles may need turns.
at_fork(
    before=compiling_parts.take,
    after_in_parent=compiling_parts.give_back,
    after_in_child=compiling_parts.reset,
)
at_fork(before=settle, after_in_child=_threads.clear)
at_fork(after_in_child=ShortTurns.reset)
