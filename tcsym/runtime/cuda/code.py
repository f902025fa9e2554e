"""Compiled -> `CudaKernel`: its host half here, its functions on every device that it is called on.

A call enqueues what the kernel does on the caller's stream and returns. It waits for nothing and
allocates nothing once a stream's scratch memory is large enough, so that graphs can capture it.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tcsym.errors import TCError
from tcsym.ir.archive import SYMBOL
from tcsym.ir.compiled import Compiled, Fault
from tcsym.process.config import SYNC
from tcsym.runtime.cuda.driver import (
    LAUNCHES,
    WRITES,
    Module,
    address,
    driver_error,
    functions_of,
    wait,
)
from tcsym.runtime.cuda.primary import Memory, Primary, primary
from tcsym.runtime.loader import load_archive
from tcsym.runtime.memory import c_function
from tcsym.runtime.native import DRIVER_ERROR, native
from tcsym.runtime.size_functions import shapes_of
from tcsym.runtime.view import HERE, Place

if TYPE_CHECKING:
    from tcsym.runtime._native import Entry
    from tcsym.runtime.entering import EntryImage, Failed, Slow

_NUMBER_BYTES = 8
_MOST_BYTES = 2**46  # of address space; above it no allocation can succeed


class Scratch:
    """Memory of the device for one call at a time, on one stream; it only grows.

    What it had before stays, as a captured graph may go on using it; each time it doubles at least.
    """

    def __init__(self, place: Primary) -> None:
        self._primary = place
        self._blocks: list[Memory] = []
        self.bytes = 0
        self.pointer = 0

    def reserve(self, n_bytes: int) -> int:
        """Its address, once it has that many bytes."""
        if n_bytes > self.bytes:
            size = max(n_bytes, 2 * self.bytes)
            self._blocks.append(self._primary.allocate(size))
            self.bytes, self.pointer = size, self._blocks[-1].pointer
        return self.pointer


class Placed:
    """A kernel on one device. Scratch memory is a stream's: calls on it follow each other."""

    def __init__(self, compiled: Compiled, number: int, error_of: Callable[[int], TCError]) -> None:
        self.primary = primary(number)
        with self.primary:
            module = Module(compiled.device_code)
            most = self.primary.shared_bytes
            functions = functions_of(module, compiled.device_functions, most)
        self.word = self.primary.faults.take(error_of)
        push, pop = address("cuCtxPushCurrent_v2"), address("cuCtxPopCurrent_v2")
        launch, write = _three(LAUNCHES), _three(WRITES)
        given = launch, push, pop, write, self.primary.handle, self.word.pointer
        words = self.primary.faults.addresses
        self.grids = native.Grids(*given, *words, number, self.primary.multiprocessors, functions)
        self._free: dict[int, list[Scratch]] = {}
        self._lent: list[Scratch] = []  # to native entries, for good
        # Not at exit: the driver may be gone before.
        weakref.finalize(self, _unload, self.primary, module).atexit = False

    def take(self, stream: int) -> Scratch:
        """For one call (list operations are atomic)."""
        try:
            return self._free.setdefault(stream, []).pop()
        except IndexError:
            return Scratch(self.primary)

    def give_back(self, stream: int, scratch: Scratch) -> None:
        if scratch.bytes and self.grids.lend(stream, scratch.pointer, scratch.bytes):
            self._lent.append(scratch)
        else:
            self._free[stream].append(scratch)


def _three(names: tuple[str, str, str]) -> tuple[int, int, int]:
    first, second, third = names
    return address(first), address(second), address(third)


def _unload(place: Primary, module: Module) -> None:
    with place:
        module.unload()


class CudaKernel:
    """Code of one variant. Safe to run from several threads at once."""

    is_whole = True

    def __init__(self, compiled: Compiled, fault_error: Callable[[Fault], TCError]) -> None:
        self.compiled = compiled
        self._image = load_archive(compiled.object_code, c_function)
        self.address = self._image.address(SYMBOL)
        self._pack_buffers = struct.Struct(f"{len(compiled.arguments)}Q").pack
        self._pack_sizes = struct.Struct(f"{len(compiled.sizes)}q").pack
        self._bytes_of = shapes_of([(compiled.shared_bytes,)], compiled.sizes)
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
        faults.raise_found()
        scratch = placed.take(stream)
        try:
            arena = scratch.reserve(self._scratch_bytes(sizes))
            given = self._pack_buffers(*data_pointers), self._pack_sizes(*sizes)
            result = placed.grids.enqueue(self.address, *given, arena, stream)
        finally:
            placed.give_back(stream, scratch)
        if result <= DRIVER_ERROR:
            raise driver_error(DRIVER_ERROR - result, "a kernel cannot be launched")
        if not result and SYNC.read():
            with placed.primary:
                wait(stream)
            result = faults.found(placed.word)
        return result

    def _scratch_bytes(self, sizes: Sequence[int]) -> int:
        """With room for numbers behind, which native entries write there."""
        ((n_bytes,),) = self._bytes_of(*sizes)
        if n_bytes > _MOST_BYTES:
            raise MemoryError(f"no {n_bytes} bytes of scratch memory")
        return max(0, n_bytes) + _NUMBER_BYTES * (1 + len(self.compiled.arguments))

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

    def whole(self) -> CudaKernel:
        """The kernel with all of its code: this one (see `runtime.growing`)."""
        return self

    grown = whole

    def ready(self, sizes: Sequence[int]) -> CudaKernel:
        """A kernel that has what calls of these sizes launch: this one."""
        return self

    def enter(self, image: EntryImage, slow: Slow, failed: Failed) -> Entry:
        """A native way in for arrays on the first device that called, see `KernelCode.enter`."""
        from tcsym.runtime.entering import load_entry

        placed = next(iter(self._placed.values()))
        return load_entry(image, self, slow, failed, placed.grids)


def load(compiled: Compiled, fault_error: Callable[[Fault], TCError]) -> CudaKernel:
    """Code of the variant; it is put on a device when it is first called there."""
    return CudaKernel(compiled, fault_error)
