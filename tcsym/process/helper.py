# SPDX-License-Identifier: Apache-2.0
"""Other processes of Python that work for this one: how they are started, spoken to and ended.

They import what this one does, from where it does, but nothing from the current folder, which may
be anybody's: a file `json.py` there is not to run because a kernel was called there.

Messages are pickles behind their lengths, on standard input and output: a function with its
arguments, then what it returned or raised. A helper ends with its input.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tcsym.process.recursion import OWN_LIMIT
from tcsym.process.system import is_macos

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_HEADER = struct.Struct("<Q")
_READ_BYTES = 1 << 20
START_SECONDS = 120.0
_POLL_SECONDS = 0.05
Answer = tuple[bool, Any]  # True and a result, or False and an exception


class HelperError(Exception):
    """A helper did not live to answer; the text says why."""


class HelperTimeout(HelperError, TimeoutError):
    """A helper took too long."""


# ---- this side


def request(function: Callable[..., object], *args: object, share: float = 1.0) -> bytes:
    """What to send. The function must be importable; all must pickle.

    share: of a core, over the time of this request and the next.
    """
    return _framed((function, args, share))


class Helper:
    """One process. preload: a module that takes longer to load than most requests take.

    memory: bytes of address space beyond what it has when it gets its first request; 0: any.
    """

    def __init__(self, preload: str, memory: int = 0, niceness: int = 0) -> None:
        code = f"from tcsym.process.helper import serve; serve{preload, memory, niceness}"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # a child of a fork closes its ends, and sends nothing with that
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_folders())},
            start_new_session=True,  # Ctrl-C is for this process
        )
        self._received = bytearray()
        self._is_ready = False

    def send(self, message: bytes) -> None:
        """Errors: HelperError."""
        assert self.process.stdin is not None
        left = memoryview(message)
        try:
            while left:
                left = left[self.process.stdin.write(left) :]
        except BrokenPipeError:
            raise HelperError(self._how_it_ended()) from None

    def begin(self, look: Callable[[], None] | None = None, wake: int = -1) -> None:
        """Wait until it takes requests, as for an answer."""
        if not self._is_ready:
            self._message(START_SECONDS, look, wake)
            self._is_ready = True

    def answer(
        self, timeout: float, look: Callable[[], None] | None = None, wake: int = -1
    ) -> Answer:
        """Of the first request without one. Errors: HelperError, HelperTimeout.

        look: called now and then, and when there is something to read from `wake`; what it raises
        ends the waiting, which may go on later.
        """
        self.begin(look, wake)
        found: Answer = pickle.loads(self._message(timeout, look, wake))
        return found

    def _message(self, timeout: float, look: Callable[[], None] | None, wake: int) -> bytes:
        assert self.process.stdout is not None
        stream, until = self.process.stdout.fileno(), time.monotonic() + timeout
        while (end := self._end()) > len(self._received):
            left = max(0.0, until - time.monotonic())
            if look is not None:
                look()
                left = min(left, _POLL_SECONDS)
            ready, _, _ = select.select([stream, wake] if wake >= 0 else [stream], [], [], left)
            if stream in ready:
                part = os.read(stream, min(_READ_BYTES, end - len(self._received)))
                if not part:
                    raise HelperError(self._how_it_ended())
                self._received += part
            elif time.monotonic() >= until:
                raise HelperTimeout(f"took more than {timeout:g} s")
        message = bytes(self._received[_HEADER.size :])
        self._received.clear()
        return message

    def _end(self) -> int:
        """Bytes of what is being received, as far as known."""
        if len(self._received) < _HEADER.size:
            return _HEADER.size
        (length,) = _HEADER.unpack_from(self._received)
        return _HEADER.size + int(length)

    def _how_it_ended(self) -> str:
        code = self.process.wait()
        if code >= 0:
            return f"ended with exit code {code}"
        return f"crashed with {signal.Signals(-code).name}"

    def end(self) -> None:
        """For another thread than the one that speaks to it, which sees that it ended."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def kill(self) -> None:
        self.end()
        self.process.wait()
        self._close()

    def leave(self) -> None:
        """In the child of a fork: it is the parent's, and nobody waits for it here."""
        self._close()
        self.process.returncode = 0

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


def _folders() -> list[str]:
    """Where this process imports from, but for the current folder; if that is ours, it is last."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it exists no more
        here = ""
    found = [os.path.abspath(p) for p in sys.path if os.path.isabs(p) or (p and here)]
    found = [p for p in found if os.path.realpath(p) != here]
    return found if _ROOT in found else [*found, _ROOT]


# ---- the other side


def serve(preload: str, memory: int, niceness: int) -> None:
    """Answer requests until there are no more. Whatever one raises is its answer."""
    os.nice(niceness)
    sys.setrecursionlimit(OWN_LIMIT)
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not reach the answers
    importlib.import_module(preload)
    _say(sink, (True, None))
    while header := source.read(_HEADER.size):
        function, args, share = pickle.loads(source.read(*_HEADER.unpack(header)))
        if memory:
            _limit_memory(memory)
            memory = 0
        start = time.process_time()
        _say(sink, _result(function, args))
        time.sleep((time.process_time() - start) * (1 / share - 1))


def _result(function: Any, args: Any) -> Answer:
    try:
        return True, function(*args)
    except Exception as error:
        return False, error


def _say(sink: Any, answer: Answer) -> None:
    try:
        message = _framed(answer)
        pickle.loads(message[_HEADER.size :])
    except Exception as error:
        message = _framed((False, RuntimeError(f"answer that does not pickle: {error}")))
    sink.write(message)
    sink.flush()


def _framed(content: object) -> bytes:
    message = pickle.dumps(content)
    return _HEADER.pack(len(message)) + message


def _limit_memory(beyond: int) -> None:
    """Once the request's modules are loaded: LLVM alone reserves a lot of address space.

    macOS keeps no such limit.
    """
    if is_macos():  # macOS: never run
        return
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + beyond, most))
