# SPDX-License-Identifier: Apache-2.0
"""A pool of worker processes that survives what candidates do: crash, hang, eat memory.

An executor as in `concurrent.futures`, so that another (a cluster's) can take its place. A job that
kills its worker or takes too long fails alone, with the reason; the next job gets a new worker.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from tcsym.process.helper import Helper, HelperError, request

P = ParamSpec("P")
T = TypeVar("T")
_Job = tuple["Future[Any]", bytes]


class WorkerPool(Executor):
    """`n_workers` processes; a job may take `timeout` seconds and its worker `memory` bytes."""

    def __init__(
        self, n_workers: int = 1, timeout: float = 60.0, memory: int | None = None
    ) -> None:
        self.timeout = timeout
        self.memory = memory
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._running: set[Helper] = set()
        self._is_killed = False
        self._threads = [
            threading.Thread(target=self._serve, daemon=True) for _ in range(n_workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """`fn` must be importable, its arguments and result must pickle."""
        future: Future[T] = Future()
        self._jobs.put((future, request(partial(fn, *args, **kwargs))))
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
        worker: Helper | None = None
        while (job := self._jobs.get()) is not None:
            future, message = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._begun()
                worker.send(message)
                is_good, value = worker.answer(self.timeout)
            except (HelperError, OSError) as error:
                self._ended(worker)
                worker = None
                future.set_exception(error)
                continue
            if is_good:
                future.set_result(value)
            else:
                future.set_exception(value)
        self._ended(worker)

    def _begun(self) -> Helper:
        worker = Helper("tcsym.tuning.evaluate", self.memory or 0)
        self._running.add(worker)
        if self._is_killed:
            worker.end()
        try:
            worker.begin()
        except HelperError:
            self._ended(worker)
            raise
        return worker

    def _ended(self, worker: Helper | None) -> None:
        if worker is not None:
            worker.kill()
            self._running.discard(worker)
