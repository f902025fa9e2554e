# SPDX-License-Identifier: Apache-2.0
"""Element types: the closed table of scalar types and the promotion rules of the language."""

from __future__ import annotations

import enum
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class DType(enum.Enum):
    """Scalar type of a tensor element; the value is its canonical name in the language."""

    BOOL = "bool"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    def __init__(self, name: str) -> None:
        # Calls read these: attributes cost a tenth of a table that hashes members.
        self.bits = 8 if name == "bool" else int(name.lstrip("buintfloa"))  # in memory
        self.bytes = self.bits // 8

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned integer; bool is not an integer."""
        return self not in _FLOATS and self is not DType.BOOL

    def holds_all(self, shape: Sequence[int]) -> bool:
        """The bytes of such an array can be counted, and numpy makes it: even one of no elements
        may not have other extents whose product is larger."""
        return math.prod([max(1, n) for n in shape]) * self.bytes < 1 << 63

    @property
    def is_short_integer(self) -> bool:
        """An integer of 8 or 16 bits, of which sums and products soon wrap."""
        return self.is_integer and self.bits <= 16

    @property
    def is_signed(self) -> bool:
        return self.is_integer and self.value.startswith("int")

    @property
    def is_unsigned(self) -> bool:
        return self.is_integer and self.value.startswith("uint")

    @property
    def lowest(self) -> int:
        """Least value of an integer type (bool: 0)."""
        return -(1 << (self.bits - 1)) if self.is_signed else 0

    @property
    def highest(self) -> int:
        """Greatest value of an integer type (bool: 1)."""
        if self is DType.BOOL:
            return 1
        return (1 << (self.bits - 1)) - 1 if self.is_signed else (1 << self.bits) - 1

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype (bfloat16: that of ml_dtypes)."""
        return _numpy_dtype(self.value)

    @property
    def accumulator(self) -> DType:
        """Type in which a reduction into this type is carried out."""
        return DType.FLOAT32 if self in (DType.FLOAT16, DType.BFLOAT16) else self

    def __str__(self) -> str:
        return self.value


_FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64})
NAMES: dict[str, DType] = {t.value: t for t in DType} | {
    "float": DType.FLOAT32,
    "double": DType.FLOAT64,
    "half": DType.FLOAT16,
}
_SIGNED = {8: DType.INT8, 16: DType.INT16, 32: DType.INT32, 64: DType.INT64}


@lru_cache(None)
def _numpy_dtype(name: str) -> np.dtype[Any]:
    import numpy as np

    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def promote(a: DType, b: DType) -> DType:
    """Common type of two values that are not literals (LANGUAGE A17, B7, E2)."""
    if a is b:
        return a
    if a is DType.BOOL or b is DType.BOOL:
        return b if a is DType.BOOL else a
    if a.is_float or b.is_float:
        return _promote_float(a, b)
    if a.is_signed == b.is_signed:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    return _SIGNED[min(64, max(signed.bits, 2 * unsigned.bits))]


def _promote_float(a: DType, b: DType) -> DType:
    if not (a.is_float and b.is_float):
        return a if a.is_float else b
    if {a, b} == {DType.FLOAT16, DType.BFLOAT16}:
        return DType.FLOAT32
    return a if a.bits >= b.bits else b


_SIGNIFICANT_BITS = {
    DType.FLOAT16: 11, DType.BFLOAT16: 8, DType.FLOAT32: 24, DType.FLOAT64: 53
}  # fmt: skip


def significant_bits(dtype: DType) -> int:
    """Of a floating type: it holds all integers of so many bits."""
    return _SIGNIFICANT_BITS[dtype]


def is_narrower(dtype: DType, wide: DType) -> bool:
    """True if a value of `dtype` is converted first where `wide` is declared (LANGUAGE F8).

    Integers of 32 bits stay what they are under `int64`, too: indices and terms wrap (E3, E4).
    """
    if dtype is wide:
        return False
    if not wide.is_float:
        return not dtype.is_float and dtype.bits <= 16 and holds(wide, dtype)
    if dtype.is_float:
        return dtype.bits < wide.bits
    return dtype.bits - dtype.is_signed <= _SIGNIFICANT_BITS[wide]


def holds(wide: DType, narrow: DType) -> bool:
    """True if every value of `narrow` may be stored into `wide` without a cast (never narrower)."""
    if wide is narrow or narrow is DType.BOOL:
        return True
    if wide is DType.BOOL:
        return False
    return promote(wide, narrow) is wide
