"""native.ll -> its functions: loads the native part of the run time once a process."""

from __future__ import annotations

import ctypes
from _thread import allocate_lock
from typing import Any

from tcsym.runtime.loader import Image, load_object
from tcsym.runtime.memory import c_function
from tcsym.runtime.own_objects import own_object

POOL_BYTES = 32768
ARENA_BYTES = 40
ARENA_BUSY, OUT_OF_MEMORY, CODE_MISSING = -1, -2, -3

_ADDRESS, _WORDS, _INTEGER = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
_PARAMETERS = (_ADDRESS, _WORDS, _WORDS, _ADDRESS, _INTEGER, _INTEGER, _INTEGER, _ADDRESS)


class Native:
    """Functions of native.ll: addresses, and callables that release Python's lock."""

    def __init__(self, image: Image) -> None:
        free_one = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        self.image = image
        self.parallel_for = image.address("tcsym_parallel_for")
        self.missing_task = image.address("tcsym_missing_task")
        self.launch_address = image.address("tcsym_launch")
        # (kernel, buffers, sizes, arena, shared, private, threads, pool) -> int
        self.launch: Any = ctypes.CFUNCTYPE(ctypes.c_int32, *_PARAMETERS)(self.launch_address)
        self.pool_stop: Any = free_one(image.address("tcsym_pool_stop"))  # (pool)
        self.arena_free: Any = free_one(image.address("tcsym_arena_free"))  # (arena)


_loaded: list[Native] = []
_lock = allocate_lock()


def native() -> Native:
    """The loaded module; the first call links it."""
    if _loaded:
        return _loaded[0]
    with _lock:
        if not _loaded:
            _loaded.append(_load())
    return _loaded[0]


def _load() -> Native:
    return Native(load_object(own_object("native"), c_function))
