# SPDX-License-Identifier: Apache-2.0
"""Memory of a session: storages, planned at the bounds or exact, and scratch memory of kernels."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tcsym.errors import OptionError
from tcsym.network.plan import Plan
from tcsym.runtime.device import Device
from tcsym.runtime.native import native
from tcsym.runtime.view import Place, View
from tcsym.types import DType

Sizes = tuple[int, ...]
_NUMBER_BYTES = 8


class Allocator(Protocol):
    """Memory for the storages of a plan. bytes: that it holds now."""

    bytes: int
    is_exact: bool

    def storages(self, byte_counts: Sizes, place: Place) -> list[View]:
        """Bytes for each storage, at a line; where exact, those of the last call are given back."""


class Arena:
    """All storages at their offsets, as planned at the bounds."""

    is_exact = False

    def __init__(self, plan: Plan) -> None:
        assert plan.arena_bytes is not None
        self.bytes = plan.arena_bytes
        self._device = plan.call.device
        self._memory: View | None = None
        self._offsets = [s.offset or 0 for s in plan.storages]

    def storages(self, byte_counts: Sizes, place: Place) -> list[View]:
        memory = self._memory or self._device.block(self.bytes, place)
        self._memory = memory
        return [
            self._device.part(memory, at, (n,), DType.UINT8)
            for at, n in zip(self._offsets, byte_counts)
        ]


class Exact:
    """Each storage as large as the sizes of the call ask for."""

    is_exact = True

    def __init__(self, device: Device) -> None:
        self._device = device
        self.bytes = 0

    def storages(self, byte_counts: Sizes, place: Place) -> list[View]:
        self.bytes = sum(byte_counts)
        return [self._device.block(n, place) for n in byte_counts]


class Scratch:
    """Memory that kernels need while they run: the first arena is for one after the other, and each
    further one for a kernel that may run beside others. It grows; where memory is exact, it is what
    the last sizes need. cells: of `DeviceScratch`, else 0.
    """

    cells = 0

    def __init__(self, count: int) -> None:
        self._arenas = [native.Arena() for _ in range(count)]
        self._wanted = [(0, 0)] * count

    def begin(self, is_exact: bool) -> None:
        """What is required from now on is all that is needed, if exact; else it is added."""
        if is_exact:
            self._wanted = [(0, 0)] * len(self._wanted)

    def require(self, k: int, shared: int, private: int) -> None:
        before = self._wanted[k]
        self._wanted[k] = max(before[0], shared), max(before[1], private)

    def hold(self, place: Place, n_inputs: int) -> None:
        """Allocate. Errors: MemoryError."""
        for arena, wanted in zip(self._arenas, self._wanted):
            arena.hold(*wanted)

    def launchers(self, kernels: list[Any]) -> tuple[Any, ...]:
        """What native code runs these by."""
        return tuple(self._arenas)

    def enter(self, place: Place) -> None:
        """Calls are there from now on."""

    @property
    def bytes(self) -> int:
        return sum(a.shared_bytes + a.private_bytes for a in self._arenas)


class DeviceScratch(Scratch):
    """One block for all kernels, as they follow each other on a stream.

    Addresses of it and of memory for numbers, and the stream, are in cells that native code reads
    (`Cells`, tcsym/native/chain.c).
    """

    def __init__(self, device: Device) -> None:
        super().__init__(1)
        self._device = device
        self._cells = np.zeros(3, np.int64)
        self.cells = int(self._cells.ctypes.data)
        self._place: Place | None = None
        self._block: View | None = None
        self._numbers: View | None = None

    def hold(self, place: Place, n_inputs: int) -> None:
        wanted = self._wanted[0][0]
        if self._numbers is None:
            self._numbers = self._device.block(_NUMBER_BYTES * n_inputs, place)
        if wanted != self.bytes:
            self._block = self._device.block(wanted, place) if wanted else None
        self._cells[:2] = self._block.pointer if self._block else 0, self._numbers.pointer

    @property
    def bytes(self) -> int:
        return self._block.n_bytes if self._block else 0

    def launchers(self, kernels: list[Any]) -> tuple[Any, ...]:
        assert self._place is not None
        return tuple([kernel.launcher(self._place) for kernel in kernels])

    def enter(self, place: Place) -> None:
        self._device.begin(place, self._place)
        self._place, self._cells[2] = place, place.stream


def allocator_of(plan: Plan, memory: str | None) -> Allocator:
    """Errors: OptionError for what is no such memory, or bounds that do not tell it."""
    if memory not in (None, "planned", "exact"):
        raise OptionError(f"`memory` is {memory!r}", hint='use "planned" or "exact"')
    if memory == "exact" or (memory is None and plan.arena_bytes is None):
        return Exact(plan.call.device)
    if plan.arena_bytes is None:
        missing = [n for n in plan.call.sizes if n not in plan.bounds]
        raise OptionError(
            f"memory of {plan.program.name} cannot be planned: {', '.join(missing)} have no bound",
            hint='give `plan(bounds={"N": 128, ...})`, or use memory="exact"',
        )
    return Arena(plan)
