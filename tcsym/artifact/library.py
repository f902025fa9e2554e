# SPDX-License-Identifier: Apache-2.0
"""An artifact's shared library as the system loads it, and its end when nobody has it any more."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import finalize

from tcsym.errors import TargetError
from tcsym.process.system import is_macos


def require_artifacts() -> None:
    """TargetError on macOS, whose libraries are of another form than our code."""
    if is_macos():
        hint = "export and load them on Linux"
        raise TargetError("artifacts are neither made nor loaded on macOS", hint=hint)


class Loaded:
    """Its functions are there as long as this object. One without an end stays loaded.

    They hold no reference to it, as those of `ctypes.CDLL` do, which are circles besides: what is
    to go with its last user is not left to a search for garbage.
    """

    def __init__(self, path: str, kernel: str) -> None:
        self._loaded = ctypes.CDLL(path)
        self.kernel = kernel

    def address(self, end: str) -> int:
        """Of the kernel's function whose name ends like this."""
        return ctypes.addressof(ctypes.c_char.in_dll(self._loaded, f"{self.kernel}_{end}"))

    def function(self, end: str, result: Any = ctypes.c_int) -> Any:
        return ctypes.CFUNCTYPE(result)(self.address(end))

    def text(self, end: str) -> str:
        """What a function without arguments says."""
        return ctypes.string_at(self.function(end, ctypes.c_void_p)()).decode()


def own_library(path: Path, kernel: str) -> Loaded:
    """A library by itself, as constants that are bound belong to it: the system loads a file once.

    When it dies, what it bound and it itself are gone.
    """
    file = os.memfd_create(path.name)
    try:
        with open(file, "wb", closefd=False) as memory:
            memory.write(path.read_bytes())
        name = f"/proc/self/fd/{file}"
        library = Loaded(name, kernel)
    except BaseException:
        os.close(file)
        raise
    handle, release = library._loaded._handle, library.address("release")
    finalize(library, _close, handle, release, name, file).atexit = False
    return library


def _close(handle: int, release: int, name: str, file: int) -> None:
    ctypes.CFUNCTYPE(None)(release)()
    _dlclose()(ctypes.c_void_p(handle))
    try:
        ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:  # it is gone; else the system would take the next file of that name for it
        os.close(file)


@lru_cache(None)
def _dlclose() -> Any:
    return ctypes.CDLL(None).dlclose
