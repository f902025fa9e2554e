"""Arrays whose memory ends (or starts) at a forbidden page: a stray access crashes."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def guarded(x: Any, at_end: bool) -> Any:
    """A row-major copy of `x` between two forbidden pages, touching the one behind or before it."""
    room = -(-max(x.nbytes, 1) // PAGE) * PAGE
    memory = mmap.mmap(-1, room + 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    offset = PAGE + (room - x.nbytes if at_end else 0)
    view = np.frombuffer(memory, x.dtype, x.size, offset).reshape(x.shape)
    view[...] = x
    for page in (address, address + PAGE + room):
        if _libc.mprotect(page, PAGE, mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0):
            raise OSError(ctypes.get_errno(), "mprotect failed")
    return view
