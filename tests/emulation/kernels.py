# SPDX-License-Identifier: Apache-2.0
"""Lets kernels for `cpu:avx512` run here: their machine code is emulated, all else is as ever."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from tcsym import get_num_threads, set_num_threads
from tcsym.runtime import cpu
from tcsym.runtime.jit import LoadedKernel
from tests.emulation.processor import EmulationError, Processor, inserts_bytes

TARGET = "cpu:avx512"
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)
_load = LoadedKernel.__init__
_errors: list[EmulationError] = []
_loaded: list[Any] = []  # what was executed stays loaded, and its callback alive


@lru_cache(None)
def processor() -> Processor:
    return Processor()


def _load_emulated(kernel: LoadedKernel, compiled: Any) -> None:
    """A kernel whose entry hands its three arguments to the emulated processor."""
    _load(kernel, compiled)
    code, inserts = kernel.address, inserts_bytes(compiled.object_code)

    def enter(buffers: int, sizes: int, context: int) -> int:
        if inserts:
            _errors.append(EmulationError("bytes inserted from memory", True))
        try:
            result = processor().call(code, (buffers or 0, sizes or 0, context or 0))
        except EmulationError as e:
            _errors.append(e)
            return 0
        return ctypes.c_int32(result & 0xFFFFFFFF).value

    callback = _ENTRY(enter)
    _loaded.append((kernel, callback))
    kernel.address = ctypes.cast(callback, ctypes.c_void_p).value or 0


@contextmanager
def emulated() -> Iterator[None]:
    """Kernels loaded inside are emulated, on one thread: the pool's threads are real."""
    threads = get_num_threads()
    set_num_threads(1)
    try:
        with (
            patch.object(LoadedKernel, "__init__", _load_emulated),
            patch.object(cpu, "runs_here", lambda *_: True),
        ):
            yield
    finally:
        set_num_threads(threads)


def raise_errors() -> bool:
    """Raises what the emulated code did wrong since the last time; True if the emulator did."""
    errors = tuple(_errors)
    _errors.clear()
    for error in errors:
        if not error.is_refusal:
            raise error
    return bool(errors)
