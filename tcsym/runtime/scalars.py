# SPDX-License-Identifier: Apache-2.0
"""Python and numpy scalars for 0-d parameters: which fit, and as what value (LANGUAGE E11).

A bool fits every type, an integer every type that holds it exactly, a float every floating type
that it does not overflow (it is rounded once). Nothing else fits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tcsym.types import DType

Scalar = bool | int | float | np.generic


def is_scalar(x: object) -> bool:
    """A Python or numpy number; numpy strings, dates and records are none."""
    return isinstance(x, bool | int | float | complex | np.generic)


def scalar_array(x: Any, dtype: DType) -> np.ndarray[Any, Any] | None:
    """`x` as a 0-d array of `dtype`, or None if it does not fit."""
    if isinstance(x, bool | np.bool_):
        return np.array(bool(x)).astype(dtype.numpy)
    if isinstance(x, int | np.integer) and not isinstance(x, np.timedelta64):
        return _from_integer(int(x), dtype)
    if isinstance(x, float | np.floating) or _is_small_float(x):
        return _from_float(x, dtype) if dtype.is_float else None
    return None


def _is_small_float(x: object) -> bool:
    """bfloat16 and the other floats of ml_dtypes are not `np.floating`."""
    return isinstance(x, np.generic) and np.can_cast(x.dtype, np.float64) and x.dtype.kind in "fV"


def _from_integer(value: int, dtype: DType) -> np.ndarray[Any, Any] | None:
    if not dtype.is_float:
        fits = dtype.lowest <= value <= dtype.highest
        return np.array(value, dtype=dtype.numpy) if fits else None
    try:
        with np.errstate(over="ignore"):
            array = np.array(float(value)).astype(dtype.numpy)
    except OverflowError:
        return None
    exact = math.isfinite(array[()]) and int(array[()]) == value
    return array if exact else None


def _from_float(x: Any, dtype: DType) -> np.ndarray[Any, Any] | None:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        from tcsym.frontend.interpret_values import stored

        array = np.asarray(stored(np.asarray(x), dtype))
        overflows = bool(np.isfinite(x)) and not math.isfinite(array[()])
    return None if overflows else array
