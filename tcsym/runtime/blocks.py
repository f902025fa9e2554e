# SPDX-License-Identifier: Apache-2.0
"""Memory of large results: numpy arrays whose blocks are used again once the arrays are gone.

The system takes large memory back as soon as it is freed, and gives it zeroed, page by page, when
it is written again: for a result of 32 MiB that takes twice as long as computing it. Results of at
least `LEAST` bytes get blocks of huge pages instead (tcsym/native/blocks.c), through numpy's
interface for memory handlers (NEP 49): such an array owns its data, and may be resized as any
other. Idle blocks are kept up to a bound, and until many others became idle after them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tcsym.runtime.native import native

_MOST = 2**62
LEAST = native.LARGE_BYTES  # bytes of a large result
_decided: list[int] = []  # the bound in force


class ResultMemory(NamedTuple):
    """Bytes. `most`: of idle memory that may be kept; `idle`: that is kept now, in `blocks`."""

    most: int
    idle: int
    blocks: int


def set_result_memory(most: int) -> None:
    """Keep at most `most` bytes of large numpy results that are gone for later ones; 0: none.

    Without a call, TCSYM_RESULT_MEMORY says how many. What is idle beyond `most` goes back to the
    system now. Errors: OptionError unless it is an integer >= 0.
    """
    from tcsym.errors import OptionError

    if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= _MOST:
        raise OptionError(f"result memory is {most!r}, expected a number of bytes >= 0")
    _decided[:] = [most]
    native.set_idle_memory(most)


def get_result_memory() -> ResultMemory:
    """`(most, idle, blocks)`: the bound in bytes, the bytes idle now, and in how many blocks."""
    return ResultMemory(_bound(), *native.idle_memory())


def large_array(shape: tuple[int, ...], dtype: Any) -> Any:
    """A new uninitialised array; None if it is not large, or must be numpy's own."""
    if math.prod(shape) * dtype.itemsize < LEAST:
        return None
    _bound()  # decides it, before there is such an array
    return native.large_array(shape, dtype)


def _bound() -> int:
    """The bound in force, from the environment unless it was set."""
    if not _decided:
        from tcsym.process.config import RESULT_MEMORY

        set_result_memory(RESULT_MEMORY.read())
    return _decided[0]
