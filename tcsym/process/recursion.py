"""Room for recursion over deeply nested programs (the language allows 200 levels), quickly."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

ROOM = 20_000
_lock = threading.Lock()
_users = 0
_before = 0, False
_MOST_AGED = 8  # then garbage of a compilation that is in circles is found as ever, soon
_n_aged = 0
_FROZEN_AT_START = 1000

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def deep_recursion(run: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`run` with Python's recursion limit raised, while any thread is inside, and frames in place.

    CPython takes memory for frames in chunks of 16 KB and gives each back when it is left: a loop
    whose calls cross the end of one maps and unmaps it every time, which took a third of the time
    of a large compilation. A frame that needs more than a chunk gets one of twice its size or so,
    with room for what it calls.

    Garbage is not looked for meanwhile: what a compilation makes are trees, which need no search,
    and the searches, each through all of them, took a tenth of its time. Nor right after the first
    ones, when all of them would be young: they count as old from then on.
    """

    @wraps(run)
    def inner(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        _enter()
        try:
            return _large_frame(run, args, kwargs)  # type: ignore[no-any-return]
        except RecursionError:
            raise _too_deep() from None
        finally:
            _leave()

    return inner


def _too_deep() -> Exception:
    from tcsym.errors import TCSyntaxError

    hint = "compute parts of it in statements before"
    return TCSyntaxError("an expression of the program is too deep for this Python", hint=hint)


def _large_frame(run: Any, args: Any, kwargs: Any) -> Any:
    return run(*args, **kwargs)


_WORDS = (1 << 16) + 512  # half a megabyte and some: the chunk is a whole one
_large_frame.__code__ = _large_frame.__code__.replace(co_stacksize=_WORDS)


def _enter() -> None:
    global _users, _before
    with _lock:
        if _users == 0:
            _before = sys.getrecursionlimit(), gc.isenabled()
            sys.setrecursionlimit(max(_before[0], ROOM))
            gc.disable()
        _users += 1


def _leave() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            limit, collects = _before
            sys.setrecursionlimit(limit)
            if collects:
                _age()
                gc.enable()


def _age() -> None:
    """All objects count as old: the next full search goes through them, not the next one.

    The first times in a process only: a tuner that compiles all the time would have no full search.
    """
    global _n_aged
    # Where somebody froze objects, they want them left alone; 3.12 itself starts with a few frozen.
    if _n_aged < _MOST_AGED and gc.get_freeze_count() < _FROZEN_AT_START:
        _n_aged += 1
        gc.freeze()
        gc.unfreeze()
