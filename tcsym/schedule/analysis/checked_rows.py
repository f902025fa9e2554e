# SPDX-License-Identifier: Apache-2.0
"""Places that only data know, kept inside of a tensor."""

from __future__ import annotations

from tcsym.frontend.program import Binary, Const, Expr, IndexValue
from tcsym.index.expr import Index
from tcsym.types import DType


def kept_inside(subscript: Index | Expr, extent: Index) -> Expr:
    """The subscript, or the nearest one of an element that there is."""
    kind = DType.INT64
    least: Expr = IndexValue(subscript, kind) if isinstance(subscript, Index) else subscript
    least = Binary("max", least, Const(0, kind), kind)
    return Binary("min", least, IndexValue(extent - 1, kind), kind)
