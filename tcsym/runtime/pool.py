# SPDX-License-Identifier: Apache-2.0
"""The process's worker pool: which threads run the tasks of `parallel_for`.

If an OpenMP run time is loaded (torch's libgomp, say), its threads are used, so that two pools do
not fight for the processors; else own threads, started on demand, that spin shortly, then sleep.
Spinning threads start within a microsecond, sleeping ones take twenty and more: short loops wake
them only where many follow each other closely (`useful_tasks` in tcsym/native/pool.c).
The pool's memory reads as zeros in a forked child, which is a fresh pool without OpenMP: libgomp
hangs in children of a process that used it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
from _thread import allocate_lock  # importing threading takes a millisecond

from tcsym.process.forks import at_fork
from tcsym.process.threads import available_cores
from tcsym.runtime.native import native

_OPENMP_NAMES = ("libgomp", "libiomp5", "libomp")  # the first found is used
_OPENMP_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_OPENMP_SPIN = 2_000_000  # cycles that its threads spin at least, unless they are told not to
_libraries: list[ctypes.CDLL] = []  # keeps the OpenMP run time loaded
_lock = allocate_lock()


class Pool:
    """Workers of this process. `address` is the first argument of `parallel_for`."""

    def __init__(self) -> None:
        self.native = native.Pool()
        self.address = self.native.address
        self.openmp: str | None = None
        self._modules_seen = -1
        self._cores = available_cores()
        if not self.native.wipe_on_fork():
            at_fork(after_in_child=self.native.forget)
        # Idle threads could do no harm, but Python warns whoever forks with any.
        at_fork(before=self.stop, after_in_child=self._forget_openmp)
        atexit.register(self.stop)

    @property
    def workers(self) -> int:
        """Own threads started so far."""
        return self.native.workers

    def prepare(self, threads: int) -> None:
        """To be called before a run: more threads than processors had better not spin."""
        self.native.be_patient(threads > self._cores)

    def adopt_openmp(self) -> None:
        """Uses the OpenMP run time of the process, if one was loaded by now."""
        if self.openmp is not None or len(sys.modules) == self._modules_seen:
            return
        self._modules_seen = len(sys.modules)
        path = loaded_openmp()
        if path is not None:
            self._use_openmp(path)

    def stop(self) -> None:
        """Ends own threads, unless they are running tasks; the next use starts new ones."""
        self.native.stop()

    def _use_openmp(self, path: str) -> None:
        try:
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            functions = [ctypes.cast(library[n], ctypes.c_void_p).value for n in _OPENMP_FUNCTIONS]
        except (OSError, AttributeError):
            return
        _libraries.append(library)
        passive = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
        parallel, thread, threads = [address or 0 for address in functions]
        self.native.use_openmp(parallel, thread, threads, 0 if passive else _OPENMP_SPIN)
        self.openmp = path

    def _forget_openmp(self) -> None:
        self.openmp = None
        self._modules_seen = len(sys.modules)


_pools: list[Pool] = []


def process_pool() -> Pool:
    """The pool of this process."""
    if not _pools:
        with _lock:
            if not _pools:
                _pools.append(Pool())
    return _pools[0]


def loaded_openmp() -> str | None:
    """Path of the OpenMP run time loaded in this process."""
    try:
        with open("/proc/self/maps") as file:
            maps = file.read()
    except OSError:
        return None
    if "omp" not in maps:  # compiling the pattern takes as long as reading the file
        return None
    paths: dict[str, None] = dict.fromkeys(
        re.findall(r"/\S*/lib(?:gomp|iomp5|omp)[-.\w]*\.so[.\d]*$", maps, re.M)
    )
    for name in _OPENMP_NAMES:
        for path in paths:
            if os.path.basename(path).startswith(name):
                return path
    return None
