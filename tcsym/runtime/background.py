"""Work beside the caller, each in a thread of its own: what the next call needs, not this one.

Such work must not be missed if it fails: whoever needs its result makes it again and sees the
error. Ends before the process does, and before a fork, so that no child inherits half of it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

from tcsym.threads import ShortTurns

_PAUSE_SECONDS = 1e-3  # a new thread would keep Python's lock from the caller for 5 ms
_threads: list[threading.Thread] = []


def beside(work: Callable[[], object]) -> None:
    """Runs `work` in a thread; its errors are dropped."""

    def run() -> None:
        time.sleep(_PAUSE_SECONDS)
        with contextlib.suppress(Exception), ShortTurns():
            work()
        _threads.remove(thread)

    thread = threading.Thread(target=run, name="tcsym background")
    _threads.append(thread)
    try:
        thread.start()
    except RuntimeError:  # no more threads, or the interpreter is ending
        _threads.remove(thread)


def settle() -> None:
    """Waits until all work begun before is done."""
    for thread in tuple(_threads):
        if thread.is_alive() and thread is not threading.current_thread():
            thread.join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=settle, after_in_child=_threads.clear)
    os.register_at_fork(after_in_child=ShortTurns.reset)
