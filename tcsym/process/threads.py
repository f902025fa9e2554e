# SPDX-License-Identifier: Apache-2.0
"""How many threads a kernel may use: `set_num_threads`, else TCSYM_NUM_THREADS, else our cores."""

from __future__ import annotations

import ctypes
import os
import sys
from _thread import allocate_lock
from operator import index

from tcsym.process.config import NUM_THREADS
from tcsym.process.system import is_macos, macos_fact

MOST_THREADS = 4096
TURN_SECONDS = 1e-4
_chosen = ctypes.c_int64(0)  # 0: not decided yet


def set_num_threads(n: int) -> None:
    """Most threads that kernels of this process may use from now on, on one call.

    Errors: OptionError unless `n` is an integer >= 1.
    """
    _chosen.value = require_threads(n)


def get_num_threads() -> int:
    """The number in force: as set, else TCSYM_NUM_THREADS, else the cores this process may use."""
    if not _chosen.value:
        _chosen.value = min(MOST_THREADS, NUM_THREADS.read() or available_cores())
    return _chosen.value


def address_of_choice() -> int:
    """Where native code reads the number in force, a 64-bit integer; 0 while it is undecided."""
    return ctypes.addressof(_chosen)


def require_threads(n: object) -> int:
    """`n` if it is a number of threads, but at most `MOST_THREADS`."""
    try:
        count = 0 if isinstance(n, bool) else index(n)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1:
        from tcsym.errors import OptionError

        raise OptionError(f"number of threads is {n!r}, expected an integer >= 1")
    return min(MOST_THREADS, count)


def available_cores() -> int:
    """Cores that this process is allowed to run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    if is_macos():  # macOS: never run
        # All threads get as much to do: those on slower cores would be waited for.
        fast = int.from_bytes(macos_fact("hw.perflevel0.physicalcpu"), "little")
        return fast or os.cpu_count() or 1
    return os.cpu_count() or 1


class ShortTurns:
    """Use `with`: a thread that waits for Python's lock gets it soon, not after 5 ms.

    For work beside the user's threads. The interval is of the whole process: the last one that
    ends restores what the first one found.
    """

    _lock = allocate_lock()
    _n_open = 0
    _before = 0.0

    def __enter__(self) -> None:
        with ShortTurns._lock:
            if ShortTurns._n_open == 0:
                ShortTurns._before = sys.getswitchinterval()
                sys.setswitchinterval(min(TURN_SECONDS, ShortTurns._before))
            ShortTurns._n_open += 1

    def __exit__(self, *_: object) -> None:
        with ShortTurns._lock:
            ShortTurns._n_open -= 1
            if ShortTurns._n_open == 0:
                sys.setswitchinterval(ShortTurns._before)

    @staticmethod
    def reset() -> None:
        """In the child of a fork, which has none of the threads that were open."""
        ShortTurns._lock = allocate_lock()
        if ShortTurns._n_open:
            ShortTurns._n_open = 0
            sys.setswitchinterval(ShortTurns._before)
