"""Code of a call entry, and what its table must hold -> a built-in function of Python.

Both are plain data, so that a later process enters a kernel without anything that made them
(`runtime.fastcall`).
"""

from __future__ import annotations

import ctypes
import sys
from _thread import allocate_lock
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal
from weakref import ref

import numpy as np

from tcsym.runtime.blocks import STATE
from tcsym.runtime.built_in import Owner, built_in
from tcsym.runtime.kernel_code import KernelCode
from tcsym.runtime.loader import Image, load_object
from tcsym.runtime.memory import c_function
from tcsym.runtime.native import native
from tcsym.runtime.numpy_facts import (
    ARRAY_EMPTY,
    array_function,
    numpy_type,
    scalars_are_as_expected,
)
from tcsym.runtime.own_objects import own_object
from tcsym.runtime.packing import results_type
from tcsym.runtime.pool import process_pool
from tcsym.threads import address_of_choice, available_cores

SYMBOL = "tcsym_entry"
TABLE = "tcsym_table"
OPTIONS = ("out", "threads", "sizes")  # in the order of tcsym_match's result
Library = Literal["numpy", "torch"]
Slow = Callable[..., Any]
_lock = allocate_lock()


class EntryImage:
    """A call entry as it can be kept: `EntryImage(*image.fields)` is the same.

    places: of everything in the table. inputs, outputs: names with names of element types. sizes:
    names of those that `sizes=` gives, by slot. numbers: values of known sizes, by slot. scratch:
    bytes of shared and of private scratch memory, where the table has them.
    """

    def __init__(
        self,
        name: str,
        library: Library,
        code: bytes,
        places: dict[str, int],
        inputs: tuple[tuple[str, str], ...],
        outputs: tuple[tuple[str, str], ...],
        sizes: dict[int, str],
        numbers: dict[int, int],
        scratch: tuple[int, int],
    ) -> None:
        self.name, self.library, self.code, self.places = name, library, code, places
        self.inputs, self.outputs = inputs, outputs
        self.sizes, self.numbers, self.scratch = sizes, numbers, scratch

    @property
    def fields(self) -> tuple[Any, ...]:
        """Plain data."""
        return tuple(vars(self).values())


def load_entry(image: EntryImage, kernel: KernelCode, slow: Slow) -> Slow:
    """The built-in; it passes to `slow` what it does not serve."""
    table = _table(image, kernel, slow)
    places = {TABLE: ctypes.addressof(table.words)}
    code = load_object(image.code, lambda name: places.get(name) or shared_address(name))
    return built_in(_Owner(image.name, code.address(SYMBOL), table, (code, kernel)))


class _Owner(Owner):
    def __init__(self, name: str, address: int, table: EntryTable, kept: tuple[Any, ...]) -> None:
        super().__init__(name, address, kept)
        self.table = table


class EntryTable:
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


class Served:
    """Calls that an entry served; keeps the words that count them alive, not the entry's code."""

    def __init__(self, entry: Slow) -> None:
        table: EntryTable = entry.__self__.table  # type: ignore[attr-defined]
        self._words, self._at = table.words, table.places["served"]
        self._entry = ref(entry)

    @property
    def is_live(self) -> bool:
        return self._entry() is not None

    @property
    def calls(self) -> int:
        return self._words[self._at] or 0


def continue_with(entry: Slow, slow: Slow) -> None:
    """From now on, `entry` passes to `slow` what it does not serve."""
    entry.__self__.table.refer("slow", slow)  # type: ignore[attr-defined]


@lru_cache(None)
def _shared() -> Image:
    """The functions of arguments.ll. To be called with the lock: all entries share one image."""
    return load_object(own_object("arguments"), c_function)


def shared_address(name: str) -> int:
    """Of a function of arguments.ll, or of a library."""
    if not name.startswith("tcsym_"):
        return c_function(name)
    with _lock:
        return _shared().address(name)


def _table(image: EntryImage, kernel: KernelCode, slow: Slow) -> EntryTable:
    table = EntryTable(image.places)
    table.refer("slow", slow)
    if len(image.outputs) > 1:
        table.refer("results", results_type(tuple([name for name, _ in image.outputs])))
    for name in OPTIONS:
        table.refer(name, sys.intern(name))
    for k, (name, dtype) in enumerate(image.inputs):
        table.refer(f"name {k}", sys.intern(name))
        if scalars_are_as_expected(dtype):
            table.refer(f"scalar {k}", numpy_type(dtype).type)
    for slot, name in image.sizes.items():
        table.refer(f"size {slot}", sys.intern(name))
    for slot, value in image.numbers.items():
        table.put(f"number {slot}", value)
    for name, count in zip(("shared", "private"), image.scratch):
        table.put(name, count)
    table.put("launch", native().launch_address)
    table.put("kernel", kernel.address)
    table.put("arena", kernel.arenas.main.address)
    table.put("pool", process_pool().address)
    table.put("cores", available_cores())
    table.put("chosen", address_of_choice())
    types = {f"input {k}": dtype for k, (_, dtype) in enumerate(image.inputs)}
    types |= {f"output {k}": dtype for k, (_, dtype) in enumerate(image.outputs)}
    (_refer_to_numpy if image.library == "numpy" else _refer_to_torch)(table, types)
    return table


def _refer_to_numpy(table: EntryTable, types: dict[str, str]) -> None:
    table.refer("ndarray", np.ndarray)
    table.put("array_empty", array_function(ARRAY_EMPTY))
    table.put("blocks", ctypes.addressof(STATE))
    for name, dtype in types.items():
        table.refer(name, numpy_type(dtype))


def _refer_to_torch(table: EntryTable, types: dict[str, str]) -> None:
    from tcsym.runtime.torch_facts import torch_facts
    from tcsym.types import DType

    facts = torch_facts()
    assert facts is not None
    for name, thing in facts.objects.items():
        table.refer(name, thing)
    for name, word in facts.words.items():
        table.put(name, word)
    for name, dtype in types.items():
        table.put(name, facts.types[DType(dtype)])
