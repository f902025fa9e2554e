# SPDX-License-Identifier: Apache-2.0
"""What threads know to be done: by barriers of their block, and by fences with atomic words.

Reference: PTX ISA, 8 (memory consistency model), of which this is the part that our kernels use. A
barrier orders all of a block. A fence and then an atomic operation on a word publish what the
block's threads did before its last barrier. Who reads the word, and then passes a fence, learns of
that; the rest of its block does with the next barrier.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Clocks:
    """Of the blocks of a grid. start: a time after all that earlier grids did."""

    def __init__(self, n_blocks: int, n_threads: int, start: int, together: bool) -> None:
        self.n_threads, self.start = n_threads, start
        self.times = np.full(n_blocks, start, "i4")  # of each block; a barrier is a step
        self.known: Array | None = None  # of blocks (columns) by blocks that run together (rows)
        if together:
            self.known = np.full((n_blocks, n_blocks), start, "i4")
            self._met = self.known.copy()  # read, but no fence was passed since
            self._passed = self.known.copy()  # nor a barrier
            self._fenced = np.full(n_blocks, start, "i4")
            self._words: dict[int, Array] = {}

    def blocks_of(self, threads: Array) -> Array:
        """Also of marks for several threads of a block."""
        return np.where(threads < -1, -2 - threads, threads // self.n_threads)

    def now_of(self, threads: Array) -> Array:
        return self.times[threads // self.n_threads]

    def told(self, thread: Any) -> str:
        if thread < 0:
            return f"some thread of block {-2 - int(thread)}"
        block, number = divmod(int(thread), self.n_threads)
        return f"thread {number} of block {block}"

    def are_ordered(self, threads: Array, others: Array, times: Array) -> Array:
        """Whether what others did at these times is done for the threads."""
        ours, theirs = self.blocks_of(threads), self.blocks_of(others)
        theirs = np.minimum(theirs, len(self.times) - 1)  # of an earlier grid, with more blocks
        same = ours == theirs
        ordered = (others == threads) | (times < self.start) | same & (times < self.times[ours])
        if self.known is not None:
            ordered |= ~same & (times < self.known[ours, theirs])
        return ordered

    def barrier(self, blocks: Array) -> None:
        self.times[blocks] += 1
        if self.known is not None:
            self.known[blocks] = np.maximum(self.known[blocks], self._passed[blocks])

    def fence(self, threads: Array) -> None:
        if self.known is not None:
            blocks = np.unique(self.blocks_of(threads))
            self._fenced[blocks] = self.times[blocks]
            self._passed[blocks] = np.maximum(self._passed[blocks], self._met[blocks])

    def publish(self, thread: int, address: int) -> None:
        """An atomic operation on a word."""
        if self.known is None:
            return
        block = thread // self.n_threads
        own = self.known[block].copy()
        own[block] = self._fenced[block]
        word = self._words.setdefault(address, own)
        np.maximum(word, own, out=word)
        self.learn(thread, address)

    def learn(self, thread: int, address: int) -> None:
        """A word is read that others change meanwhile."""
        if self.known is not None and address in self._words:
            met = self._met[thread // self.n_threads]
            np.maximum(met, self._words[address], out=met)
