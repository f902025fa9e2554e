# SPDX-License-Identifier: Apache-2.0
"""Arrays in the memory layouts that callers have, in memory of which every byte is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import DTypeLike, NDArray

LAYOUTS = ("dense", "transposed", "rows", "columns", "sliced", "reversed", "turned", "lifted")
GARBAGE, MARGIN = 0xA5, 64  # what memory holds before; bytes around every array


class Laid(Struct, frozen=True):
    """`array` lies in `memory`, which is garbage around it."""

    memory: NDArray[np.uint8]
    array: NDArray[Any]
    layout: str

    def is_garbage_around(self) -> bool:
        """Nothing but the array's elements was written."""
        clean = laid(self.array.shape, self.array.dtype, self.layout)
        clean.array[...] = self.array
        return clean.memory.tobytes() == self.memory.tobytes()


def laid(shape: tuple[int, ...], dtype: DTypeLike, layout: str) -> Laid:
    """A new array of garbage in that layout; of rank 0, or empty: dense."""
    kind = np.dtype(dtype)
    if not shape or 0 in shape:
        layout = "dense"
    whole = {
        "transposed": shape[::-1],
        "rows": (*shape[:-1], shape[-1] + 3) if shape else shape,
        "columns": (*shape[:-2], *shape[:-3:-1]) if len(shape) > 1 else shape,
        "sliced": tuple(2 * n + 1 for n in shape),
    }.get(layout, shape)
    lift = 1 if layout == "lifted" and kind.itemsize > 1 else 0
    n_bytes = int(np.prod(whole, dtype=int)) * kind.itemsize
    memory = np.full(n_bytes + 2 * MARGIN + lift, GARBAGE, np.uint8)
    inside = memory[MARGIN + lift : MARGIN + lift + n_bytes].view(kind).reshape(whole)
    match layout:
        case "transposed":
            array = inside.T
        case "rows":
            array = inside[..., : shape[-1]]
        case "columns" if len(shape) > 1:
            array = inside.swapaxes(-1, -2)
        case "sliced":
            array = inside[tuple(slice(1, None, 2) for _ in shape)]
        case "reversed":
            array = inside[::-1]
        case "turned":
            array = inside[..., ::-1]
        case _:
            array = inside
    return Laid(memory, array, layout)


def relaid(x: NDArray[Any], layout: str) -> NDArray[Any]:
    """A copy in that layout."""
    made = laid(x.shape, x.dtype, layout).array
    made[...] = x
    return made
