# SPDX-License-Identifier: Apache-2.0
"""Work that takes longer than a second -> a line on standard error that says how it gets on.

On a terminal the line is written over itself, and goes when the work ends; so in a notebook, where
the last stays. Where else it is asked for, a line comes now and then. TCSYM_PROGRESS says whether
there is one, where no argument does. Work inside of other work has no line of its own: it is told
in that of the other.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TextIO

from tcsym.process.config import PROGRESS

AFTER = 1.0  # seconds before there is a line
AGAIN = {"terminal": 0.2, "notebook": 1.0, "": 5.0}  # seconds from one to the next
_TICK = 0.2
_WIDTH = 100  # of a line in a notebook
_LEAST_SHARE = 0.02  # from which the time that is left is told

_showing = threading.Lock()  # whoever has the line


class _Here(threading.local):
    work: Progress | None = None


_here = _Here()


class Progress:
    """Work in progress. shown: None means on a terminal and in a notebook, if TCSYM_PROGRESS does
    not say otherwise.

    clock, stream: of tests. detail: what is done at the moment, which is told where no state is.
    """

    def __init__(
        self,
        title: str,
        shown: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
        stream: TextIO | None = None,
    ) -> None:
        self.title = title
        self._state, self._inner, self.detail = "", "", ""
        self._share: float | None = None
        self._clock = clock
        self._stream = sys.stderr if stream is None else stream
        self._place = _place_of(self._stream)
        given = PROGRESS.read() if shown is None else shown
        self._is_shown = bool(self._place) if given is None else given
        self._began, self._next = 0.0, 0.0
        self._written = 0  # characters of the line that stands
        self._has_line = False
        self._outer: Progress | None = None
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Progress:
        self._began = self._clock()
        self._outer = _here.work
        if self._outer is not None:
            self._outer._inner, self._outer.detail = self.title, ""
            return self
        _here.work = self
        if self._is_shown and self._clock is time.monotonic:
            self._thread = threading.Thread(target=self._run, name="tcsym progress", daemon=True)
            with suppress(RuntimeError):  # no more threads, or the interpreter is ending
                self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._outer is not None:
            self._outer._inner, self._outer.detail = "", ""
            return
        _here.work = None
        self._done.set()
        if self._thread is not None and self._thread.ident:
            self._thread.join()
        self._end()

    def tell(self, state: str, share: float | None = None) -> None:
        """How far it is. share: of all of it, if that is known."""
        self._state, self._share = state, share

    def line(self) -> str:
        """What there is to say now."""
        spent = self._clock() - self._began
        told = [f"{spent:.0f} s"]
        if self._share is not None:
            told.insert(0, f"{100 * self._share:.0f} %")
            if _LEAST_SHARE <= self._share < 1:
                told.append(f"{spent / self._share - spent:.0f} s left")
        state = self._state or ": ".join(filter(None, (self._inner, self.detail)))
        return f"{self.title}: {', '.join(told)}{f'; {state}' if state else ''}"

    def tick(self) -> None:
        """Write the line, if it is time."""
        now = self._clock()
        if not self._is_shown or now < max(self._began + AFTER, self._next):
            return
        self._has_line = self._has_line or _showing.acquire(blocking=False)
        if self._has_line:
            self._next = now + AGAIN[self._place]
            self._write(self.line())

    def _run(self) -> None:
        seconds = AFTER
        while not self._done.wait(seconds):
            self.tick()
            seconds = _TICK

    def _write(self, line: str) -> None:
        if not self._place:
            self._put(f"{line}\n")
            return
        line = line.replace("\n", " ")[: self._width() - 1]
        self._put(f"\r{line}{' ' * (self._written - len(line))}")
        self._written = len(line)

    def _end(self) -> None:
        if self._written and self._place == "notebook":  # else an empty box would stay
            self._state = self._inner = self.detail = ""
            self._share = None
            self._write(self.line())
        elif self._written:
            self._put(f"\r{' ' * self._written}\r")
        if self._has_line:
            _showing.release()
            self._has_line = False

    def _width(self) -> int:
        with suppress(AttributeError, OSError, ValueError):
            return os.get_terminal_size(self._stream.fileno()).columns or _WIDTH
        return _WIDTH

    def _put(self, text: str) -> None:
        if self._stream is not None:
            with suppress(OSError, ValueError):  # it is closed
                self._stream.write(text)
                self._stream.flush()


def tell(detail: str) -> None:
    """What the work that this thread is in does at the moment; nothing where it is in none."""
    if _here.work is not None:
        _here.work.detail = detail


def _place_of(stream: TextIO | None) -> str:
    """Where a line can be written over itself: "terminal", "notebook", or nowhere."""
    if stream is None:
        return ""
    if type(stream).__module__.startswith("ipykernel."):
        return "notebook"
    try:
        is_terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return ""
    return "terminal" if is_terminal else ""
