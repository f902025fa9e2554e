"""Memory of a session: storages, planned at the bounds or exact, and scratch memory of kernels."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tcsym.errors import OptionError
from tcsym.ir.compiled import ARENA_LINE
from tcsym.network.plan import Plan
from tcsym.runtime.arrays import Array
from tcsym.runtime.native import native

Sizes = tuple[int, ...]


class Allocator(Protocol):
    """Memory for the storages of a plan. bytes: that it holds now."""

    bytes: int
    is_exact: bool

    def storages(self, byte_counts: Sizes) -> list[Array]:
        """Bytes for each storage, at a line; where exact, those of the last call are given back."""


class Arena:
    """All storages at their offsets, as planned at the bounds."""

    is_exact = False

    def __init__(self, plan: Plan) -> None:
        assert plan.arena_bytes is not None
        self.bytes = plan.arena_bytes
        self._memory = aligned(plan.arena_bytes)
        self._offsets = [s.offset or 0 for s in plan.storages]

    def storages(self, byte_counts: Sizes) -> list[Array]:
        return [self._memory[at : at + n] for at, n in zip(self._offsets, byte_counts)]


class Exact:
    """Each storage as large as the sizes of the call ask for."""

    is_exact = True

    def __init__(self) -> None:
        self.bytes = 0

    def storages(self, byte_counts: Sizes) -> list[Array]:
        self.bytes = sum(byte_counts)
        return [aligned(n) for n in byte_counts]


def aligned(n: int) -> Array:
    """Bytes that begin at a line."""
    memory = np.empty(n + ARENA_LINE, np.uint8)
    start = -memory.ctypes.data % ARENA_LINE
    return memory[start : start + n]


class Scratch:
    """Memory that kernels need while they run: the first arena is for one after the other, and each
    further one for a kernel that may run beside others. It grows; where memory is exact, it is what
    the last sizes need.
    """

    def __init__(self, count: int) -> None:
        self.arenas = [native.Arena() for _ in range(count)]
        self._wanted = [(0, 0)] * count

    def begin(self, is_exact: bool) -> None:
        """What is required from now on is all that is needed, if exact; else it is added."""
        if is_exact:
            self._wanted = [(0, 0)] * len(self.arenas)

    def require(self, k: int, shared: int, private: int) -> None:
        before = self._wanted[k]
        self._wanted[k] = max(before[0], shared), max(before[1], private)

    def hold(self) -> None:
        """Allocate. Errors: MemoryError."""
        for arena, wanted in zip(self.arenas, self._wanted):
            arena.hold(*wanted)

    @property
    def bytes(self) -> int:
        return sum(a.shared_bytes + a.private_bytes for a in self.arenas)


def allocator_of(plan: Plan, memory: str | None) -> Allocator:
    """Errors: OptionError for what is no such memory, or bounds that do not tell it."""
    if memory not in (None, "planned", "exact"):
        raise OptionError(f"`memory` is {memory!r}", hint='use "planned" or "exact"')
    if memory == "exact" or (memory is None and plan.arena_bytes is None):
        return Exact()
    if plan.arena_bytes is None:
        missing = [n for n in plan.call.sizes if n not in plan.bounds]
        raise OptionError(
            f"memory of {plan.program.name} cannot be planned: {', '.join(missing)} have no bound",
            hint='give `plan(bounds={"N": 128, ...})`, or use memory="exact"',
        )
    return Arena(plan)
