"""Objects whose call enters native code without passing through a `__call__` written in Python.

A class has its `__call__` as any other: documentation, `help` and calls by name see that. What
CPython runs for `x(...)` is the type's slot `tp_call`; `call_directly` replaces it, on the classes
below `Direct` only, by native code that hands the call to `x._entry`. Subclasses of users, and a
`__call__` assigned later, get CPython's own slot again. Where objects or types do not look as
expected, nothing is replaced: `__call__` does the same, slower.
"""

from __future__ import annotations

import ctypes
import sys
from _thread import allocate_lock
from functools import lru_cache
from typing import Any

from tcsym.runtime.loader import Image, load_object
from tcsym.runtime.memory import c_function
from tcsym.runtime.own_objects import own_object

_ENTRY_AT, _CALL_AT = 16, 128  # of the first slot in an object; of tp_call in a type
_PY_TP_CALL = 50  # number of the slot in CPython's stable ABI
_lock = allocate_lock()
_direct: set[type] = set()


class Direct:
    """Base of callables. `_entry` must do all that `__call__` does, options included."""

    __slots__ = ("_entry",)
    _entry: Any


def call_directly() -> None:
    """From now on, calls of the classes that derive from `Direct` go straight to `_entry`."""
    if not objects_are_as_expected():
        return
    with _lock:
        for cls in Direct.__subclasses__():
            if cls not in _direct and _tp_call(cls).value == _plain_slot():
                _direct.add(cls)
                _tp_call(cls).value = _native_call()[0].address("tcsym_call")


@lru_cache(None)
def objects_are_as_expected() -> bool:
    """True if `_entry` and `tp_call` lie where the native code looks for them."""
    if sys.implementation.name != "cpython" or "t" in getattr(sys, "abiflags", ""):
        return False  # "t": free-threaded, where objects have another header
    if sys.maxsize != 2**63 - 1:
        return False
    probe, mark = Direct(), object()
    address = ctypes.c_void_p.from_address(id(probe) + _ENTRY_AT)
    if address.value is not None:
        return False
    probe._entry = mark
    samples = (_Sample, type(probe), type(mark), type)
    slots = all((_tp_call(cls).value or 0) == _slot_of(cls) for cls in samples)
    return address.value == id(mark) and slots and _plain_slot() != _slot_of(type)


class _Sample:
    def __call__(self) -> None: ...


def _tp_call(cls: type) -> ctypes.c_void_p:
    return ctypes.c_void_p.from_address(id(cls) + _CALL_AT)


def _slot_of(cls: type) -> int:
    get = ctypes.pythonapi.PyType_GetSlot
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    return get(cls, _PY_TP_CALL) or 0


def _plain_slot() -> int:
    """What CPython puts into types whose `__call__` is a Python function."""
    return _slot_of(_Sample)


@lru_cache(None)
def _native_call() -> tuple[Image, ctypes.c_void_p]:
    """The code, and the variable that it refers to: both stay for the life of the process."""
    slot = ctypes.c_void_p(_plain_slot())
    places = {"tcsym_slot_call": ctypes.addressof(slot)}
    code = load_object(own_object("direct"), lambda name: places.get(name) or c_function(name))
    return code, slot
