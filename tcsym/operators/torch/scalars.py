# SPDX-License-Identifier: Apache-2.0
"""Numbers for 0-d parameters -> tensors. In a graph they are inputs of it, not constants.

torch.compile reads this code: the numbers may be symbols of torch, of which some have no value yet.
Those are taken to fit, which the graph checks of integers when it runs.
"""

from __future__ import annotations

from typing import Any

import torch

from tcsym.runtime.torch_internals import is_surely, require
from tcsym.types import DType, significant_bits

Number = Any  # bool, int, float, or a symbol of torch for one
_NUMBERS = bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool
_BOOLS = bool, torch.SymBool
_FLOATS = float, torch.SymFloat


def _integers(t: DType) -> tuple[int, int]:
    """The least and the greatest of those that the type holds, all between them included."""
    if t.is_float:
        return -(1 << significant_bits(t)), 1 << significant_bits(t)
    return t.lowest, min(t.highest, (1 << 63) - 1)  # torch's symbols are int64


# By what torch calls the type.
_INTEGERS = {t.value: _integers(t) for t in DType}
_OVERFLOW = {  # floats from there on are rounded to infinity
    t.value: (2 - 2.0 ** -significant_bits(t)) * 2.0**exponent
    for t, exponent in ((DType.FLOAT16, 15), (DType.BFLOAT16, 127), (DType.FLOAT32, 127))
}


def is_number(x: object) -> bool:
    return isinstance(x, _NUMBERS)


def fits(x: Number, dtype: str) -> bool:
    """False for a number that the type does not hold, or that it may not hold (LANGUAGE E11)."""
    if isinstance(x, _BOOLS):
        return True
    if isinstance(x, _FLOATS):
        limit = _OVERFLOW.get(dtype)
        if limit is None:
            return dtype == "float64"
        return not is_surely(abs(x) >= limit) or is_surely(abs(x) == float("inf"))
    low, high = _INTEGERS[dtype]
    return not (is_surely(x < low) or is_surely(x > high))


def as_tensor(x: Number, dtype: str) -> torch.Tensor:
    """A number that fits. It is a factor, because torch computes with floats that it has not seen
    yet in few operations, and of these only a product keeps the sign of a zero."""
    made: torch.dtype = getattr(torch, dtype)
    if isinstance(x, _BOOLS):
        return torch.scalar_tensor(x, dtype=made)
    if isinstance(x, _FLOATS):
        return (torch.ones((), dtype=torch.float64) * x).to(made)
    low, high = _INTEGERS[dtype]
    require(x >= low)
    require(x <= high)
    return (torch.ones((), dtype=torch.int64) * x).to(made)
