"""native.ll -> its functions: loads the native part of the run time once a process."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from tcsym.records import dataclass
from tcsym.runtime.assemble import cached_object
from tcsym.runtime.loader import Image, load_object
from tcsym.runtime.memory import c_function

POOL_BYTES = 32768
ARENA_BYTES = 40
ARENA_BUSY, OUT_OF_MEMORY = -1, -2

_ADDRESS, _WORDS, _INTEGER = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
_PARAMETERS = (_ADDRESS, _WORDS, _WORDS, _ADDRESS, _INTEGER, _INTEGER, _INTEGER, _ADDRESS)


@dataclass(frozen=True, slots=True)
class Native:
    """Functions of native.ll: addresses, and callables that release Python's lock."""

    image: Image
    parallel_for: int
    launch_address: int
    launch: Any  # (kernel, buffers, sizes, arena, shared, private, threads, pool) -> int
    pool_stop: Any  # (pool)
    arena_free: Any  # (arena)


_loaded: list[Native] = []
_lock = threading.Lock()


def own_text(name: str) -> str:
    """A file of LLVM IR that lies beside this one. (pathlib takes 5 ms to import.)"""
    with open(os.path.join(os.path.dirname(__file__), name)) as file:
        return file.read()


def native() -> Native:
    """The loaded module; the first call links it, from the code cache if it can."""
    if _loaded:
        return _loaded[0]
    with _lock:
        if not _loaded:
            _loaded.append(_load())
    return _loaded[0]


def _load() -> Native:
    image = load_object(cached_object(own_text("native.ll"), "run time"), c_function)
    launch = image.address("tcsym_launch")
    free_one = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return Native(
        image=image,
        parallel_for=image.address("tcsym_parallel_for"),
        launch_address=launch,
        launch=ctypes.CFUNCTYPE(ctypes.c_int32, *_PARAMETERS)(launch),
        pool_stop=free_one(image.address("tcsym_pool_stop")),
        arena_free=free_one(image.address("tcsym_arena_free")),
    )
