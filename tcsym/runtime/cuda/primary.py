# SPDX-License-Identifier: Apache-2.0
"""Number of a device -> `Primary`: its primary context, which torch, cupy and jax use, too.

A context that is left current ends the process when pycuda is unloaded. So it is current within
`with primary(number):` alone.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

from tcsym.errors import TargetError
from tcsym.runtime.cuda.driver import Capture, capture_on, note_end, relaxed
from tcsym.runtime.cuda.faults import FaultWords
from tcsym.runtime.cuda.pool import Pool
from tcsym.runtime.native import native
from tcsym.target.devices import driver

Word = ctypes.c_int64
_new_word = ctypes.pythonapi.PyMem_RawCalloc  # never freed: the driver may outlive us
_new_word.restype, _new_word.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
_lock = threading.Lock()
_primaries: dict[int, Primary] = {}


class Primary:
    """Use `with`: the context is current inside.

    handle: the driver's. shared_bytes: most that a block can have. multiprocessors: how many.
    faults: what kernels on the device found.
    """

    def __init__(self, number: int) -> None:
        drv = driver()
        device = drv.Device(number)
        self.number = number
        self._context: Any = device.retain_primary_context()
        self.handle: int = self._context.handle
        limit = drv.device_attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        self._pools: dict[int, Pool] = {}  # by streams
        self._captured: dict[tuple[int, int], tuple[Pool, Word]] = {}  # by captures and streams
        self.shared_bytes = int(device.get_attribute(limit))
        count = drv.device_attribute.MULTIPROCESSOR_COUNT
        self.multiprocessors = int(device.get_attribute(count))
        with self, relaxed():
            self.faults = FaultWords()

    def __enter__(self) -> None:
        self._context.push()

    def __exit__(self, *_: object) -> None:
        self._context.pop()

    def allocate(self, n_bytes: int) -> Memory:
        """Memory of the device, freed with the object."""
        drv, where = driver(), f"no {n_bytes} bytes on device {self.number}"
        with self, relaxed():
            for is_last in (False, True):
                try:
                    return Memory(self, drv.mem_alloc(max(1, n_bytes)))
                except drv.MemoryError:
                    if is_last:
                        break
                    for pool in tuple(self._pools.values()):
                        pool.release()
                except drv.Error as error:
                    raise TargetError(f"{where}: {error}") from None
        raise MemoryError(where)

    def free(self, allocation: Any) -> None:
        """In whatever thread: pycuda itself frees in the one alone where the context was made."""
        with self, relaxed():
            allocation.free()

    def pool(self, stream: int) -> Pool:
        """Memory for what a call does on a stream, or for the graph that is captured there."""
        capture = capture_on(stream)
        if capture is not None:
            return self._pool_of_graph(capture, stream)
        return self._pools.get(stream) or self._pools.setdefault(stream, Pool(self.allocate))

    def _pool_of_graph(self, capture: Capture, stream: int) -> Pool:
        """It ends with the graph: what has ended is freed when another one is captured."""
        key = capture.number, stream
        with _lock:
            if key not in self._captured:
                for other, (_, ended) in tuple(self._captured.items()):
                    if ended.value:
                        del self._captured[other]
                word = Word.from_address(_new_word(1, ctypes.sizeof(Word)))
                note_end(capture.graph, ctypes.addressof(word), native.mark)
                self._captured[key] = Pool(self.allocate, is_captured=True), word
            return self._captured[key][0]

    def synchronize(self) -> None:
        """Until all that was begun on the device is done."""
        with self:
            driver().Context.synchronize()


class Memory:
    """Memory of a device at `pointer`."""

    def __init__(self, place: Primary, allocation: Any) -> None:
        self.pointer = int(allocation)
        weakref.finalize(self, place.free, allocation)


def primary(number: int) -> Primary:
    """Of a device; the same each time."""
    found = _primaries.get(number)
    if found is None:
        with _lock:
            found = _primaries.get(number)
            if found is None:
                found = _primaries[number] = Primary(number)
    return found


def used() -> tuple[Primary, ...]:
    """Of all devices on which something of ours ran."""
    return tuple(_primaries.values())
