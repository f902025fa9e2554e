"""Room for recursion over deeply nested programs (the language allows 200 levels)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ROOM = 20_000
_lock = threading.Lock()
_users = 0
_before = 0


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit while any thread is inside."""
    global _users, _before
    with _lock:
        if _users == 0:
            _before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_before, ROOM))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                sys.setrecursionlimit(_before)
