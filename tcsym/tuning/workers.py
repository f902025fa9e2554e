"""A pool of worker processes that survives what candidates do: crash, hang, eat memory.

An executor as in `concurrent.futures`, so that another (a cluster's) can take its place. A job that
kills its worker or takes too long fails alone, with the reason; the next job gets a new worker.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import select
import signal
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from tcsym.process.helper import send, start_python

P = ParamSpec("P")
T = TypeVar("T")
HEADER = struct.Struct("<Q")
READY = b"ready"
_READ_BYTES = 1 << 20
_START_SECONDS = 120.0
_Job = tuple["Future[Any]", bytes]


class WorkerError(Exception):
    """A worker did not live to answer; the text says why."""


class WorkerTimeout(WorkerError, TimeoutError):
    """A worker took too long."""


class WorkerPool(Executor):
    """`n_workers` processes; a job may take `timeout` seconds and its worker `memory` bytes."""

    def __init__(
        self, n_workers: int = 1, timeout: float = 60.0, memory: int | None = None
    ) -> None:
        self.timeout = timeout
        self.memory = memory
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._running: set[_Worker] = set()
        self._is_killed = False
        self._threads = [
            threading.Thread(target=self._serve, daemon=True) for _ in range(n_workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """`fn` must be importable, its arguments and result must pickle."""
        future: Future[T] = Future()
        self._jobs.put((future, pickle.dumps((fn, args, kwargs))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            with contextlib.suppress(queue.Empty):
                while (job := self._jobs.get_nowait()) is not None:
                    job[0].cancel()
        for _ in self._threads:
            self._jobs.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def kill(self) -> None:
        """End at once, whatever the workers are doing; jobs that run fail."""
        self._is_killed = True
        for worker in tuple(self._running):
            worker.end()
        self.shutdown(wait=True, cancel_futures=True)

    def _serve(self) -> None:
        """One worker's life, and its successors'."""
        worker: _Worker | None = None
        while (job := self._jobs.get()) is not None:
            future, message = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._begun()
                is_good, value = worker.ask(message, self.timeout)
            except (WorkerError, OSError) as error:
                self._ended(worker)
                worker = None
                future.set_exception(error)
                continue
            if is_good:
                future.set_result(value)
            else:
                future.set_exception(value)
        self._ended(worker)

    def _begun(self) -> _Worker:
        worker = _Worker(self.memory)
        self._running.add(worker)
        if self._is_killed:
            worker.end()
        try:
            worker.begin()
        except WorkerError:
            self._ended(worker)
            raise
        return worker

    def _ended(self, worker: _Worker | None) -> None:
        if worker is not None:
            worker.kill()
            self._running.discard(worker)


class _Worker:
    """One process of `tcsym.tuning.worker`, spoken to in length-prefixed pickles."""

    def __init__(self, memory: int | None) -> None:
        self.process = start_python(
            "tcsym.tuning.worker",
            str(memory or 0),
            new_session=True,  # Ctrl-C is for the tuner
        )

    def begin(self) -> None:
        """Wait until it takes jobs. WorkerError: it did not get so far."""
        self._read(len(READY), time.monotonic() + _START_SECONDS, _START_SECONDS)

    def ask(self, message: bytes, timeout: float) -> tuple[bool, Any]:
        """(True, result) or (False, exception). WorkerError: it crashed, or took too long."""
        assert self.process.stdin is not None
        deadline = time.monotonic() + timeout
        try:
            send(self.process, HEADER.pack(len(message)) + message)
        except BrokenPipeError:
            raise WorkerError(self._how_it_ended()) from None
        (length,) = HEADER.unpack(self._read(HEADER.size, deadline, timeout))
        answer: tuple[bool, Any] = pickle.loads(self._read(length, deadline, timeout))
        return answer

    def _read(self, n: int, deadline: float, timeout: float) -> bytes:
        assert self.process.stdout is not None
        stream = self.process.stdout.fileno()
        content = b""
        while len(content) < n:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([stream], [], [], left)[0]:
                raise WorkerTimeout(f"took more than {timeout:g} s")
            part = os.read(stream, min(_READ_BYTES, n - len(content)))
            if not part:
                raise WorkerError(self._how_it_ended())
            content += part
        return content

    def _how_it_ended(self) -> str:
        code = self.process.wait()
        if code >= 0:
            return f"ended with exit code {code}"
        return f"crashed with {signal.Signals(-code).name}"

    def end(self) -> None:
        """For another thread than the one that speaks to it, which sees that it ended."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def kill(self) -> None:
        self.end()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
