# SPDX-License-Identifier: Apache-2.0
"""The identity of a reduction, by operator and element type."""

from __future__ import annotations

import math

from tcsym.frontend.program import Const
from tcsym.ir.loops import ReduceOp
from tcsym.types import DType


def identity(op: ReduceOp, dtype: DType) -> Const:
    """x op identity = x. On bool, add and max are or; mul and min are and."""
    if op in ("add", "mul"):
        one = op == "mul"
        return Const(float(one) if dtype.is_float else int(one), dtype)
    if dtype.is_float:
        return Const(-math.inf if op == "max" else math.inf, dtype)
    return Const(dtype.lowest if op == "max" else dtype.highest, dtype)
