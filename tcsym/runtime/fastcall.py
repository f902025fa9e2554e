"""Loaded kernel -> a built-in function that Python calls at the cost of a C extension's.

`fast_entry` gives None where the fast way cannot be taken safely: numpy's or CPython's objects do
not look as expected (probed once at run time), or some size does not follow from dense arguments.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from tcsym.runtime.assemble import cached_object
from tcsym.runtime.fastcall_ir import (
    SYMBOL,
    TABLE,
    TABLE_FIELDS,
    ArrayOffsets,
    Entry,
    can_be_entered,
    entry_ir,
    table_index,
)
from tcsym.runtime.jit import LoadedKernel
from tcsym.runtime.loader import load_object
from tcsym.runtime.memory import c_function
from tcsym.runtime.native import native
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.pool import process_pool
from tcsym.runtime.results import results_type
from tcsym.threads import address_of_choice

_METH_FASTCALL, _METH_KEYWORDS = 0x80, 0x02
_ARRAY_TYPE, _ARRAY_EMPTY = 2, 184  # places in numpy's table of C functions, fixed by its ABI
Slow = Callable[..., Any]


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("ml_name", ctypes.c_char_p),
        ("ml_meth", ctypes.c_void_p),
        ("ml_flags", ctypes.c_int),
        ("ml_doc", ctypes.c_char_p),
    ]


class _Owner:
    """Keeps alive what the entry's code refers to; it is the `__self__` of the built-in."""

    def __init__(self, name: str, address: int, kept: tuple[Any, ...]) -> None:
        flags = _METH_FASTCALL | _METH_KEYWORDS
        self.method = _MethodDef(name.encode(), address, flags, None)
        self.kept = kept

    def __repr__(self) -> str:
        return "tcsym"


def fast_entry(
    plan: CallPlan,
    kernel: LoadedKernel,
    pointers: tuple[int, ...],
    slots: Sequence[int | tuple[int, int]],
    slow: Slow,
) -> Slow | None:
    """A built-in that does what `slow(*args, **kwargs)` does, fast for plain dense arguments.

    `kernel`, `pointers`, `slots` are those of the variant for dense arguments (`variants.Variant`).
    """
    if not can_be_entered(plan, slots) or not arrays_are_as_expected():
        return None
    compiled = kernel.compiled
    entry = Entry(
        plan,
        pointers,
        tuple(s for s in slots if isinstance(s, int)),
        compiled.shared_bytes,
        compiled.private_bytes,
    )
    code = cached_object(entry_ir(entry), f"call entry of {plan.program.name}")
    table, objects = _table(entry, kernel, slow)

    def resolve(name: str) -> int:
        return ctypes.addressof(table) if name == TABLE else c_function(name)

    image = load_object(code, resolve)
    owner = _Owner(plan.program.name, image.address(SYMBOL), (image, table, objects, kernel))
    return _built_in(owner)


def _built_in(owner: _Owner) -> Slow:
    # CPython keeps the method definition's address; the function owns `owner`, which owns that.
    make = ctypes.pythonapi.PyCMethod_New
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
    function: Slow = make(ctypes.byref(owner.method), owner, None, None)
    return function


def _table(entry: Entry, kernel: LoadedKernel, slow: Slow) -> tuple[Any, list[Any]]:
    """The entry's table, and the objects it points to."""
    plan = entry.plan
    names = tuple(o.name for o in plan.outputs)
    objects: dict[int, Any] = {
        table_index(entry, "ndarray"): np.ndarray,
        table_index(entry, "slow"): slow,
        table_index(entry, "results"): results_type(names),
    }
    objects |= {table_index(entry, "input", k): p.dtype.numpy for k, p in enumerate(plan.inputs)}
    objects |= {table_index(entry, "output", k): o.dtype.numpy for k, o in enumerate(plan.outputs)}
    addresses = {
        "array_empty": _array_function(_ARRAY_EMPTY),
        "launch": native().launch_address,
        "kernel": kernel.address,
        "arena": kernel.arenas.main.address,
        "pool": process_pool().address,
        "threads": address_of_choice(),
    }
    table = (ctypes.c_void_p * (len(TABLE_FIELDS) + len(plan.inputs) + len(plan.outputs)))()
    for place, thing in objects.items():
        table[place] = id(thing)
    for name, address in addresses.items():
        table[table_index(entry, name)] = address
    return table, list(objects.values())


# ---- what numpy and CPython look like here


@lru_cache(None)
def arrays_are_as_expected() -> bool:
    """True if array objects have the layout of `ArrayOffsets`, seen on several arrays."""
    if sys.implementation.name != "cpython" or "t" in getattr(sys, "abiflags", ""):
        return False  # "t": free-threaded, where objects have another header
    if sys.maxsize != 2**63 - 1 or _array_function(_ARRAY_TYPE) != id(np.ndarray):
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
    at, address = ArrayOffsets(), id(array)

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
    return bool(tuple(dimensions) == array.shape)


def _array_function(place: int) -> int:
    """Address at a place in numpy's table of C functions; 0 if there is no table."""
    name = "_core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "core"
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
    )(_array_function(_ARRAY_EMPTY))
    made: Any = make(2, (ctypes.c_int64 * 2)(3, 4), descr, 0)
    return bool(type(made) is np.ndarray and made.shape == (3, 4) and made.dtype is descr)
