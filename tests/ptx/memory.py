# SPDX-License-Identifier: Apache-2.0
"""Memory of a device, and of blocks: every access is judged.

One array of bytes each. What is accessed must lie in it where that is allowed, at a multiple of its
size; and two threads that touch a place, not both to read it, must have waited for each other
between (`clocks.py`). What nobody wrote is all ones: no number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ptx.clocks import Clocks

Array = np.ndarray[Any, Any]
READ, WRITE, SHARED = 1, 2, 4  # what is allowed; SHARED: by any threads at any time
NOBODY = -1  # among threads; below: several of a block, the first of which is at -2


class Fault(Exception):
    """What a device would not do as the program means it."""


class Space:
    """From address `first` on. unit: bytes of the smallest access to it."""

    def __init__(self, name: str, first: int, n_bytes: int, unit: int) -> None:
        self.name, self.first, self.unit = name, first, unit
        self.n_bytes = -(-n_bytes // 16) * 16
        self.bytes = np.full(self.n_bytes, 0xFF, "u1")
        self.views = {n: self.bytes.view(f"u{n}") for n in (1, 2, 4, 8)}
        self.allowed = np.zeros(self.n_bytes, "u1")
        n = self.n_bytes // unit
        self.writer, self.reader = np.full(n, NOBODY, "i4"), np.full(n, NOBODY, "i4")
        self.written, self.read = np.zeros(n, "i4"), np.zeros(n, "i4")

    def places(self, addresses: Array, n_bytes: int, use: int) -> Array:
        """Where in the memory the addresses are, if that many bytes there may be used so."""
        at = (addresses - np.uint64(self.first)).view("i8")
        if at.size:
            outside = (at < 0) | (at > self.n_bytes - n_bytes)
            if outside.any():
                raise Fault(f"{self._told(addresses[outside][0])} is no {self.name} memory")
            if (at % n_bytes).any():
                wrong = addresses[at % n_bytes != 0][0]
                raise Fault(f"{self._told(wrong)} is no multiple of {n_bytes}")
            allowed = self.allowed[at] & self.allowed[at + (n_bytes - 1)] & use
            if (allowed != use).any():
                wrong = addresses[allowed != use][0]
                raise Fault(f"{self._told(wrong)} lies in no array that may be used so")
        return at

    def _told(self, address: Any) -> str:
        return f"address {int(address):#x} ({int(address) - self.first} of {self.name} memory)"

    def load(self, at: Array, n_bytes: int) -> Array:
        return self.views[n_bytes][at // n_bytes]

    def store(self, at: Array, values: Array) -> None:
        self.views[values.itemsize][at // values.itemsize] = values

    def note_reads(self, clocks: Clocks, threads: Array, at: Array, n_bytes: int) -> None:
        """Threads read what lies there: nobody may write it meanwhile."""
        allowed = self.allowed[at]
        if not (allowed & WRITE).any() or (allowed & SHARED).any():
            return
        threads, cells = self._cells(threads, at, n_bytes)
        writers = self.writer[cells]
        self._require(clocks, threads, writers, self.written[cells], at, "reads what {} writes")
        blocks, now = clocks.blocks_of(threads), clocks.now_of(threads)
        before = self.reader[cells]
        of_block = (clocks.blocks_of(before) == blocks) & (self.read[cells] == now)
        others = of_block & (before != threads) & (before != NOBODY)
        several = -2 - blocks
        marks = np.where(others, several, threads)
        self.reader[cells] = marks
        self.read[cells] = now
        mixed = self.reader[cells] != marks
        if mixed.any():
            self.reader[cells[mixed]] = several[mixed]

    def note_writes(self, clocks: Clocks, threads: Array, at: Array, n_bytes: int) -> None:
        """Threads write there: nobody else may touch it meanwhile."""
        if (self.allowed[at] & SHARED).any():
            return
        threads, cells = self._cells(threads, at, n_bytes)
        writers, readers = self.writer[cells], self.reader[cells]
        self._require(clocks, threads, writers, self.written[cells], at, "writes what {} writes")
        self._require(clocks, threads, readers, self.read[cells], at, "writes what {} reads")
        self.writer[cells] = threads
        self.written[cells] = clocks.now_of(threads)
        lost = self.writer[cells] != threads
        if lost.any():
            told = clocks.told(threads[lost][0]), clocks.told(self.writer[cells[lost]][0])
            raise Fault(f"{told[0]} writes what {told[1]} writes, of {self.name} memory")

    def _cells(self, threads: Array, at: Array, n_bytes: int) -> tuple[Array, Array]:
        """Of all that is accessed, the places in units, and by whom."""
        cells, n = at // self.unit, n_bytes // self.unit
        if n > 1:
            cells = (cells[:, None] + np.arange(n)).reshape(-1)
            threads = np.repeat(threads, n)
        return threads, cells

    def _require(
        self, clocks: Clocks, threads: Array, others: Array, times: Array, at: Array, what: str
    ) -> None:
        wrong = (others != NOBODY) & ~clocks.are_ordered(threads, others, times)
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            told = what.format(clocks.told(others[first]))
            place = int(at[first * len(at) // len(threads)])
            who = clocks.told(threads[first])
            raise Fault(f"{who} {told}, at {place} of {self.name} memory, and did not wait")
