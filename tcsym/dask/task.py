# SPDX-License-Identifier: Apache-2.0
"""What a worker does: it makes the kernel of a block's program once, and runs it on blocks."""

from __future__ import annotations

import marshal
import pickle
from _thread import allocate_lock
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct

from tcsym.frontend.program import Program
from tcsym.frontend.program_json import programs_from_json, programs_to_json
from tcsym.kernel.kernel import Kernel
from tcsym.kernel.of_program import kernel_of_program
from tcsym.kernel.settings import Settings
from tcsym.process.forks import inside
from tcsym.process.recursion import depth_checked

Array = np.ndarray[Any, Any]
Along = tuple[int, int, int, int, int]  # a cut; scale, low and high of the window; extent


class Made(Struct, frozen=True):
    """A program and its settings, as bytes: to send, and to know again."""

    program: bytes
    settings: bytes


def made(program: Program, settings: Settings) -> Made:
    return Made(marshal.dumps(programs_to_json([program])), pickle.dumps(settings))


_lock = allocate_lock()


@inside
def kernel_of(given: Made) -> Kernel:
    """One for each process, whichever thread comes first."""
    with _lock:
        return _kernel_of(given)


@lru_cache(256)
def _kernel_of(given: Made) -> Kernel:
    (program,) = programs_from_json(marshal.loads(given.program))
    return depth_checked(kernel_of_program)(program, pickle.loads(given.settings))


class Task(Struct, frozen=True):
    """A call for one block. inputs: of each dimension how it lies along a cut.

    sizes: those that all blocks have. starts, counts: by the names that the program has for them.
    """

    made: Made
    inputs: tuple[tuple[Along | None, ...], ...]
    sizes: tuple[tuple[str, int], ...]
    starts: tuple[tuple[str, int], ...]
    counts: tuple[tuple[str, int], ...]
    threads: int | None

    def __call__(self, *given: Any) -> tuple[Array, ...]:
        """given: start and count along each cut, then the inputs; lists have one element."""
        n = len(given) - len(self.inputs)
        blocks = [_only(x)[0] for x in given[:n]]
        arrays = [_window(_only(x), along, blocks) for x, along in zip(given[n:], self.inputs)]
        sizes = dict(self.sizes)
        sizes |= {name: int(blocks[k][0]) for name, k in self.starts}
        sizes |= {name: int(blocks[k][1]) for name, k in self.counts}
        results = kernel_of(self.made)(*arrays, sizes=sizes or None, threads=self.threads)
        return tuple(results) if isinstance(results, tuple) else (results,)


def _only(x: Any) -> Any:
    while isinstance(x, list):
        (x,) = x
    return x


def inside_of(span: tuple[int, int], extent: int) -> tuple[int, int]:
    """The part of a window that is in the tensor, at least one element (extents are not 0)."""
    first = min(max(span[0], 0), extent - 1)
    return first, max(min(span[1], extent), first + 1)


def span_of(block: Sequence[int], along: Along) -> tuple[int, int]:
    """From where to where a block's window goes, beyond the tensor, too."""
    _, scale, low, high, _ = along
    start, count = block
    return scale * start + low, scale * (start + count - 1) + high + 1


def _window(x: Any, along: Sequence[Along | None], blocks: Sequence[Any]) -> Any:
    """The window of an input, with room where it goes beyond the tensor: nothing reads there."""
    shape, own, read = list(x.shape), [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for d, a in enumerate(along):
        if a is None:
            continue
        first, last = span_of(blocks[a[0]], a)
        begin = inside_of((first, last), a[4])[0]
        low = max(first, 0)
        high = max(min(last, a[4]), low)
        shape[d] = int(last - first)
        own[d], read[d] = slice(low - first, high - first), slice(low - begin, high - begin)
    if tuple(shape) == x.shape:
        return x
    window = room(shape, x.dtype)
    window[tuple(own)] = x[tuple(read)]
    return window


def room(shape: Sequence[int], dtype: Any) -> Array:
    """Memory for a window."""
    return np.zeros(shape, dtype)
