"""Scratch memory of running kernels: arenas that only grow, one per simultaneous call.

The native launch claims an arena, grows it if it must and gives it back; in the steady state
nothing is allocated. A call that finds its kernel's arena in use takes a spare one.
"""

from __future__ import annotations

import ctypes
import weakref

from tcsym.runtime.native import ARENA_BYTES, native

UNIT = 128  # tasks' private parts lie on different pairs of cache lines


def private_stride(private_bytes: int) -> int:
    """Distance between the private parts of two tasks that need `private_bytes` each."""
    return -(-private_bytes // UNIT) * UNIT


class Arena:
    """An arena of native.ll, empty at first; its memory is freed with the object."""

    def __init__(self) -> None:
        self._struct = ctypes.create_string_buffer(ARENA_BYTES)
        self.address = ctypes.addressof(self._struct)
        # Not at exit: a daemon thread may still be using it. The struct must outlive the call.
        free = native().arena_free
        weakref.finalize(self, _free, free, self._struct).atexit = False


def _free(free: object, struct: ctypes.Array[ctypes.c_char]) -> None:
    assert callable(free)
    free(ctypes.addressof(struct))


class ArenaSet:
    """Arenas of one kernel: the main one, and spares for calls that find it in use."""

    def __init__(self) -> None:
        self.main = Arena()
        self._spare: list[Arena] = []

    def take(self) -> Arena:
        """A spare arena for one call (list operations are atomic)."""
        try:
            return self._spare.pop()
        except IndexError:
            return Arena()

    def give_back(self, arena: Arena) -> None:
        self._spare.append(arena)
