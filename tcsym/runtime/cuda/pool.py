# SPDX-License-Identifier: Apache-2.0
"""Memory for what is done on one stream of a device, used again for what is done there later.

What a stream does happens in order. So memory whose array is gone may be given to the next call on
that stream, whether or not what uses it has run. A graph that is captured there has a pool of its
own, as it may run at any time. (pycuda's own pool ends the process where an array dies without a
current context.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tcsym.runtime.cuda.primary import Memory

_LEAST = 512  # bytes; larger ones are rounded up by an eighth at most


class Lease:
    """Memory of a pool, which goes back there with the object."""

    __slots__ = ("_idle", "_memory", "pointer")

    def __init__(self, memory: Memory, idle: list[Memory]) -> None:
        self._memory, self._idle = memory, idle
        self.pointer = memory.pointer

    def __del__(self) -> None:
        self._idle.append(self._memory)


class Pool:
    """allocate: makes memory of the device, of so many bytes. is_captured: it is a graph's."""

    def __init__(self, allocate: Callable[[int], Memory], is_captured: bool = False) -> None:
        self._allocate = allocate
        self.is_captured = is_captured
        self._idle: dict[int, list[Memory]] = {}

    def lease(self, n_bytes: int) -> Lease:
        """Memory, for as long as the lease lives."""
        unit = max(_LEAST, 1 << max(0, n_bytes.bit_length() - 4))
        size = -(-max(1, n_bytes) // unit) * unit
        idle = self._idle.get(size)
        if idle is None:
            idle = self._idle.setdefault(size, [])
        try:
            found = idle.pop()  # list operations are atomic
        except IndexError:
            found = self._allocate(size)
        return Lease(found, idle)

    def release(self) -> None:
        """What is idle goes back to the driver."""
        for idle in self._idle.values():
            idle.clear()
