"""Address of a C function -> a built-in function of Python that keeps alive what its code uses."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

_METH_FASTCALL, _METH_KEYWORDS = 0x80, 0x02


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("ml_name", ctypes.c_char_p),
        ("ml_meth", ctypes.c_void_p),
        ("ml_flags", ctypes.c_int),
        ("ml_doc", ctypes.c_char_p),
    ]


# Definitions are used again, never freed: where a collector breaks a cycle, it clears an owner
# before its function, which yet reads the flags when it goes.
_spare: list[_MethodDef] = []


class Owner:
    """The `__self__` of a built-in: keeps alive what its code refers to."""

    def __init__(self, name: str, address: int, kept: object) -> None:
        self.method = _spare.pop() if _spare else _MethodDef()
        self.method.ml_name, self.method.ml_meth = name.encode(), address
        self.method.ml_flags = _METH_FASTCALL | _METH_KEYWORDS
        weakref.finalize(self, _spare.append, self.method).atexit = False
        self.address = address
        self.kept = kept

    def __repr__(self) -> str:
        return "tcsym"


def built_in(owner: Owner) -> Callable[..., Any]:
    """The function, of the kind METH_FASTCALL | METH_KEYWORDS."""
    # CPython keeps the method definition's address; the function owns `owner`, which owns that.
    make = ctypes.pythonapi.PyCMethod_New
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
    function: Callable[..., Any] = make(ctypes.byref(owner.method), owner, None, None)
    return function
