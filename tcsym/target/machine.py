# SPDX-License-Identifier: Apache-2.0
"""Facts of a machine -> one frozen value: what schedules and code are chosen by.

No other stage knows a number of a processor, and none asks which processor it is.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tcsym.types import DType

# Sums of products of short elements side by side in 32 bits (`ir.packed`).
DotFunction = Literal["dot_int16", "dot_int8", "dot_uint8_int8", "dot_bfloat16"]
Family = Literal["core", "zen"]  # Intel's, AMD's


LAUNCH, NODE = 3000, 2500  # see `Multiprocessor`


def least_recorded() -> int:
    """Launches of a call from which on a graph of them, which is launched itself, is as quick."""
    return -(-LAUNCH // (LAUNCH - NODE))


class Level(Struct, frozen=True):
    """A level of memory that holds data near: its capacity and its lines, in bytes.

    ways: lines at addresses that are alike which it holds at once.
    """

    name: str
    bytes: int
    line: int
    ways: int


class Tile(Struct, frozen=True):
    """The register tile that contractions have by default: rows, and vectors of columns."""

    rows: int
    vectors: int


class Multiprocessor(Struct, frozen=True):
    """What runs blocks of a device: what it holds at once, and what it does in a cycle.

    products: of 16-bit numbers, by instructions for matrices. memory_bytes, l2_bytes: its share of
    the device's memory, and of what all share of the second cache. latency: of that memory, in
    cycles. launch: cycles until a grid that was launched runs; node: until one of a graph does.
    barrier: in which all blocks of a grid wait for each other. update: between two updates of one
    element of memory as a whole. mhz: of its clock. register_unit: registers are given to
    threads in such. schedulers: that issue an instruction of a warp a cycle. Reference: NVIDIA's
    tuning guides.
    """

    registers: int
    threads: int
    shared_bytes: int
    fmas: int
    products: int
    memory_bytes: int
    l2_bytes: int
    mhz: int
    latency: int = 600
    blocks: int = 32
    bank_bytes: int = 128
    launch: int = LAUNCH
    node: int = NODE
    barrier: int = 2000
    update: int = 2
    register_unit: int = 8
    schedulers: int = 4


class Dot(Struct, frozen=True):
    """A sum of products that is an instruction of such `elements`, by LLVM's name with `{bits}` of
    a vector; without a name one instruction makes sums of pairs, and another adds these.
    """

    function: DotFunction
    instruction: str = ""
    elements: str = "i32"


class Machine(Struct, frozen=True):
    """A machine. `levels`: nearest first. `vector_bits` 0: scalar code only.

    name: of machines with the same vectors; one's tuned options are a good guess for another's.
    converts: types of 16 bits that one instruction makes of float32. strip_vectors: of a strip of
    columns. stream_bytes: stores that bypass the caches go to multiples of that. stream_fence: what
    orders these with others, as LLVM names it; empty: what orders all stores. has_libm: code may
    call the C library's functions; a machine without it has fused multiply-add. workers: of a
    device, what runs blocks beside each other, each a `multiprocessor`. factors: types of matrices
    that one instruction multiplies. family: of processors on which instructions take about as long,
    beside each other.
    """

    name: str
    levels: tuple[Level, ...]
    vector_bits: int
    vector_registers: int
    has_fma: bool
    has_masks: bool
    converts: tuple[DType, ...]
    dots: tuple[Dot, ...]
    tile: Tile
    strip_vectors: int
    stream_bytes: int
    stream_fence: str = ""
    has_libm: bool = True
    workers: int = 1
    multiprocessor: Multiprocessor | None = None
    factors: tuple[DType, ...] = ()
    family: Family = "core"

    @property
    def unit(self) -> Multiprocessor:
        """Of a device."""
        assert self.multiprocessor is not None, f"{self.name} is no device"
        return self.multiprocessor

    def level(self, name: str) -> Level:
        """The level of that name: on a CPU a cache, `l1`, `l2` or `l3`."""
        return next(level for level in self.levels if level.name == name)

    @property
    def line_bytes(self) -> int:
        """Of the nearest level: what one access fetches."""
        return self.levels[0].line

    def lanes(self, element_bits: int) -> int:
        """Elements of that width in one vector register (1 without vectors)."""
        return max(1, self.vector_bits // element_bits)

    def block_lanes(self, element_bits: int) -> int:
        """Elements a side of a block that is transposed in registers, 16 at most: the columns of
        more are more registers than there are, and few dimensions are as long."""
        return min(16, self.lanes(element_bits))
