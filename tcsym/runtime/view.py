# SPDX-License-Identifier: Apache-2.0
"""What is known of an array's memory, or why there is none that can be used."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from tcsym.types import DType

# `pycuda`: its GPUArrays. `dlpack`: whatever else shows its memory on a device.
Library = Literal["numpy", "torch", "jax", "cupy", "pycuda", "dlpack"]
CUDA, CUDA_MANAGED = 2, 13  # DLPack's types of devices
ANY_STREAM = -1
_DLPACK_KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}  # bfloat16 has its own, 4


def dlpack_type(dtype: DType) -> int:
    """DLPack's code, bits and lanes in one number."""
    code = 4 if dtype is DType.BFLOAT16 else _DLPACK_KINDS[dtype.numpy.kind]
    return code | dtype.bits << 8 | 1 << 16


class Unusable(Exception):
    """An object that is no array we can read in place; the text says why and what to do."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


class Place(NamedTuple):
    """A device that holds memory: DLPack's type and number of it, and what its library calls it.

    `hint`: how an array gets from there to the kernel's device. `stream`: handle of the one on
    which its library works now, or `ANY_STREAM`.
    """

    type: int
    number: int
    name: str
    hint: str = "copy it there first"
    stream: int = 0


HERE = Place(1, 0, "cpu")


class Elsewhere(Unusable):
    """An array in the memory of a device that the kernel does not run on."""

    def __init__(self, place: Place) -> None:
        super().__init__(f"is on device {place.name}", place.hint)


class Misplaced(Unusable):
    """Of the arguments of a call, the one of this number is not where others are."""

    def __init__(self, k: int, why: str, hint: str) -> None:
        super().__init__(why, hint)
        self.k = k


class View(NamedTuple):
    """Memory of one array. Strides in bytes. `dtype` is None for types that tcsym does not have.

    `original`: the view of which this one is a private copy. `place`: where the memory is.
    """

    library: Library
    dtype: DType | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: int
    dense: bool  # row-major without gaps (sizes 0 and 1 count as such)
    aligned: bool  # address and strides are whole multiples of the element
    writable: bool
    owner: Any
    original: View | None = None
    place: Place = HERE

    @property
    def n_bytes(self) -> int:
        """Of all elements, of a type that tcsym has."""
        assert self.dtype is not None
        return math.prod(self.shape) * self.dtype.bytes

    @property
    def end(self) -> int:
        """Address behind the last element of a dense array of a type that tcsym has."""
        assert self.dense
        return self.pointer + self.n_bytes

    @property
    def type_name(self) -> str:
        """The element type in the words of its library."""
        return str(self.dtype) if self.dtype else str(getattr(self.owner, "dtype", "unknown"))
