# SPDX-License-Identifier: Apache-2.0
"""What stands under conversions."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Cast, Const, Expr, Select, dtype_of
from tcsym.ir.loops import Value
from tcsym.types import DType


def under_casts(v: Expr) -> Expr:
    """The operand of the innermost of the conversions that `v` is made of; `v` if it is none."""
    while isinstance(v, Cast) and not v.exact:
        v = v.operand
    return v


def rebuilt(v: Expr, operand: Expr) -> Expr:
    """The conversions of `v` around another operand."""
    if isinstance(v, Cast) and not v.exact:
        return replace(v, operand=rebuilt(v.operand, operand))
    return operand


def guard_outside(v: Expr) -> Expr:
    """`float(c ? x : 0)` as `c ? float(x) : 0`."""
    x = under_casts(v)
    if not isinstance(v, Cast) or not isinstance(x, Select) or not is_zero(x.orelse):
        return v
    return Select(x.condition, rebuilt(v, x.then), Const(0, v.dtype), v.dtype, x.eager)


def is_zero(v: Value) -> bool:
    return isinstance(v, Const) and v.value == 0


def is_finite(v: Expr) -> bool:
    """No value of `v` is infinite, whatever is under its conversions: those of integers are not."""
    dtype = dtype_of(v)
    if not dtype.is_float:
        return True
    if not isinstance(v, Cast) or v.exact:
        return False
    inner = dtype_of(v.operand)
    return not inner.is_float and (dtype is not DType.FLOAT16 or inner.bytes == 1)


def keeps_finite(v: Expr) -> bool:
    """`v` is finite where what is under its conversions is: none goes to a narrower range."""
    while isinstance(v, Cast) and not v.exact:
        if not _has_range_of(v.dtype, dtype_of(v.operand)):
            return False
        v = v.operand
    return True


def _has_range_of(wide: DType, narrow: DType) -> bool:
    order = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)
    if wide not in order or narrow not in order:
        return False
    return order.index(narrow) <= order.index(wide)
