# SPDX-License-Identifier: Apache-2.0
"""Compiled -> `CudaKernel`: its host half here, its functions on every device that it is called on.

A call enqueues what the kernel does on the caller's stream and returns. It waits for nothing, and
allocates nothing once a stream's scratch memory is large enough. A graph may capture it: what it
needs then is the graph's.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tcsym.errors import TCError
from tcsym.ir.archive import SYMBOL
from tcsym.ir.compiled import Compiled, Fault
from tcsym.process.config import SYNC
from tcsym.runtime.cuda.driver import Module, driver_error, relaxed, wait
from tcsym.runtime.cuda.primary import Primary, primary
from tcsym.runtime.jit import WholeKernel
from tcsym.runtime.loader import load_archive
from tcsym.runtime.memory import c_function
from tcsym.runtime.native import DRIVER_ERROR, native
from tcsym.runtime.view import HERE, Place
from tcsym.target.machine import least_recorded

if TYPE_CHECKING:
    from tcsym.runtime._native import Entry, Grids
    from tcsym.runtime.entering import EntryImage, Failed, Slow

_NUMBER_BYTES = 8


class Placed:
    """A kernel on one device."""

    def __init__(self, compiled: Compiled, number: int, error_of: Callable[[int], TCError]) -> None:
        self.primary = place = primary(number)
        with place, relaxed():
            module = Module(compiled.device_code)
            names, most = compiled.device_functions, place.shared_bytes
            functions = tuple([module.function(name, most) for name in names])
        self.word = place.faults.take(error_of)
        shape = functions, len(compiled.sizes), len(compiled.arguments)
        given = place.handle, *place.faults.addresses(self.word), number
        self.grids = native.Grids(*given, place.multiprocessors, least_recorded(), *shape)
        # Not at exit: the driver may be gone before.
        weakref.finalize(self, _unload, place, module, self.grids).atexit = False


def _unload(place: Primary, module: Module, grids: Grids) -> None:
    with place:
        grids.forget()
        module.unload()


class CudaKernel(WholeKernel):
    """Code of one variant. Safe to run from several threads at once."""

    def __init__(self, compiled: Compiled, fault_error: Callable[[Fault], TCError]) -> None:
        super().__init__(compiled)
        self._image = load_archive(compiled.object_code, c_function)
        self.address = self._image.address(SYMBOL)
        faults = compiled.faults
        self._error_of = lambda fault: fault_error(faults[fault - 1])
        self._placed: dict[int, Placed] = {}
        self._placing = threading.Lock()

    def run(
        self,
        data_pointers: Sequence[int],
        sizes: Sequence[int],
        threads: int,
        place: Place = HERE,
    ) -> int:
        """Enqueues the kernel where `place` says: 0, or 1 + the index of a fault, if it waited.

        Raises what an earlier call is found to have met on the device.
        """
        placed = self.placed(place.number)
        faults, stream = placed.primary.faults, place.stream
        # with room for numbers behind, which native entries write there
        n_bytes = self.byte_counts(tuple(sizes), threads)[0]
        n_bytes += _NUMBER_BYTES * (1 + len(self.compiled.arguments))
        faults.raise_found()
        pool = placed.primary.pool(stream)
        scratch = pool.lease(n_bytes)
        given = self._pack_buffers(*data_pointers), self._pack_sizes(*sizes)
        result = placed.grids.enqueue(self.address, *given, scratch.pointer, stream)
        if result <= DRIVER_ERROR:
            raise driver_error(DRIVER_ERROR - result, "a kernel cannot be launched")
        if pool.is_captured:
            return result  # a graph's launch is not waited for here
        placed.grids.lend(stream, scratch, scratch.pointer, n_bytes)
        if not result and SYNC.read():
            with placed.primary:
                wait(stream)
            result = faults.found(placed.word)
        return result

    def launcher(self, place: Place) -> Grids:
        return self.placed(place.number).grids

    def placed(self, number: int) -> Placed:
        """The kernel on a device, loaded when it is first called there."""
        found = self._placed.get(number)
        if found is None:
            with self._placing:
                found = self._placed.get(number)
                if found is None:
                    found = Placed(self.compiled, number, self._error_of)
                    self._placed[number] = found
        return found

    def enter(self, image: EntryImage, slow: Slow, failed: Failed) -> Entry:
        """A native way in for arrays on the first device that called, see `KernelCode.enter`."""
        from tcsym.runtime.entering import load_entry

        placed = next(iter(self._placed.values()))
        return load_entry(image, self, slow, failed, placed.grids)
