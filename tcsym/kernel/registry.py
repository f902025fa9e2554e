"""The kernels of this process, so that recording their calls reaches all of them (`recording`)."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakSet

from tcsym.process.forks import at_fork

if TYPE_CHECKING:
    from tcsym.kernel.kernel import Kernel

_kernels: WeakSet[Kernel] = WeakSet()
_lock = allocate_lock()
_watchers: list[Callable[[Kernel], None]] = []


def register(kernel: Kernel) -> None:
    """To be told of each new kernel."""
    with _lock:
        _kernels.add(kernel)
    for tell in _watchers:
        tell(kernel)


def watch(tell: Callable[[Kernel], None]) -> None:
    """From now on, `tell` is called with each new kernel."""
    _watchers.append(tell)


def registered() -> list[Kernel]:
    """All kernels there are."""
    with _lock:
        return list(_kernels)


def _renew() -> None:
    """In a fork's child, where another thread may have held the lock."""
    global _lock
    _lock = allocate_lock()


at_fork(after_in_child=_renew)
