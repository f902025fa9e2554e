"""Number of a device -> `Primary`: its primary context, which torch, cupy and jax use, too.

A context that is left current ends the process when pycuda is unloaded. So it is current within
`with primary(number):` alone.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from tcsym.errors import TargetError
from tcsym.runtime.cuda.faults import FaultWords
from tcsym.runtime.cuda.pool import ResultPool
from tcsym.target.devices import driver

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
        self._pools: dict[int, ResultPool] = {}
        self.shared_bytes = int(device.get_attribute(limit))
        count = drv.device_attribute.MULTIPROCESSOR_COUNT
        self.multiprocessors = int(device.get_attribute(count))
        with self:
            self.faults = FaultWords()

    def __enter__(self) -> None:
        self._context.push()

    def __exit__(self, *_: object) -> None:
        self._context.pop()

    def allocate(self, n_bytes: int) -> Memory:
        """Memory of the device, freed with the object."""
        drv = driver()
        with self:
            try:
                return Memory(self, drv.mem_alloc(max(1, n_bytes)))
            except drv.MemoryError:
                for pool in tuple(self._pools.values()):
                    pool.release()
            except drv.Error as error:
                hint = "before a graph captures a kernel, call it once with the same sizes"
                why = f"no {n_bytes} bytes on device {self.number}: {error}"
                raise TargetError(why, hint=hint) from None
            try:
                return Memory(self, drv.mem_alloc(max(1, n_bytes)))
            except drv.MemoryError:
                raise MemoryError(f"no {n_bytes} bytes on device {self.number}") from None

    def free(self, allocation: Any) -> None:
        """In whatever thread: pycuda itself frees in the one alone where the context was made."""
        with self:
            allocation.free()

    def pool(self, stream: int) -> ResultPool:
        """Memory for results on a stream."""
        return self._pools.get(stream) or self._pools.setdefault(stream, ResultPool(self.allocate))

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
