# SPDX-License-Identifier: Apache-2.0
"""Arrays whose memory ends, or starts, at a page that must not be touched.

`guarded(a, "end")` is a copy of `a` of the same strides whose last byte is the last of its page;
the next page has no access rights, so a kernel that reads or writes beyond it dies by a signal.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any, Literal

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PAGE = mmap.PAGESIZE


def guarded(a: np.ndarray[Any, Any], edge: Literal["end", "start"] = "end") -> Any:
    """A copy of `a`, its strides kept, next to a page without access."""
    low, high = _extent(a)
    size = -(-(high - low) // _PAGE) * _PAGE
    base = _LIBC.mmap(None, size + 2 * _PAGE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert base not in (None, ctypes.c_void_p(-1).value), "mmap failed"
    for page in (base, base + _PAGE + size):
        assert _LIBC.mprotect(page, _PAGE, 0) == 0
    usable = (ctypes.c_byte * size).from_address(base + _PAGE)
    weakref.finalize(usable, _LIBC.munmap, base, size + 2 * _PAGE)
    start = size - (high - low) if edge == "end" else 0
    out = np.ndarray(a.shape, a.dtype, usable, start - low, a.strides)
    out[...] = a
    return out


def _extent(a: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Bytes used before and after the first element."""
    if a.size == 0:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(a.shape, a.strides)]
    return sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps) + a.itemsize
