"""The kernels of this process, so that recording their calls reaches all of them (`recording`)."""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from typing import TYPE_CHECKING
from weakref import WeakSet

from tcsym.config import RECORD

if TYPE_CHECKING:
    from tcsym.kernel import Kernel

_kernels: WeakSet[Kernel] = WeakSet()
_lock = allocate_lock()


def register(kernel: Kernel) -> None:
    """To be told of each new kernel."""
    with _lock:
        _kernels.add(kernel)
    if "tcsym.recording" in sys.modules or RECORD.read() is not None:
        from tcsym.recording import enter

        enter(kernel)


def registered() -> list[Kernel]:
    """All kernels there are."""
    with _lock:
        return list(_kernels)


def _renew() -> None:
    """In a fork's child, where another thread may have held the lock."""
    global _lock
    _lock = allocate_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
