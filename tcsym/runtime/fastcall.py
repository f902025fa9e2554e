"""Loaded kernel -> a built-in function that Python calls at the cost of a C extension's.

`fast_entry` gives None where the fast way cannot be taken safely: numpy's or CPython's objects do
not look as expected (probed once at run time), or some size does not follow from dense arguments.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from tcsym.compiled import Layout
from tcsym.runtime.assemble import cached_object
from tcsym.runtime.built_in import Owner, built_in
from tcsym.runtime.fastcall_arrays import ArrayOffsets
from tcsym.runtime.fastcall_entry import (
    OPTIONS,
    SYMBOL,
    TABLE,
    Entry,
    Library,
    can_be_entered,
)
from tcsym.runtime.fastcall_ir import MOST_PRIVATE, MOST_SHARED, entry_ir
from tcsym.runtime.jit import LoadedKernel
from tcsym.runtime.loader import Image, load_object
from tcsym.runtime.memory import c_function
from tcsym.runtime.native import native, own_text
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.pool import process_pool
from tcsym.runtime.results import results_type
from tcsym.threads import address_of_choice, available_cores
from tcsym.types import DType

_METH_FASTCALL, _METH_KEYWORDS = 0x80, 0x02
_ARRAY_TYPE, _ARRAY_EMPTY = 2, 184  # places in numpy's table of C functions, fixed by its ABI
Slow = Callable[..., Any]
_lock = threading.Lock()


class _Owner(Owner):
    def __init__(self, name: str, address: int, table: _Table, kept: tuple[Any, ...]) -> None:
        super().__init__(name, address, kept)
        self.table = table


class _Table:
    """The entry's table: numbers, addresses and objects, which it keeps alive."""

    def __init__(self, places: dict[str, int]) -> None:
        self.places = places
        self.words = (ctypes.c_void_p * len(places))()
        self._objects: list[object] = []

    def refer(self, name: str, thing: object) -> None:
        """To an object. Those before it stay alive: a call may be using them."""
        self._objects.append(thing)
        self.words[self.places[name]] = id(thing)

    def put(self, name: str, word: int) -> None:
        self.words[self.places[name]] = word


def fast_entry(
    plan: CallPlan,
    kernel: LoadedKernel,
    pointers: tuple[int, ...],
    slots: Sequence[int | tuple[int, int]],
    slow: Slow,
    layouts: tuple[Layout, ...] | None = None,
    exact: bool = True,
    library: Library = "numpy",
) -> Slow | None:
    """A built-in that does what `slow(*args, **kwargs)` does, fast for arrays of these layouts.

    `kernel`, `pointers`, `slots`, `layouts` (default: all dense) are those of a variant
    (`variants.Variant`). Unless `exact`, arrays of stricter layouts are served as well.
    """
    if not can_be_entered(plan, library) or not arrays_are_as_expected():
        return None
    if library == "torch" and not _torch_serves(plan):
        return None
    compiled = kernel.compiled
    if (
        compiled.shared_bytes.constant > MOST_SHARED
        or compiled.private_bytes.constant > MOST_PRIVATE
    ):
        return None
    entry = Entry(
        plan,
        layouts or all_dense(plan),
        pointers,
        tuple(slots),
        compiled.shared_bytes,
        compiled.private_bytes,
        exact,
        library,
    )
    code = cached_object(entry_ir(entry), f"call entry of {plan.program.name}")
    table = _table(entry, kernel, slow)
    places = {TABLE: ctypes.addressof(table.words)}
    image = load_object(code, lambda name: places.get(name) or _shared_address(name))
    owner = _Owner(plan.program.name, image.address(SYMBOL), table, (image, kernel))
    return built_in(owner)


def continue_with(entry: Slow, slow: Slow) -> None:
    """From now on, `entry` passes to `slow` what it does not serve."""
    entry.__self__.table.refer("slow", slow)  # type: ignore[attr-defined]


@lru_cache(None)
def _shared() -> Image:
    """The functions of arguments.ll. To be called with the lock: all entries share one image."""
    text = own_text("arguments.ll")
    return load_object(cached_object(text, "arguments of calls"), c_function)


def _shared_address(name: str) -> int:
    if not name.startswith("tcsym_"):
        return c_function(name)
    with _lock:
        return _shared().address(name)


def _table(entry: Entry, kernel: LoadedKernel, slow: Slow) -> _Table:
    plan, table = entry.plan, _Table(entry.table)
    table.refer("slow", slow)
    table.refer("results", results_type(tuple(o.name for o in plan.outputs)))
    for name in OPTIONS:
        table.refer(name, sys.intern(name))
    for k, p in enumerate(plan.inputs):
        table.refer(f"name {k}", sys.intern(p.name))
        if scalars_are_as_expected(p.dtype):
            table.refer(f"scalar {k}", p.dtype.numpy.type)
    for slot in entry.free_slots:
        table.refer(f"size {slot}", sys.intern(plan.sizes[slot]))
    for slot in entry.numbers:
        table.put(f"number {slot}", plan.initial[slot] or 0)
    for name, count in (("shared", entry.shared_bytes), ("private", entry.private_bytes)):
        table.put(name, max(0, count.constant))
    table.put("launch", native().launch_address)
    table.put("kernel", kernel.address)
    table.put("arena", kernel.arenas.main.address)
    table.put("pool", process_pool().address)
    table.put("cores", available_cores())
    table.put("chosen", address_of_choice())
    types = {f"input {k}": p.dtype for k, p in enumerate(plan.inputs)}
    types |= {f"output {k}": o.dtype for k, o in enumerate(plan.outputs)}
    (_refer_to_numpy if entry.library == "numpy" else _refer_to_torch)(table, types)
    return table


def _refer_to_numpy(table: _Table, types: dict[str, DType]) -> None:
    table.refer("ndarray", np.ndarray)
    table.put("array_empty", _array_function(_ARRAY_EMPTY))
    for name, dtype in types.items():
        table.refer(name, dtype.numpy)


def _refer_to_torch(table: _Table, types: dict[str, DType]) -> None:
    from tcsym.runtime.torch_facts import torch_facts

    facts = torch_facts()
    assert facts is not None
    for name, thing in facts.objects.items():
        table.refer(name, thing)
    for name, word in facts.words.items():
        table.put(name, word)
    for name, dtype in types.items():
        table.put(name, facts.types[dtype])


def _torch_serves(plan: CallPlan) -> bool:
    from tcsym.runtime.torch_facts import torch_facts

    facts = torch_facts()
    if facts is None:
        return False
    return facts.types.keys() >= {p.dtype for p in plan.inputs} | {o.dtype for o in plan.outputs}


def all_dense(plan: CallPlan) -> tuple[Layout, ...]:
    dense: Layout = "dense"
    return (dense,) * (len(plan.inputs) + len(plan.outputs))


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
    strides = (ctypes.c_int64 * array.ndim).from_address(word(at.strides))
    return (tuple(dimensions), tuple(strides)) == (array.shape, array.strides)


@lru_cache(None)
def scalars_are_as_expected(dtype: DType) -> bool:
    """True if numpy's scalars of the type have their value behind the object's header."""
    one = dtype.numpy.type(1)
    return ctypes.string_at(id(one) + 16, dtype.bytes) == np.array(one).tobytes()


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
