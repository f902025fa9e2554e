# SPDX-License-Identifier: Apache-2.0
"""Scratch memory of running kernels: arenas that only grow, one per simultaneous call.

The native launch claims an arena, grows it if it must and gives it back; in the steady state
nothing is allocated. A call that finds its kernel's arena in use takes a spare one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tcsym.runtime.native import native

if TYPE_CHECKING:
    from tcsym.runtime._native import Arena

UNIT = 128  # tasks' private parts lie on different pairs of cache lines


def private_stride(private_bytes: int) -> int:
    """Distance between the private parts of two tasks that need `private_bytes` each."""
    return -(-private_bytes // UNIT) * UNIT


class ArenaSet:
    """Arenas of one kernel: the main one, and spares for calls that find it in use."""

    def __init__(self) -> None:
        self.main = native.Arena()
        self._spare: list[Arena] = []

    def take(self) -> Arena:
        """A spare arena for one call (list operations are atomic)."""
        try:
            return self._spare.pop()
        except IndexError:
            return native.Arena()

    def give_back(self, arena: Arena) -> None:
        self._spare.append(arena)
