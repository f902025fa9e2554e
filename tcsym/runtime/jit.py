# SPDX-License-Identifier: Apache-2.0
"""Compiled -> LoadedKernel: machine code in memory, ready to be called."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Self

from tcsym.errors import TargetError
from tcsym.ir.compiled import Compiled
from tcsym.runtime.arena import private_stride
from tcsym.runtime.kernel_code import KernelCode
from tcsym.runtime.native import ARENA_BUSY, OUT_OF_MEMORY, SIMT_FAULT, native
from tcsym.runtime.size_functions import shapes_of
from tcsym.runtime.view import HERE, Place

_MOST_BYTES = 2**46  # of address space; above it no allocation can succeed


class WholeKernel:
    """What is known of a variant whose code is all there, as opposed to a `GrowingKernel`."""

    is_whole = True

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self._pack_buffers = struct.Struct(f"{len(compiled.arguments)}Q").pack
        self._pack_sizes = struct.Struct(f"{len(compiled.sizes)}q").pack
        counts = compiled.shared_bytes, compiled.private_bytes
        self._bytes_of = shapes_of([counts], compiled.sizes)
        self._counted: tuple[Sequence[int], tuple[int, int]] | None = None

    def byte_counts(self, sizes: tuple[int, ...], threads: int) -> tuple[int, int]:
        """Bytes of the shared scratch memory, and of each task's private part."""
        counted = self._counted  # of the last sizes, which mostly come again
        if counted is None or counted[0] != sizes:
            ((shared, private),) = self._bytes_of(*sizes)
            counted = sizes, (max(0, shared), private_stride(max(0, private)))
            self._counted = counted
        shared, private = counted[1]
        if shared + private * threads > _MOST_BYTES:
            raise MemoryError(f"no {shared + private * threads} bytes of scratch memory")
        return shared, private

    def whole(self) -> Self:
        """The kernel with all of its code: this one (see `runtime.growing`)."""
        return self

    grown = whole

    def ready(self, sizes: Sequence[int]) -> Self:
        """A kernel that has what calls of these sizes launch: this one."""
        return self


class LoadedKernel(WholeKernel, KernelCode):
    """Machine code of one variant. Safe to run from several threads at once."""

    def __init__(self, compiled: Compiled) -> None:
        WholeKernel.__init__(self, compiled)
        KernelCode.__init__(self, compiled.object_code)

    def run(
        self,
        data_pointers: Sequence[int],
        sizes: Sequence[int],
        threads: int,
        place: Place = HERE,
    ) -> int:
        """Runs the kernel on arguments and sizes in the variant's order, on at most `threads`.

        Returns 0, or 1 + the index in `compiled.faults`. MemoryError if there is no room for
        the scratch memory. Python's lock is released meanwhile.
        """
        shared, private = self.byte_counts(tuple(sizes), threads)
        pool = self._pool
        pool.prepare(threads)
        rest = (shared, private, threads, pool.native)
        code, buffers = self.address, self._pack_buffers(*data_pointers)
        values = self._pack_sizes(*sizes)
        result = native.launch(code, buffers, values, self.arenas.main, *rest)
        if result == ARENA_BUSY:
            arena = self.arenas.take()
            result = native.launch(code, buffers, values, arena, *rest)
            self.arenas.give_back(arena)
        require_run(result, shared + private * threads)
        return result

    def launcher(self, place: Place) -> None:
        """None: it runs here."""


def require_run(result: int, scratch_bytes: int) -> None:
    """MemoryError, or TargetError, for what a launch says of these."""
    if result == OUT_OF_MEMORY:
        raise MemoryError(f"no {scratch_bytes} bytes of scratch memory")
    if result == SIMT_FAULT:
        what = f"a device would not run this kernel so: {native.simt_report()}"
        raise TargetError(what, hint="please report the text and the sizes")


def load(compiled: Compiled) -> LoadedKernel:
    """Machine code of the variant, loaded; its pages are freed with the result."""
    return LoadedKernel(compiled)
