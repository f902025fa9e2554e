# SPDX-License-Identifier: Apache-2.0
"""Calls of a program -> a trace of kernels, sizes, counts and times, as JSON lines.

`tcsym.recorded` reads traces; `tcsym tune TRACE` tunes for them. While nothing is recorded, calls
do not pass through here at all.

Lines are of two kinds: a def that was called (its text), and calls of it at one choice of sizes.
Later lines for the same sizes add to earlier ones, so several processes may write to one file.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tcsym.kernel.registry import enter_through
from tcsym.process.config import RECORD
from tcsym.process.forks import at_fork

if TYPE_CHECKING:
    import logging

    from tcsym.kernel.kernel import Kernel
    from tcsym.sizes.region import Region

_FLUSH_SECONDS = 10.0
Sizes = tuple[int, ...]


class _Calls(Struct):
    """Calls of one kernel at one choice of sizes since the last line about them."""

    default_options: bool
    count: int = 0
    seconds: float = 0.0


class Recorder(Struct, eq=False):
    """One trace being written. Lines are appended whole; a fork's child writes its own calls."""

    path: str
    calls: dict[tuple[str, str, tuple[str, ...], Sizes], _Calls] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    flushed: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, kernel: Kernel, sizes: Sizes, seconds: float, region: Region) -> None:
        """One call was served."""
        program = kernel.program
        key = (program.name, program.canonical, program.sizes, sizes)
        default = region.origin == "analytic"
        with self.lock:
            if key[:2] not in self.texts:
                self.texts[key[:2]] = _text_line(kernel)
                self._append([self.texts[key[:2]]])
            calls = self.calls.setdefault(key, _Calls(default))
            calls.count += 1
            calls.seconds += seconds
            due = time.monotonic() - self.flushed > _FLUSH_SECONDS
        if default:
            _warn_once(kernel, sizes, region, self.path)
        if due:
            self.flush()

    def flush(self) -> None:
        """Write what was noted since the last time."""
        with self.lock:
            lines = [_calls_line(*key, calls) for key, calls in self.calls.items()]
            self.calls.clear()
            self.flushed = time.monotonic()
            self._append(lines)

    def _append(self, lines: list[str]) -> None:
        if not lines:
            return
        try:
            with open(self.path, "ab", buffering=0) as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
        except OSError as e:
            _log().warning("cannot write the trace %s: %s", self.path, e)


def _log() -> logging.Logger:
    import logging  # not needed by most processes

    return logging.getLogger("tcsym.record")


def _text_line(kernel: Kernel) -> str:
    import json  # not needed by most processes

    program, target = kernel.program, kernel.settings.target
    return json.dumps(
        {
            "kernel": program.name,
            "program": program.canonical,
            "source": program.source,
            "filename": program.filename,
            "target": target if isinstance(target, str) else getattr(target, "name", "cpu"),
        }
    )


def _calls_line(
    name: str, canonical: str, names: tuple[str, ...], sizes: Sizes, calls: _Calls
) -> str:
    import json

    return json.dumps(
        {
            "kernel": name,
            "program": canonical,
            "sizes": dict(zip(names, sizes)),
            "calls": calls.count,
            "seconds": calls.seconds,
            "default_options": calls.default_options,
        }
    )


# ---- warnings

_warned: set[tuple[str, Region]] = set()


def _warn_once(kernel: Kernel, sizes: Sizes, region: Region, path: str) -> None:
    """One warning for each kernel and region that runs with options nobody tuned."""
    program = kernel.program
    if (program.canonical, region) in _warned:
        return
    _warned.add((program.canonical, region))
    values = dict(zip(program.sizes, sizes))
    told = ", ".join(f"{n}={v}" for n, v in values.items()) or "no sizes"
    facts = {"kernel": program.name, "program": program.canonical, "sizes": values}
    _log().warning(
        "`%s` runs with default options (first at %s); `tcsym tune %s` finds better ones",
        program.name,
        told,
        path,
        extra={"tcsym": facts},
    )


# ---- what is being recorded

_active: list[Recorder] = []
_lock = threading.RLock()


def active() -> tuple[Recorder, ...]:
    return tuple(_active)


@contextlib.contextmanager
def record(path: str | os.PathLike[str]) -> Iterator[None]:
    """Note in the file `path` all calls of kernels made meanwhile, in every thread.

    `tcsym tune PATH` tunes for them. Lines are appended. Calls that raise are not noted. Example:

        with tcsym.record("trace.jsonl"):
            serve()
    """
    recorder = Recorder(os.fspath(path))
    _begin(recorder)
    try:
        yield
    finally:
        with _lock:
            _active.remove(recorder)
            if not _active:
                enter_through(None)
        recorder.flush()


def _begin(recorder: Recorder) -> None:
    with _lock:
        _active.append(recorder)
        enter_through(timed_call)


@atexit.register
def _flush_all() -> None:
    for recorder in active():
        recorder.flush()


def _forget_calls() -> None:
    """In a fork's child: what was noted before is the parent's to write."""
    global _lock
    _lock = threading.RLock()
    for recorder in _active:
        recorder.lock = threading.Lock()
        recorder.calls.clear()


at_fork(after_in_child=_forget_calls)


def timed_call(kernel: Kernel, entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `entry` and note it, if it does not raise."""
    start = time.perf_counter()
    result = entry(*args, **kwargs)
    seconds = time.perf_counter() - start
    serving = kernel._serving
    sizes = serving.sizes_of(args, kwargs)
    region = serving.dispatcher.making.region_of(sizes)
    for recorder in active():
        recorder.note(kernel, sizes, seconds, region)
    return result


if (_path := RECORD.read()) is not None:
    _begin(Recorder(_path))
