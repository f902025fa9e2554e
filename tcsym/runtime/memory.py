# SPDX-License-Identifier: Apache-2.0
"""Pages of memory with protection, and addresses of C library functions (thin ctypes border)."""

from __future__ import annotations

import ctypes
import errno
import os
import weakref
from functools import lru_cache

from tcsym.process.system import is_macos, processors

READ, WRITE, EXECUTE = 1, 2, 4
_PRIVATE, _BELOW_2_GIB = 2, 0x40
_ANONYMOUS = 0x1000 if is_macos() else 0x20  # macOS: never run
_FAILED = ctypes.c_void_p(-1).value

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int

# Where generated code may find functions; the last one has conversions that old processors lack.
_LIBRARIES = ("libm.so.6", "libgcc_s.so.1")


@lru_cache(None)
def _libc() -> ctypes.CDLL:
    """The functions of the process, looked for when code is loaded: not every system has them."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = _POINTER
    libc.mmap.argtypes = (_POINTER, _SIZE, _INT, _INT, _INT, ctypes.c_long)
    libc.munmap.argtypes = (_POINTER, _SIZE)
    libc.mprotect.argtypes = (_POINTER, _SIZE, _INT)
    return libc


class Memory:
    """Zeroed pages, readable and writable until `protect`; freed with the object."""

    def __init__(self, size: int, *, low: bool = False) -> None:
        flags = _PRIVATE | _ANONYMOUS | (_BELOW_2_GIB if low else 0)
        address = _libc().mmap(None, size, READ | WRITE, flags, -1, 0)
        if address is None or address == _FAILED:
            raise MemoryError(f"no {size} bytes for code: {os.strerror(ctypes.get_errno())}")
        self.address: int = address
        self.size = size
        # Not at exit: a daemon thread may still be running the code.
        weakref.finalize(self, _libc().munmap, address, size).atexit = False

    def write(self, content: bytes | bytearray) -> None:
        source = (ctypes.c_char * len(content)).from_buffer_copy(content)
        ctypes.memmove(self.address, source, len(content))

    def protect(self, start: int, stop: int, protection: int) -> None:
        """Sets the protection of pages [start, stop)."""
        if stop > start and _libc().mprotect(self.address + start, stop - start, protection):
            reason = errno.errorcode.get(ctypes.get_errno(), "?")
            from tcsym.errors import TargetError

            raise TargetError(
                f"the system does not allow generated code to run (mprotect: {reason})",
                hint="allow executable anonymous memory for this process"
                " (SELinux: execmem; macOS: the entitlement allow-unsigned-executable-memory)",
            )
        if protection & EXECUTE and processors() != "x86_64":
            _renew_instructions(self.address + start, stop - start)


def _renew_instructions(address: int, size: int) -> None:
    """They have a cache of their own, which stores do not change."""
    if is_macos():  # macOS: never run
        _libc().sys_icache_invalidate(_POINTER(address), _SIZE(size))
        return
    clear = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)(c_function("__clear_cache"))
    clear(address, address + size)


@lru_cache(None)
def c_function(name: str) -> int:
    """Address of a function of the process, the mathematical or the compiler's library."""
    for library in (_libc(), *_libraries()):
        try:
            address = ctypes.cast(library[name], ctypes.c_void_p).value
        except AttributeError:
            continue
        if address:
            return address
    from tcsym.errors import TargetError

    raise TargetError(f"the function `{name}` that generated code calls was not found")


@lru_cache(None)
def _libraries() -> tuple[ctypes.CDLL, ...]:
    found = []
    for name in _LIBRARIES:
        try:
            found.append(ctypes.CDLL(name))
        except OSError:
            continue
    return tuple(found)
