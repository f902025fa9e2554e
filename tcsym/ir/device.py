# SPDX-License-Identifier: Apache-2.0
"""What only devices do: barriers, copies that run beside, products of matrices by a warp.

A region of a device's kernel is a nest of `block` loops, or a `grid` loop around such nests: one
grid, all blocks of which run at once, and of each nest take every block that is theirs. Inside are
nests of `thread` loops, all of one shape; the innermost counts fastest through a block's threads,
WARP of them are a warp, and the place of a thread in its warp is its lane. A value or node of the
whole warp is one that all of its threads come to together. Reference: PTX ISA (`bar.sync`,
`cp.async`, `ldmatrix`, `mma`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from tcsym.index.expr import TRUE, Condition, Index, floordiv, mod
from tcsym.types import DType

WARP = 32
TILE_ROWS, TILE_COLUMNS = 16, 8  # of a `MatrixMultiply`
MOST_STAYING = 1 << 16  # blocks of a grid that run at once: more than any device has
STAYING = 2  # of them on a multiprocessor, for which a grid loop's code leaves room
COPIED_BYTES = (4, 8, 16)  # that a `BeginCopy` may move
MATRIX_ROWS, ROW_BYTES, HELD_BYTES = 8, 16, 4  # of a matrix of `LoadMatrices`, and of a thread


class DeviceNode:
    """Base of the nodes below."""

    __slots__ = ()


class Barrier(Struct, DeviceNode, frozen=True):
    """No thread of a block goes on before all are here; each then sees what the others wrote."""


class GridBarrier(Struct, DeviceNode, frozen=True):
    """No thread of a grid goes on before all are here; each then sees what the others wrote.

    Where all blocks run at once: in a loop of the kind `grid`. counter: an int32 in the device's
    memory, 0 when the grid begins, that nothing else uses.
    """

    counter: str


class BeginCopy(Struct, DeviceNode, frozen=True):
    """target[t.., u + e] = source[s.., v + e] for 0 <= e < elements; zeros unless `condition`.

    From global to shared memory, at any time until the thread has waited for it. It moves one of
    COPIED_BYTES, which both addresses are multiples of.
    """

    target: str
    target_subscripts: tuple[Index, ...]
    source: str
    source_subscripts: tuple[Index, ...]
    elements: int = 1
    condition: Condition = TRUE


class CommitCopies(Struct, DeviceNode, frozen=True):
    """What the thread has begun to copy since the last one is a group."""


class WaitCopies(Struct, DeviceNode, frozen=True):
    """All groups of the thread but the last `pending` are in place, as it sees memory."""

    pending: int = 0


class LoadMatrices(Struct, DeviceNode, frozen=True):
    """What each thread holds of small matrices in shared memory, into registers, by a warp.

    A matrix is 8 rows of the source, of 16 bytes each, at multiples of that. The first begins at
    `source_subscripts`, matrix i as many rows and columns further on as the steps of the bits of i
    say: two matrices for one step, four for two. lane: the thread's. It gets four bytes of each, in
    order, from `target_subscripts` on along the last dimension: of row lane / 4 what is the fourth
    number lane % 4; transposed, of a matrix of 16 bits, as if its rows were columns.
    """

    target: str
    target_subscripts: tuple[Index, ...]
    source: str
    source_subscripts: tuple[Index, ...]
    steps: tuple[tuple[int, int], ...]
    lane: Index
    transposed: bool = False

    @property
    def row(self) -> tuple[Index, ...]:
        """Where the row begins of which this thread tells, one of each matrix by eight lanes."""
        *others, row, column = self.source_subscripts
        for bit, (down, along) in enumerate(self.steps):
            is_set = mod(floordiv(self.lane, MATRIX_ROWS << bit), 2)
            row, column = row + is_set * down, column + is_set * along
        return (*others, row + mod(self.lane, MATRIX_ROWS), column)

    def elements(self, n_bytes: int) -> Iterator[tuple[tuple[Index, ...], tuple[Index, ...]]]:
        """Subscripts in the target and in the source of each, of so many bytes."""
        *others, row, column = self.source_subscripts
        *rest, target = self.target_subscripts
        n, across, along = HELD_BYTES // n_bytes, floordiv(self.lane, 4), mod(self.lane, 4)
        for k in range(n << len(self.steps)):
            step = [sum(s[d] * (k // n >> b & 1) for b, s in enumerate(self.steps)) for d in (0, 1)]
            inside = (across, along * n + k % n)
            down, right = inside[::-1] if self.transposed else inside
            source = (*others, row + step[0] + down, column + step[1] + right)
            yield (*rest, target + k), source


class MatrixMultiply(Struct, DeviceNode, frozen=True):
    """target[i, j] += sum over k < depth of left[i, k] * right[k, j], by a warp: 16 x 8 elements.

    Each matrix lies in registers of all its threads: from the subscripts given on, along the last
    dimension, are the elements of it that this thread holds (`held`). Sums are float32; depth 16
    takes factors of 16 bits, depth 8 float32, of which it uses ten bits behind the point.
    """

    target: str
    target_subscripts: tuple[Index, ...]
    left: str
    left_subscripts: tuple[Index, ...]
    right: str
    right_subscripts: tuple[Index, ...]
    depth: int

    @property
    def operands(self) -> tuple[tuple[str, tuple[Index, ...], int], ...]:
        """Sums, left and right factors: the buffer, where, and how many elements a thread holds."""
        return (
            (self.target, self.target_subscripts, n_held("target", self.depth)),
            (self.left, self.left_subscripts, n_held("left", self.depth)),
            (self.right, self.right_subscripts, n_held("right", self.depth)),
        )


def is_atomic(op: str, dtype: DType) -> bool:
    """Devices update such an element as a whole, and no order of updates can be seen."""
    exact = (op == "add" and dtype.is_integer) or op in ("min", "max")
    return exact and dtype.bytes in (4, 8)


def product_depth(dtype: DType) -> int:
    """Of a product of matrices of that type: 32 bytes of each row."""
    return 32 // dtype.bytes


OnDevice = (
    Barrier | GridBarrier | BeginCopy | CommitCopies | WaitCopies | LoadMatrices | MatrixMultiply
)
Operand = Literal["target", "left", "right"]


def buffers_of(n: OnDevice) -> tuple[str, ...]:
    """Buffers that the node touches; the first of them is written."""
    match n:
        case GridBarrier():
            return (n.counter,)
        case BeginCopy() | LoadMatrices():
            return n.target, n.source
        case MatrixMultiply():
            return n.target, n.left, n.right
        case _:
            return ()


def n_held(operand: Operand, depth: int) -> int:
    """How many elements of the matrix each thread of the warp holds."""
    shapes = {
        "target": TILE_ROWS * TILE_COLUMNS,
        "left": TILE_ROWS * depth,
        "right": depth * TILE_COLUMNS,
    }
    return shapes[operand] // WARP


def held(operand: Operand, depth: int, lane: Index, element: int) -> tuple[Index, Index]:
    """Row and column, in its matrix, of an element that the thread of that lane holds.

    Reference: PTX ISA, fragments of mma.m16n8k16 (16 bits) and mma.m16n8k8 (tf32).
    """
    group, member = floordiv(lane, 4), mod(lane, 4)
    pair, second = divmod(element, 2)
    if operand == "target":
        return group + 8 * pair, 2 * member + second
    if depth == 16:
        along = 2 * member + second
        if operand == "left":
            return group + 8 * (pair % 2), along + 8 * (pair // 2)
        return along + 8 * pair, group
    if operand == "left":
        return group + 8 * second, member + 4 * pair
    return member + 4 * element, group


def not_on_a_cpu(n: object) -> AssertionError:
    """For code that sees kernels of processors only, as `verify` sees to."""
    return AssertionError(f"only a device has this: {n}")
