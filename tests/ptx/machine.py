# SPDX-License-Identifier: Apache-2.0
"""A grid: threads of its blocks run a function, all at once where they are at one place.

Threads are lanes. Those at one block of instructions run it together; of several such groups the
one goes first that is behind in the order of `order.py`, so parted threads meet again. Threads wait
at barriers for all of their block, and before what a warp does together for all of their warp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tests.ptx.clocks import Clocks
from tests.ptx.copies import Copies
from tests.ptx.memory import READ, WRITE, Fault, Space
from tests.ptx.order import ranks
from tests.ptx.steps import MOST_LANES, SHARED_AT, At, Operands, Step, step_of
from tests.ptx.text import Block, Function, Instruction, Refused, Text
from tests.ptx.warps import WARP

Array = np.ndarray[Any, Any]
AT_ONCE = 4096  # threads whose blocks run at once, if there are more blocks
MOST_BLOCKS = 1 << 20  # of instructions, that are run before something else is taken for endless
_ALL = slice(None)
_GROUP = 128  # what blocks' shared memory begins at multiples of


class Code:
    """A function, made ready when it is first launched."""

    def __init__(self, function: Function, symbols: Mapping[str, int]) -> None:
        self.function = function
        operands = Operands(function, symbols)
        self.steps: list[list[tuple[Instruction, Step]]] = [
            [(s, step_of(s, operands)) for s in b.instructions] for b in function.blocks
        ]
        self.ran: set[int] = set()  # blocks, since it was made
        self.ranks = ranks(function.blocks)
        self.at_rank = {rank: k for k, rank in enumerate(self.ranks)}
        self.spins = [
            k in (b.then, b.taken) and any(".volatile." in s.name for s in b.instructions)
            for k, b in enumerate(function.blocks)
        ]


class Program:
    """A module. addresses: of its arrays of constants, see `constants`."""

    def __init__(self, text: str) -> None:
        self.text = Text(text)
        self.constants = self.text.constants
        self.unit = min((_bytes_of(m) for m in _ACCESS.finditer(text)), default=4)
        self._codes: dict[str, Code] = {}

    def ran(self) -> Iterator[Instruction]:
        """What was run of it, in the order of the text."""
        for code in self._codes.values():
            for number in sorted(code.ran):
                block = code.function.blocks[number]
                yield from block.instructions
                if block.last is not None:
                    yield block.last

    def code(self, name: str, addresses: Mapping[str, int]) -> Code:
        if name not in self._codes:
            symbols = {"shared": SHARED_AT, **addresses}
            self._codes[name] = Code(self.text.function(name), symbols)
        return self._codes[name]


_ACCESS = re.compile(r"\b(?:ld|st|atom|red)\.[\w.]*(?:global|shared)[\w.]*\.[busf](8|16|32|64)\b")


def _bytes_of(m: re.Match[str]) -> int:
    return min(4, int(m[1]) // 8)


class Blocks:
    """Some blocks that run at once: their threads, memory and clocks."""

    def __init__(
        self, memory: Space, clocks: Clocks, first: int, n_blocks: int, shared_bytes: int, unit: int
    ) -> None:
        n = clocks.n_threads
        self.memory, self.clocks = memory, clocks
        self.n_threads, self.n_blocks = n, n_blocks
        self.ids = np.arange(first * n, (first + n_blocks) * n, dtype="i4")
        stride = -(-shared_bytes // _GROUP) * _GROUP + _GROUP
        self.shared = Space("shared", SHARED_AT, stride * n_blocks, unit)
        for k in range(n_blocks):
            self.shared.allowed[stride * k : stride * k + shared_bytes] = READ | WRITE
        self.shared_offsets = np.repeat(np.arange(n_blocks, dtype="u8") * np.uint64(stride), n)
        self.copies = Copies(memory, self.shared, clocks, self.ids)
        self.n_changes = 0  # of memory that others may wait for


class Frame:
    """A call of a function: registers and parameters of all lanes."""

    def __init__(self, launch: Launch, blocks: Blocks, code: Code) -> None:
        self.launch, self.blocks, self.code = launch, blocks, code
        self.lanes = np.arange(len(blocks.ids))
        self.carry = np.zeros(len(self.lanes), bool)
        self.parameters: dict[str, Array] = {}
        n = len(self.lanes)
        self.registers: dict[str, Array] = {}
        for bits in (1, 16, 32, 64):
            names = [x for x, b in code.function.registers.items() if b == bits]
            made = np.zeros((len(names), n), bool)
            if bits > 1:
                made = np.full((len(names), n), (1 << bits) - 1, f"u{bits // 8}")
            self.registers.update(zip(names, made))

    def count(self, at: At) -> int:
        return len(self.lanes) if at is _ALL else len(at)

    def guard(self, text: str, at: At) -> Array:
        holds = self.registers[text.lstrip("!")][at]
        return ~holds if text[0] == "!" else holds

    def special(self, name: str) -> Array:
        """A special register."""
        ids, n = self.blocks.ids, self.blocks.n_threads
        values = {
            "%tid.x": ids % n,
            "%ctaid.x": ids // n,
            "%ntid.x": np.full(len(ids), n),
            "%nctaid.x": np.full(len(ids), self.launch.n_blocks),
            "%laneid": ids % n % WARP,
        }
        return values[name].astype("u4")

    def called(self, name: str, given: Sequence[Array], at: At) -> Array:
        """The result of a function of numbers, for those threads."""
        code = self.launch.code(name)
        frame = Frame(self.launch, self.blocks, code)
        frame.parameters = dict(zip(code.function.parameters, given))
        Run(frame, self.lanes[at]).finish()
        return frame.parameters["func_retval0"]


class Launch:
    """A function on a grid. words: its parameters."""

    def __init__(
        self,
        program: Program,
        addresses: Mapping[str, int],
        memory: Space,
        name: str,
        words: Sequence[int],
        shape: tuple[int, int, int],
    ) -> None:
        """shape: blocks, threads of a block, bytes that these share."""
        self._program, self._addresses, self._memory = program, addresses, memory
        self.n_blocks, self.n_threads, self._shared_bytes = shape
        self._name, self._words = name, words

    def code(self, name: str) -> Code:
        return self._program.code(name, self._addresses)

    def run(self, start: int, together: bool) -> int:
        """From that time on; when it ends. together: all blocks at once."""
        code = self.code(self._name)
        if code.function.most_threads < self.n_threads or self.n_threads > 1024:
            raise Fault(f"{self.n_threads} threads of a block of `{self._name}`")
        clocks = Clocks(self.n_blocks, self.n_threads, start, together)
        at_once = self.n_blocks if together else max(1, AT_ONCE // self.n_threads)
        if at_once * self.n_threads > MOST_LANES:
            raise Refused("so many blocks at once")
        for first in range(0, self.n_blocks, at_once):
            count = min(at_once, self.n_blocks - first)
            shared = self._shared_bytes, self._program.unit
            blocks = Blocks(self._memory, clocks, first, count, *shared)
            frame = Frame(self, blocks, code)
            if len(self._words) != len(code.function.parameters):
                raise Fault(f"{len(self._words)} parameters of `{self._name}`")
            frame.parameters = {
                name: np.full(len(frame.lanes), word % (1 << 64), "u8")
                for name, word in zip(code.function.parameters, self._words)
            }
            with np.errstate(all="ignore"):
                Run(frame, frame.lanes).finish()
        return int(clocks.times.max()) + 1


class Run:
    """Threads of a frame, from the function's begin to its end."""

    def __init__(self, frame: Frame, lanes: Array) -> None:
        self._frame, self._code = frame, frame.code
        self._n_lanes = len(frame.lanes)
        self._ready: dict[int, list[Array]] = {}  # by rank
        self._parked: dict[int, list[Array]] = {}  # for their warps
        self._spinning: dict[int, list[Array]] = {}  # until memory changes
        self._seen = -1  # changes, when they began to
        self._waits = np.full(self._n_lanes, -1)  # at the barrier in front of this block
        self._whole, self._n_blocks = lanes, 0
        self._put(0, lanes)

    def finish(self) -> None:
        while self._ready or self._spinning:
            if not self._ready:
                if self._seen == self._frame.blocks.n_changes:
                    break
                self._ready, self._spinning = self._spinning, {}
            rank = min(self._ready)
            lanes = self._taken(self._ready, rank)
            number = self._code.at_rank[rank]
            block = self._code.function.blocks[number]
            if block.together:
                lanes = self._whole_warps(rank, lanes)
            if lanes.size:
                self._execute(number, block, lanes)
        waiting = int((self._waits >= 0).sum())
        left = waiting + sum(len(x) for g in self._parked.values() for x in g)
        left += sum(len(x) for g in self._spinning.values() for x in g)
        if left:
            raise Fault(f"{left} threads of `{self._code.function.name}` wait for what never comes")

    def _taken(self, groups: dict[int, list[Array]], rank: int) -> Array:
        parts = groups.pop(rank)
        return parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))

    def _put(self, block: int, lanes: Array) -> None:
        if lanes.size:
            self._ready.setdefault(self._code.ranks[block], []).append(lanes)

    def _whole_warps(self, rank: int, lanes: Array) -> Array:
        """Those whose warps are here as a whole; others wait."""
        if rank in self._parked:
            lanes = np.sort(np.concatenate([lanes, *self._parked.pop(rank)]))
        n = self._frame.blocks.n_threads
        if n % WARP:
            raise Refused("a warp that is not whole")
        warp = lanes // WARP
        is_whole = np.bincount(warp)[warp] == WARP
        if not is_whole.all():
            self._parked[rank] = [lanes[~is_whole]]
        return lanes[is_whole]

    def _execute(self, number: int, block: Block, lanes: Array) -> None:
        f, at = self._frame, _ALL if lanes.size == self._n_lanes else lanes
        self._code.ran.add(number)
        self._n_blocks += 1
        if self._n_blocks > MOST_BLOCKS:
            raise Fault(f"`{self._code.function.name}` does not end")
        for instruction, step in self._code.steps[number]:
            try:
                step(f, at)
            except (Fault, Refused) as error:
                raise type(error)(f"`{self._code.function.name}`, {instruction}: {error}") from None
        if block.ending == "jump":
            self._put(block.then, lanes)
        elif block.ending == "branch":
            assert block.last is not None
            takes = f.guard(block.last.guard, at)
            for target, some in ((block.taken, lanes[takes]), (block.then, lanes[~takes])):
                if self._code.spins[number] and target == number and some.size:
                    self._spinning.setdefault(self._code.ranks[target], []).append(some)
                    self._seen = f.blocks.n_changes
                else:
                    self._put(target, some)
        elif block.ending == "barrier":
            self._barrier(block, lanes)

    def _barrier(self, block: Block, lanes: Array) -> None:
        """Goes on once all threads of a block of the grid have come."""
        blocks = self._frame.blocks
        n = blocks.n_threads
        if len(self._whole) != self._n_lanes:
            raise Refused(f"{block.last}: a barrier in a function that is called")
        self._waits[lanes] = block.then
        come = (self._waits.reshape(-1, n) >= 0).all(1)
        if not come.any():
            return
        there = np.flatnonzero(np.repeat(come, n))
        self._require_aligned(block, there, n)
        blocks.clocks.barrier(np.unique(blocks.ids[there] // n))
        goes_on, self._waits[there] = self._waits[there], -1
        for target in np.unique(goes_on).tolist():
            self._put(target, there[goes_on == target])

    def _require_aligned(self, block: Block, there: Array, n: int) -> None:
        """All threads of a warp come to one barrier."""
        at = self._waits[there].reshape(-1, n)
        for first in range(0, n, WARP):
            warp = at[:, first : first + WARP]
            if (warp != warp[:, :1]).any():
                raise Fault(f"{block.last}: threads of a warp come to different barriers")
