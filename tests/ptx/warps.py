# SPDX-License-Identifier: Apache-2.0
"""What the threads of a warp do together: values of all 32 in, values of all out.

Reference: PTX ISA, 9.7.9.6 (shfl.sync), 9.7.14.5 (matrix fragments, ldmatrix, mma). Arrays are of
warps by threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.ptx.floats import bfloat_of_bits

Array = np.ndarray[Any, Any]
WARP = 32
_LANES = np.arange(WARP)
_GROUP, _IN_GROUP = _LANES >> 2, _LANES % 4  # groupID, threadID_in_group

# Of each row of a matrix that is loaded: who gets some of it; of a transposed one.
READERS = {
    False: _LANES.reshape(8, 4),
    True: np.stack([np.flatnonzero(row // 2 == _IN_GROUP) for row in range(8)]),
}


def shuffled(mode: str, a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """For each thread the value of the one that it asks for, or its own; whether it got that."""
    by, clamp, mask = (x.astype("i4") for x in (b & 31, c & 31, c >> 8 & 31))
    last = (_LANES & mask) | (clamp & ~mask)
    first = _LANES & mask
    source = {
        "up": _LANES - by,
        "down": _LANES + by,
        "bfly": _LANES ^ by,
        "idx": first | (by & ~mask),
    }[mode]
    is_there = source >= last if mode == "up" else source <= last
    source = np.where(is_there, source, _LANES)
    return np.take_along_axis(a, source, 1), is_there


def fragments(rows: Array, transposed: bool) -> Array:
    """Rows of one 8 x 8 matrix of 16 bits for each warp -> what each thread gets: two elements that
    follow each other in a row, or in a column."""
    matrix = rows.transpose(0, 2, 1) if transposed else rows
    low, high = (matrix[:, _GROUP, 2 * _IN_GROUP + k].astype("u4") for k in (0, 1))
    return low | high << np.uint32(16)


def _of_left_16(i: int) -> tuple[Array, Array]:
    """Row and column of element i of a thread, of a 16 x 16 matrix of 16 bits."""
    row = _GROUP if i < 2 or 4 <= i < 6 else _GROUP + 8
    column = _IN_GROUP * 2 + (i & 1) + (0 if i < 4 else 8)
    return row, column


def _of_right_16(i: int) -> tuple[Array, Array]:
    """The same of a 16 x 8 one."""
    return _IN_GROUP * 2 + (i & 1) + (0 if i < 2 else 8), _GROUP


def _of_left_8(i: int) -> tuple[Array, Array]:
    """Of a 16 x 8 one of tf32."""
    row = _GROUP if i in (0, 2) else _GROUP + 8
    return row, _IN_GROUP if i < 2 else _IN_GROUP + 4


def _of_right_8(i: int) -> tuple[Array, Array]:
    """Of an 8 x 8 one of tf32."""
    return _IN_GROUP + 4 * i, _GROUP


def _of_sums(i: int) -> tuple[Array, Array]:
    """Of a 16 x 8 one that is added to."""
    return _GROUP if i < 2 else _GROUP + 8, _IN_GROUP * 2 + (i & 1)


def _elements(kind: str, registers: Sequence[Array]) -> list[Array]:
    """The numbers in a thread's registers, the lower half first."""
    if kind == "tf32":  # the lower 13 bits are not looked at
        return [(r & np.uint32(0xFFFFE000)).view("f4") for r in registers]
    halves = [half for r in registers for half in (r & np.uint32(0xFFFF), r >> np.uint32(16))]
    bits = [half.astype("u2") for half in halves]
    return [bfloat_of_bits(x) if kind == "bf16" else x.view("f2") for x in bits]


def _matrix(elements: Sequence[Array], shape: tuple[int, int], place: Any) -> Array:
    made = np.full((len(elements[0]), *shape), np.nan)
    for i, x in enumerate(elements):
        row, column = place(i)
        made[:, row, column] = x
    return made


def product(
    kind: str, depth: int, left: Sequence[Array], right: Sequence[Array], sums: Sequence[Array]
) -> list[Array]:
    """left * right + sums, of what threads hold of the matrices, summed in 64 bits."""
    of_left, of_right = (_of_left_8, _of_right_8) if depth == 8 else (_of_left_16, _of_right_16)
    a = _matrix(_elements(kind, left), (16, depth), of_left)
    b = _matrix(_elements(kind, right), (depth, 8), of_right)
    d = (a @ b + _matrix(sums, (16, 8), _of_sums)).astype("f4")
    return [d[:, row, column] for row, column in map(_of_sums, range(4))]
