"""Memory of results on one stream of a device, used again for later results there.

What a stream does happens in order. So memory whose array is gone may be given to the next call on
that stream, whether or not what uses it has run. (pycuda's own pool ends the process where an
array dies without a current context.)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tcsym.runtime.cuda.primary import Memory

_LEAST = 512  # bytes; larger ones are rounded up by an eighth at most


class ResultPool:
    """allocate: makes memory of the device, of so many bytes."""

    def __init__(self, allocate: Callable[[int], Memory]) -> None:
        self._allocate = allocate
        self._idle: dict[int, list[Memory]] = {}

    def memory(self, n_bytes: int, array: object) -> int:
        """The address of memory that is the array's as long as that lives."""
        size = _rounded(n_bytes)
        idle = self._idle.setdefault(size, [])
        try:
            found = idle.pop()  # list operations are atomic
        except IndexError:
            found = self._allocate(size)
        # Not at exit: the driver may be gone before.
        weakref.finalize(array, idle.append, found).atexit = False
        return found.pointer

    def release(self) -> None:
        """What is idle goes back to the driver."""
        for idle in self._idle.values():
            idle.clear()


def _rounded(n_bytes: int) -> int:
    unit = max(_LEAST, 1 << max(0, n_bytes.bit_length() - 4))
    return -(-max(1, n_bytes) // unit) * unit
