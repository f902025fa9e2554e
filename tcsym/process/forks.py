# SPDX-License-Identifier: Apache-2.0
"""Forks wait until no other thread is in a part of ours that a child would find half done.

A child has only the thread that forked. What other threads held then stays held in it for ever:
locks of imports above all, and a first call imports two hundred modules. So calls
that reach Python code of ours are inside, and a fork waits until all threads but its own are out.
Calls of native entries hold nothing and are not counted.
"""

from __future__ import annotations

import logging  # noqa: F401 (has hooks of its own, see below)
import os
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    from threading import Thread

LONGEST_WAIT_SECONDS = 60.0  # a thread that waits for the forking one would keep it for ever
_POLL_SECONDS, _ENDING_SECONDS = 2e-4, 0.1

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Function = Callable[[], object]


class Hook(NamedTuple):
    """What to do around a fork; hooks begin in reverse order, with all threads out."""

    before: Function | None = None
    after_in_parent: Function | None = None
    after_in_child: Function | None = None


# Threads inside, with how often each entered. Single operations on it are safe without a lock,
# which the handler of a signal could find taken by the code that it interrupted.
_inside: dict[int, int] = {}
_forking: list[int] = []  # the thread that forks
_turn = allocate_lock()  # held by that thread
_beside: set[int] = set()  # threads for which forks wait otherwise
_afterwards: list[Function] = []
_hooks: list[Hook] = []
_begun: list[Hook] = []


class Inside:
    """Use `with`: forks by other threads wait. A fork that is under way is waited for first."""

    def __enter__(self) -> None:
        me = get_ident()
        while True:
            _inside[me] = _inside.get(me, 0) + 1
            if not _forking or _forking[0] == me or _inside[me] > 1 or me in _beside:
                break
            del _inside[me]
            with _turn:  # until the fork is over
                pass
        while _afterwards:
            with suppress(IndexError):  # another thread was faster
                _afterwards.pop()()

    def __exit__(self, *_: object) -> None:
        me = get_ident()
        if _inside[me] > 1:
            _inside[me] -= 1
        else:
            del _inside[me]


class Beside:
    """Use `with`: what this thread does is waited for, or ended, by a hook of its own."""

    def __enter__(self) -> None:
        _beside.add(get_ident())

    def __exit__(self, *_: object) -> None:
        _beside.discard(get_ident())


def inside(run: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`run`, all of it `Inside`."""

    @wraps(run)
    def inner(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with Inside():
            return run(*args, **kwargs)

    return inner


def afterwards(run: Function) -> None:
    """`run` is called by the next thread that gets inside."""
    _afterwards.append(run)


def at_fork(
    before: Function | None = None,
    after_in_parent: Function | None = None,
    after_in_child: Function | None = None,
) -> None:
    """As `os.register_at_fork`, for a hook whose `before` must not run without the rest.

    Python runs the second part of hooks that were registered while the first parts ran.
    """
    _hooks.append(Hook(before, after_in_parent, after_in_child))


def ended(thread: Thread) -> None:
    """Waits until a thread has ended, for the system, too: Python warns whoever forks before."""
    thread.join()
    until = monotonic() + _ENDING_SECONDS
    while os.path.exists(f"/proc/self/task/{thread.native_id}") and monotonic() < until:
        sleep(_POLL_SECONDS)


def _before() -> None:
    me = get_ident()
    _turn.acquire()
    _forking.append(me)
    until = monotonic() + LONGEST_WAIT_SECONDS
    while any(thread != me and thread not in _beside for thread in tuple(_inside)):
        if monotonic() > until:
            break
        sleep(_POLL_SECONDS)
    for hook in reversed(tuple(_hooks)):
        if hook.before is not None:
            hook.before()
        _begun.append(hook)


def _after_in_parent() -> None:
    while _begun:
        hook = _begun.pop()
        if hook.after_in_parent is not None:
            hook.after_in_parent()
    if _forking:
        _forking.clear()
        _turn.release()


def _after_in_child() -> None:
    global _turn
    own = _inside.get(get_ident())
    _inside.clear()
    if own is not None:
        _inside[get_ident()] = own
    _beside.clear()
    _afterwards.clear()
    while _begun:
        hook = _begun.pop()
        if hook.after_in_child is not None:
            hook.after_in_child()
    _forking.clear()
    _turn = allocate_lock()


# Behind the hook of logging, so that it begins before: with the lock of logging taken, which parts
# of a first call use, a fork would wait for a thread that waits for the lock.
os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
