# SPDX-License-Identifier: Apache-2.0
"""Variants to be compiled beside the calls: a queue, a thread that waits, a process that works.

The thread exists while there is work; it holds Python's lock only to load what came back. The
process ends a while after the work. At a fork the thread ends, when nothing is half loaded, so that
the process that forks has no threads of ours; the process works on, and the next call that comes to
Python has a new thread wait for it. A child has an empty queue. The interpreter does not wait for
the queue when it ends. Work for kernels that exist no more is not begun.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import ref

from tcsym.dispatch.requests import AnyWork, Asked, Work
from tcsym.dispatch.server import asked
from tcsym.ir.compiled import Compiled
from tcsym.process.forks import Beside, afterwards, at_fork, ended
from tcsym.process.helper import Answer, Helper, HelperError
from tcsym.process.threads import ShortTurns

_log = logging.getLogger("tcsym.dispatch")
LONGEST_SECONDS = 120.0
_LINGER_SECONDS, _POLL_SECONDS = 2.0, 0.05
_NICENESS = 10


class Ended(Exception):
    """The interpreter is ending."""


class Paused(Exception):
    """The process is about to fork."""


class Compilations:
    """The queue of this process."""

    def __init__(self) -> None:
        self._queue: deque[ref[Asked]] = deque()
        self._reset()

    def _reset(self) -> None:
        self._clear()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._helper: Helper | None = None
        self._current: AnyWork | None = None
        self._is_asked = False  # an answer is being waited for
        self._pausing = False
        self._wake = -1  # what a fork writes to while the thread waits for an answer

    def _clear(self) -> None:
        for of in self._queue:
            if (waiting := of()) is not None:
                waiting.clear()
        self._queue.clear()
        self._open = 0

    def submit(self, waiting: Asked, work: AnyWork) -> None:
        """One more of the works that somebody asked for."""
        waiting.append(work)
        with self._changed:
            self._queue.append(ref(waiting))
            self._open += 1
            self._changed.notify_all()
            self._begin()

    def settle(self) -> None:
        """Wait until all that was submitted is done."""
        with self._changed:
            self._begin()
            self._changed.wait_for(lambda: not self._open)

    def _resume(self) -> None:
        with self._changed:
            self._begin()

    def _begin(self) -> None:
        """Have a thread if there is work. To be called with the lock."""
        if self._thread is not None or not self._open:
            return
        if self._wake < 0:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="tcsym compilations")
        try:
            self._thread.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            self._thread = None
            self._clear()

    # ---- the thread

    def _run(self) -> None:
        with Beside():
            try:
                while self._step():
                    pass
            except Ended:
                self._stop()
            except Paused:
                pass

    def _step(self) -> bool:
        """One work, of which nothing is kept afterwards; False if there is none any more."""
        if self._current is None:
            self._current = self._next()
        if self._current is None:
            return False
        try:
            self._do(self._current)
        except Paused:
            raise
        except BaseException:
            self._done()
            raise
        self._done()
        return True

    def _done(self) -> None:
        self._current = None
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _do(self, work: AnyWork) -> None:
        if isinstance(work, Work):
            self._finish(partial(_load, work, self._compiled(work)))
        else:
            self._finish(partial(work.done, self._answered(work)))

    def _next(self) -> AnyWork | None:
        """The next work; None after a while without any: thread and process then end."""
        until = time.monotonic() + _LINGER_SECONDS
        with self._changed:
            while True:
                while self._queue:
                    waiting = self._queue.popleft()()
                    work = waiting.popleft() if waiting else None
                    if work is not None:
                        return work
                    self._open -= 1
                    self._changed.notify_all()
                if self._pausing:
                    raise Paused
                self._changed.wait(_POLL_SECONDS)
                _require_main_thread()
                if not self._queue and time.monotonic() > until:
                    self._stop()
                    self._thread = None
                    return None

    def _finish(self, finish: Callable[[], None]) -> None:
        with ShortTurns():
            try:
                finish()
            except Exception:
                _log.exception("what was compiled beside the calls is not used")

    def _compiled(self, work: Work) -> Compiled | str:
        with ShortTurns(), suppress(OSError, ValueError, RuntimeError):
            found = work.variants.cached(work.layouts)
            if found is not None:
                return found
        answer: Compiled | str = self._answered(work)
        return answer

    def _answered(self, work: AnyWork) -> Any:
        """What the process answers, or why it does not."""
        try:
            with ShortTurns():
                sent = asked(work)
            is_good, value = self._exchange(sent)
            return value if is_good else f"{type(value).__name__}: {value}"
        except (HelperError, OSError, ValueError, RuntimeError) as e:
            self._stop()
            what = "compiling" if isinstance(work, Work) else "measuring"
            return f"the {what} process failed: {e}"

    # ---- the process

    def _exchange(self, sent: bytes) -> Answer:
        """The answer to a message; nothing is sent while one is waited for since before a fork."""
        helper = self._helper
        if helper is None or not self._is_asked:
            if helper is None or helper.process.poll() is not None:
                helper = self._helper = Helper("tcsym.dispatch.server", niceness=_NICENESS)
            helper.send(sent)
            self._is_asked = True
        answer = helper.answer(LONGEST_SECONDS, self._look, self._wake)
        self._is_asked = False
        return answer

    def _look(self) -> None:
        """Now and then while an answer is waited for."""
        if self._pausing:
            raise Paused
        _require_main_thread()

    def _stop(self) -> None:
        helper, self._helper = self._helper, None
        self._is_asked = False
        if helper is not None:
            helper.kill()

    # ---- forks

    def before_fork(self) -> None:
        """The thread ends: a child would have half of what it does, and Python warns of threads."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        with self._changed:
            self._pausing = True
            self._changed.notify_all()
        os.eventfd_write(self._wake, 1)
        ended(thread)
        os.eventfd_read(self._wake)
        self._pausing, self._thread = False, None
        if not self._open:
            self._stop()

    def after_in_parent(self) -> None:
        """Not at once: Python 3.13 looks for threads after this."""
        if self._open:
            afterwards(self._resume)

    def after_in_child(self) -> None:
        """The process is the parent's: only our ends of its pipes are closed."""
        if self._helper is not None:
            self._helper.leave()
        if self._wake >= 0:
            os.close(self._wake)
        self._reset()


def _load(work: Work, result: Compiled | str) -> None:
    try:
        if isinstance(result, Compiled) and result.milliseconds:
            work.variants.keep(work.layouts, result, whole=True)
        work.done(result)
    except Exception as e:  # reported like any other failure, to whoever asked
        work.done(f"{type(e).__name__}: {e}")


def _require_main_thread() -> None:
    if not threading.main_thread().is_alive():
        raise Ended


compilations = Compilations()
at_fork(
    before=compilations.before_fork,
    after_in_parent=compilations.after_in_parent,
    after_in_child=compilations.after_in_child,
)
