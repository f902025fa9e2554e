"""What numpy's arrays and CPython's objects look like here, tried out before code relies on it."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

ARRAY_TYPE, ARRAY_EMPTY = 2, 184  # places in numpy's table of C functions, fixed by its ABI


class ArrayOffsets:
    """Where numpy's array object has its fields, and CPython's object its type."""

    type, data, rank, dimensions, strides, descr, flags = 8, 16, 24, 32, 40, 56, 64


@lru_cache(None)
def arrays_are_as_expected() -> bool:
    """True if array objects have the layout of `ArrayOffsets`, seen on several arrays."""
    if sys.implementation.name != "cpython" or "t" in getattr(sys, "abiflags", ""):
        return False  # "t": free-threaded, where objects have another header
    if sys.maxsize != 2**63 - 1 or array_function(ARRAY_TYPE) != id(np.ndarray):
        return False
    probes: list[np.ndarray[Any, Any]] = [
        np.empty((3, 5, 7)),
        np.empty((3, 5, 7), np.int16)[:, 1:4, ::2],
        np.empty((4, 6), np.float32).T,
        np.array(1.5),
        np.empty((0, 2), bool),
    ]
    return all(_is_as_expected(probe) for probe in probes) and _can_allocate()


def _is_as_expected(array: np.ndarray[Any, Any]) -> bool:
    at, address = ArrayOffsets, id(array)

    def word(offset: int) -> int:
        return ctypes.c_uint64.from_address(address + offset).value

    def half(offset: int) -> int:
        return ctypes.c_int32.from_address(address + offset).value

    if type(array).__basicsize__ < at.flags + 4 or word(at.type) != id(np.ndarray):
        return False
    facts = (word(at.data), half(at.rank), word(at.descr), half(at.flags))
    if facts != (array.ctypes.data, array.ndim, id(array.dtype), array.flags.num):
        return False
    if not array.ndim:
        return True
    dimensions = (ctypes.c_int64 * array.ndim).from_address(word(at.dimensions))
    strides = (ctypes.c_int64 * array.ndim).from_address(word(at.strides))
    return (tuple(dimensions), tuple(strides)) == (array.shape, array.strides)


@lru_cache(None)
def scalars_are_as_expected(dtype: str) -> bool:
    """True if numpy's scalars of the type have their value behind the object's header."""
    one = numpy_type(dtype).type(1)
    content = np.array(one).tobytes()
    return ctypes.string_at(id(one) + 16, len(content)) == content


def numpy_type(dtype: str) -> np.dtype[Any]:
    if dtype == "bfloat16":
        from tcsym.types import DType

        return DType.BFLOAT16.numpy
    return np.dtype(dtype)


def array_function(place: int) -> int:
    """Address at a place in numpy's table of C functions; 0 if there is no table."""
    name = "core" if np.__version__.startswith("1.") else "_core"
    capsule = import_module(f"numpy.{name}._multiarray_umath")._ARRAY_API
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    table = get(capsule, None)
    return ctypes.c_void_p.from_address(table + 8 * place).value or 0 if table else 0


def _can_allocate() -> bool:
    """True if the function at its place makes the array it should, and keeps references right."""
    descr = np.dtype(np.float32)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(descr))  # the call steals one
    make = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int
    )(array_function(ARRAY_EMPTY))
    made: Any = make(2, (ctypes.c_int64 * 2)(3, 4), descr, 0)
    return bool(type(made) is np.ndarray and made.shape == (3, 4) and made.dtype is descr)
