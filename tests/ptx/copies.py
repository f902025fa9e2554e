# SPDX-License-Identifier: Apache-2.0
"""Asynchronous copies from global to shared memory, which happen as late as they may.

Reference: PTX ISA, 9.7.9.25.3 (cp.async). A group is what a thread began since its last commit.
`wait_group n` is over when all but the thread's last n groups are done; what is copied is there for
other threads once they have waited for the thread, too. Until then there is no number in its place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.ptx.clocks import Clocks
from tests.ptx.memory import READ, WRITE, Space

Array = np.ndarray[Any, Any]


class _Copy(NamedTuple):
    lanes: Array  # among those of the blocks at hand
    groups: Array
    to: Array
    source: Array
    counts: Array  # bytes that are read, zeros follow
    n_bytes: int


class Copies:
    """Of the threads `ids` of some blocks."""

    def __init__(self, memory: Space, shared: Space, clocks: Clocks, ids: Array) -> None:
        self._memory, self._shared, self._clocks, self._ids = memory, shared, clocks, ids
        self._committed = np.zeros(len(ids), "i4")
        self._begun: list[_Copy] = []

    def begin(self, lanes: Array, to: Array, source: Array, n_bytes: int, counts: Array) -> None:
        """to, source: addresses."""
        to = self._shared.places(to, n_bytes, WRITE)
        reads = counts > 0
        source = source.copy()
        source[~reads] = self._memory.first  # is not looked at
        source[reads] = self._memory.places(source[reads], n_bytes, READ).view("u8")
        copy = _Copy(lanes, self._committed[lanes], to, source.view("i8"), counts, n_bytes)
        self._note(copy)
        self._shared.store(_spread(to, n_bytes), np.full(to.size * n_bytes, 0xFF, "u1"))
        self._begun.append(copy)

    def commit(self, lanes: Array) -> None:
        self._committed[lanes] += 1

    def wait(self, lanes: Array, n: int) -> None:
        active = np.zeros(len(self._ids), bool)
        active[lanes] = True
        kept = []
        for copy in self._begun:
            ends = active[copy.lanes] & (copy.groups < self._committed[copy.lanes] - n)
            if ends.any():
                self._land(_part(copy, ends))
            if not ends.all():
                kept.append(_part(copy, ~ends))
        self._begun = kept

    def _note(self, copy: _Copy) -> None:
        """It is under way: it may read and write now already."""
        ids, reads = self._ids[copy.lanes], copy.counts > 0
        self._memory.note_reads(self._clocks, ids[reads], copy.source[reads], copy.n_bytes)
        self._shared.note_writes(self._clocks, ids, copy.to, copy.n_bytes)

    def _land(self, copy: _Copy) -> None:
        self._note(copy)
        n = copy.n_bytes
        inside = np.arange(n) < copy.counts[:, None]
        source = np.where(inside, copy.source[:, None] + np.arange(n), 0)
        values = np.where(inside, self._memory.load(source, 1), 0).astype("u1")
        self._shared.store(_spread(copy.to, n), values.reshape(-1))


def _part(copy: _Copy, mask: Array) -> _Copy:
    return _Copy(*(x[mask] for x in copy[:-1]), copy.n_bytes)


def _spread(at: Array, n_bytes: int) -> Array:
    """The places of all bytes."""
    return (at[:, None] + np.arange(n_bytes)).reshape(-1)
