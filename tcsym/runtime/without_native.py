# SPDX-License-Identifier: Apache-2.0
"""Stands for `tcsym.runtime._native` where that was not built: kernels run on one thread.

Generated code calls `parallel_for` and `missing_task`; here they are Python functions.
"""

from __future__ import annotations

import ctypes
import struct
from itertools import islice
from typing import Any

from tcsym.ir.compiled import ARENA_LINE, CONTEXT_FIELDS

ARENA_BUSY, OUT_OF_MEMORY, CODE_MISSING, SIMT_FAULT = -1, -2, -3, -5
LARGE_BYTES = 2**62  # no result comes from blocks
_ADDRESS, _INTEGER = ctypes.c_void_p, ctypes.c_int64
_TASK = ctypes.CFUNCTYPE(None, _ADDRESS, _INTEGER, _INTEGER)
_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p, _ADDRESS)


def _parallel_for(pool: int, function: int, data: int, n_tasks: int, work: int) -> None:
    if n_tasks > 0:
        _TASK(function)(data, 0, 1)


def _missing_task(data: int, arena: int, lower: int, upper: int) -> None:
    error = ctypes.c_void_p.from_address(data).value
    ctypes.c_int32.from_address(error or 0).value = CODE_MISSING


_FUNCTIONS = (
    ctypes.CFUNCTYPE(None, *(_ADDRESS,) * 3, *(_INTEGER,) * 2)(_parallel_for),
    ctypes.CFUNCTYPE(None, *(_ADDRESS,) * 2, *(_INTEGER,) * 2)(_missing_task),
)
parallel_for, missing_task = [ctypes.cast(f, _ADDRESS).value or 0 for f in _FUNCTIONS]


class Arena:
    """Scratch memory is allocated by each call."""

    shared_bytes = private_bytes = 0

    def hold(self, shared_bytes: int, private_bytes: int) -> None: ...


class Pool:
    """No threads."""

    address = workers = 0

    def stop(self) -> None: ...

    def forget(self) -> None: ...

    def wipe_on_fork(self) -> bool:
        return True

    def be_patient(self, patient: bool) -> None: ...

    def use_openmp(self, *_: int) -> None: ...


def launch(
    kernel: int,
    buffers: bytes,
    sizes: bytes,
    arena: Arena,
    shared_bytes: int,
    private_bytes: int,
    threads: int,
    pool: Pool,
) -> int:
    """Runs the kernel on one thread."""
    try:
        memory = ctypes.create_string_buffer(shared_bytes + private_bytes + 2 * ARENA_LINE)
    except MemoryError:
        return OUT_OF_MEMORY
    shared = -(-ctypes.addressof(memory) // ARENA_LINE) * ARENA_LINE
    private = -(-(shared + shared_bytes) // ARENA_LINE) * ARENA_LINE
    context = (_INTEGER * len(CONTEXT_FIELDS))(parallel_for, 0, 1, shared, private, private_bytes)
    return int(_KERNEL(kernel)(buffers, sizes, ctypes.addressof(context)))


class Chain:
    """Runs the kernels of a program: tcsym/native/chain.c; Python checks its calls."""

    def __init__(self, words: bytes, names: object, types: object, results: object, *rest: Any):
        self._words = iter(struct.unpack(f"{len(words) // 8}q", words))
        self._results, self._failed = results, rest[-2]
        n_inputs, n_links, _, n_copies, n_constants = self._take(5)
        self._take(5)
        for _ in range(n_inputs):
            rank = self._take(10)[0]
            self._take(2 * rank)
        self._links = [self._link() for _ in range(n_links)]
        left = tuple(self._words)
        end = len(left) - 2 * n_constants
        self._copies = [left[k : k + 3] for k in range(end - 3 * n_copies, end, 3)]

    def _take(self, n: int) -> tuple[int, ...]:
        return tuple(islice(self._words, n))

    def _link(self) -> tuple[int, tuple[int, ...], bytes, int, int]:
        address, n_buffers, n_values, shared, private = self._take(5)
        buffers = self._take(2 * n_buffers)
        values = struct.pack(f"{n_values}q", *self._take(n_values))
        return address, buffers, values, shared, private

    def run(self, addresses: tuple[int, ...], threads: int) -> object:
        """The results; the caller holds the lock."""
        for k, (address, buffers, values, shared, private) in enumerate(self._links):
            pairs = zip(buffers[::2], buffers[1::2])
            given = [at if x < 0 else addresses[x] for x, at in pairs]
            pointers = struct.pack(f"{len(given)}Q", *given)
            code = launch(address, pointers, values, Arena(), shared, private, 1, Pool())
            if code:
                self._failed(k, code)
        for to, source, n_bytes in self._copies:
            ctypes.memmove(to, source, n_bytes)
        return self._results


def large_array(*_: object) -> None:
    """None: results come from numpy's own memory."""


def set_idle_memory(most: int) -> None:
    """Nothing is kept."""


def simt_report() -> str:
    """Nothing: no grid runs."""
    return ""


def simt_check(whether: bool) -> None:
    """Nothing: no grid runs."""


def idle_memory() -> tuple[int, int]:
    """Bytes and number of blocks that are kept."""
    return 0, 0
