# SPDX-License-Identifier: Apache-2.0
"""What a call entry is made of -> the entry, a native callable (tcsym/native/entry.c).

It is plain data, so that a later process enters a kernel without anything that made it
(`runtime.entry_image`).
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

import numpy as np

from tcsym.process.threads import address_of_choice, available_cores
from tcsym.runtime.native import HAS_ENTRIES, native
from tcsym.runtime.packing import results_type
from tcsym.runtime.pool import process_pool

if TYPE_CHECKING:
    from tcsym.runtime._native import Arena, Entry, Grids

OPTIONS = ("out", "threads", "sizes")  # in the order of tcsym/native/native.h
Slow = Callable[..., Any]
Failed = Callable[[int], None]  # of 1 + the index of a check in the kernel: raises its error


_HEADS = 12  # words before the values of sizes


def with_sizes(words: bytes, values: Mapping[int, int]) -> bytes:
    """Words of an entry whose sizes in these slots were known to be others."""
    changed = bytearray(words)
    for slot, value in values.items():
        struct.pack_into("<q", changed, 8 * (_HEADS + slot), value)
    return bytes(changed)


class HasAddress(Protocol):
    """Code that is called as a kernel is; it is there as long as this object."""

    @property
    def address(self) -> int: ...


class EntryImage:
    """A call entry as it can be kept: `EntryImage(*image.fields)` is the same.

    words: what `Entry` reads. inputs, outputs: names with names of element types. free: names of
    the sizes that `sizes=` gives.
    """

    def __init__(
        self,
        name: str,
        words: bytes,
        inputs: tuple[tuple[str, str], ...],
        outputs: tuple[tuple[str, str], ...],
        free: tuple[str, ...],
    ) -> None:
        self.name, self.words = name, words
        self.inputs, self.outputs, self.free = inputs, outputs, free

    @property
    def fields(self) -> tuple[Any, ...]:
        """Plain data."""
        return tuple(vars(self).values())


def load_entry(
    image: EntryImage,
    kernel: HasAddress,
    slow: Slow,
    failed: Failed,
    where: Arena | Grids,
) -> Entry:
    """The entry; it passes to `slow` what it does not serve. where: it runs."""
    served = ctypes.c_int64(0)
    outputs = tuple([name for name, _ in image.outputs])
    return native.Entry(
        image.words,
        argument_names(tuple([name for name, _ in image.inputs])),
        tuple([sys.intern(name) for name in image.free]),
        tuple([_numpy_type(dtype) for _, dtype in (*image.inputs, *image.outputs)]),
        results_type(outputs) if len(outputs) > 1 else None,
        kernel.address,
        address_of_choice(),
        ctypes.addressof(served),
        where,
        process_pool().native,
        available_cores(),
        (kernel, served),
        slow,
        failed,
    )


@lru_cache(None)
def argument_names(inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Of inputs and options, interned: one tuple for all entries and switches of a kernel."""
    return tuple([sys.intern(name) for name in (*inputs, *OPTIONS)])


def _numpy_type(dtype: str) -> np.dtype[Any]:
    if dtype == "bfloat16":
        from tcsym.types import DType

        return DType.BFLOAT16.numpy
    return np.dtype(dtype)


class Served:
    """Calls that an entry served; keeps what counts them alive, not the entry's code."""

    def __init__(self, entry: Entry) -> None:
        self._count: ctypes.c_int64 = entry.kept[1]
        self._entry = ref(entry)

    @property
    def is_live(self) -> bool:
        return self._entry() is not None

    @property
    def calls(self) -> int:
        return self._count.value


@lru_cache(None)
def read_tensors() -> bool:
    """From now on, entries and switches read torch's tensors; torch must be imported.

    False if this torch lacks what that takes: its tensors are served by Python.
    """
    torch = sys.modules["torch"]
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if not HAS_ENTRIES or capsule is None:
        return False
    from tcsym.runtime.torch_internals import native_watch

    watch = native_watch()
    if watch is None:
        return False
    return native.set_exchange(
        capsule,
        torch.Tensor,
        torch.nn.Parameter,
        torch.is_grad_enabled,
        torch.autograd.graph.increment_version,
        sys.modules["torch.autograd.forward_ad"],
        watch,
    )
