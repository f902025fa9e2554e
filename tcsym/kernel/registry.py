# SPDX-License-Identifier: Apache-2.0
"""What the kernels of this process share: a list of them, so that recording their calls reaches all
(`recording`), and docstrings of their own, as functions have."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

from tcsym.process.forks import at_fork

Function = Callable[..., Any]
Through = Callable[[Any, Function, tuple[Any, ...], dict[str, Any]], Any]


class Entered(Protocol):
    """A kernel: its calls may enter by way of another function, which is told what they enter."""

    def _enter_through(self, through: Through | None) -> None: ...


_kernels: WeakSet[Entered] = WeakSet()
_lock = allocate_lock()
_through: Through | None = None


def register(kernel: Entered) -> None:
    """A new kernel: its calls enter as those of all others do."""
    with _lock:
        _kernels.add(kernel)
        if _through is not None:
            kernel._enter_through(_through)


def enter_through(through: Through | None) -> None:
    """Calls of all kernels, also of those to come, enter by way of `through`, or no longer."""
    global _through
    with _lock:
        _through = through
        for kernel in list(_kernels):
            kernel._enter_through(through)


def _renew() -> None:
    """In a fork's child, where another thread may have held the lock."""
    global _lock
    _lock = allocate_lock()


at_fork(after_in_child=_renew)


class _Doc:
    """In place of the docstring of a class: it, and of its values what they say of themselves."""

    def __init__(self, of_class: str | None) -> None:
        self._of_class = of_class

    def __get__(self, value: Any, _: type) -> str | None:
        return self._of_class if value is None else value._doc(self._of_class)


def documented(cls: type) -> None:
    """Values of the class have docstrings of their own, from `_doc`."""
    cls.__doc__ = _Doc(cls.__doc__)  # type: ignore[assignment]
