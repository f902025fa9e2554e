# SPDX-License-Identifier: Apache-2.0
"""Terms of sums -> factors that a dot product of packed elements takes.

bfloat16 in float32 as they are. Integers in int32 by what values they can have: bytes, four at a
time, or 16 bits, two at a time. Bytes whose sign is not what the instruction takes are taken 128
higher or lower. That, and zero points which the sum leaves as they are, is owed:

    (u - p) * (v - q)  summed  =  u * v  summed  -  p * sum of v  -  q * sum of u  +  p * q * terms
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.frontend.program import Binary, Cast, Const, Expr, Select, Unary, dtype_of
from tcsym.ir.loops import Update
from tcsym.ir.packed import BFLOAT, BYTES, SHORT, SIGNED
from tcsym.ir.traverse import loads, value_variables
from tcsym.types import DType

_SHIFT = 1 << DType.INT8.bits - 1  # from int8 to uint8
_ZERO = Const(0, DType.INT32)


class Owed(Struct, frozen=True):
    """`factor` times the sum of `value`, both in int32; of ones, if that is None."""

    factor: Expr
    value: Expr | None


class DotTerm(Struct, frozen=True):
    """`function` of left and right, and what is owed to the sum of all."""

    function: str
    left: Expr
    right: Expr
    owed: tuple[Owed, ...] = ()

    @property
    def steps(self) -> int:
        return 32 // dtype_of(self.left).bits


def dot_terms(
    x: Update, shifted: str | None, sums: frozenset[str], have: frozenset[str]
) -> tuple[DotTerm, ...]:
    """How a sum's term can be computed in packed steps: most products at once first, then what
    owes least.

    shifted: a loop whose side may be taken higher or lower, so that sums of the other are owed.
    sums: the loops of the sum, which move no zero point.
    """
    term = x.value
    if x.op != "add" or not isinstance(term, Binary) or term.op != "mul" or term.exact:
        return ()
    if not (_is_plain(term.left) and _is_plain(term.right)):
        return ()
    sides = (term.left, term.right)
    if shifted is not None and shifted in value_variables(term.right):
        sides = (term.right, term.left)
    if term.dtype is DType.FLOAT32 and BFLOAT in have:
        return _bfloats(*sides)
    return _integers(*sides, sums, have) if term.dtype is DType.INT32 else ()


def _is_plain(v: Expr) -> bool:
    """Loads without checks, which can be made early and side by side."""
    found = loads(v)
    return bool(found) and not any(any(r.checked) or r.unwritten is not None for r in found)


def _bfloats(a: Expr, b: Expr) -> tuple[DotTerm, ...]:
    if not (isinstance(a, Cast) and isinstance(b, Cast)):
        return ()
    types = {dtype_of(a.operand), dtype_of(b.operand)}
    return (DotTerm(BFLOAT, a.operand, b.operand),) if types == {DType.BFLOAT16} else ()


class _Side(Struct, frozen=True):
    """A factor is `value`, of this short type, less `zero`."""

    value: Expr
    dtype: DType
    zero: Expr = _ZERO


def _integers(
    shifted: Expr, other: Expr, sums: frozenset[str], have: frozenset[str]
) -> tuple[DotTerm, ...]:
    found = list[DotTerm]()
    a, b = (_side(v, sums, (DType.UINT8, DType.INT8)) for v in (shifted, other))
    if a is not None and b is not None:
        if SIGNED in have:
            found.append(_owing(SIGNED, *(_signed(x, True) for x in (a, b))))
        if BYTES in have:
            a = _signed(a, b.dtype is DType.UINT8)
            found.append(_owing(BYTES, *((b, a) if b.dtype is DType.UINT8 else (a, b))))
    found.sort(key=lambda x: len(x.owed))
    a, b = (_side(v, sums, (DType.INT16,)) for v in (shifted, other))
    if a is not None and b is not None and SHORT in have:
        found.append(_owing(SHORT, a, b))
    return tuple(found)


def _owing(function: str, left: _Side, right: _Side) -> DotTerm:
    owed = (
        Owed(_negated(left.zero), right.value),
        Owed(_negated(right.zero), left.value),
        Owed(_times(left.zero, right.zero), None),
    )
    given = tuple(x for x in owed if x.factor != _ZERO)
    return DotTerm(function, left.value, right.value, given)


def _side(v: Expr, sums: frozenset[str], types: tuple[DType, ...]) -> _Side | None:
    """None if neither the factor nor what a zero point is taken from is of these types."""
    dtype = _type_of(v, types)
    if dtype is not None:
        return _Side(_as(v, dtype), dtype)
    if not isinstance(v, Binary) or v.op not in ("add", "sub") or v.exact:
        return None
    if v.dtype is not DType.INT32:
        return None
    for value, zero in ((v.left, v.right), (v.right, v.left))[: 2 if v.op == "add" else 1]:
        dtype = _type_of(value, types)
        moved = sums & value_variables(value) and not sums & value_variables(zero)
        if dtype is not None and moved and dtype_of(zero).is_integer:
            taken = zero if dtype_of(zero) is DType.INT32 else Cast(zero, DType.INT32)
            return _Side(_as(value, dtype), dtype, taken if v.op == "sub" else _negated(taken))
    return None


def _type_of(v: Expr, types: tuple[DType, ...]) -> DType | None:
    values = _range(v)
    return next((t for t in types if _fits(values, t)), None)


def _signed(x: _Side, to: bool) -> _Side:
    """Of other bytes the same bits but the highest, which is the other one: 128 more, or less."""
    if x.dtype.is_signed is to:
        return x
    other, shift = (DType.INT8, -_SHIFT) if to else (DType.UINT8, _SHIFT)
    value = Cast(Binary("add", x.value, Const(-shift, x.dtype), x.dtype), other)
    return _Side(value, other, _plus(x.zero, shift))


def _plus(v: Expr, n: int) -> Expr:
    if isinstance(v, Const):
        return Const(int(v.value) + n, DType.INT32)
    return Binary("add", v, Const(n, DType.INT32), DType.INT32)


def _negated(v: Expr) -> Expr:
    return (
        Const(-int(v.value), DType.INT32) if isinstance(v, Const) else Unary("neg", v, DType.INT32)
    )


def _times(a: Expr, b: Expr) -> Expr:
    return _ZERO if _ZERO in (a, b) else Binary("mul", a, b, DType.INT32)


def _as(v: Expr, dtype: DType) -> Expr:
    inner = v.operand if isinstance(v, Cast) else v
    return inner if dtype_of(inner) is dtype else Cast(inner, dtype)


# ---- what values an integer can have


def _fits(values: range | None, dtype: DType) -> bool:
    return values is not None and dtype.lowest <= values[0] and values[-1] <= dtype.highest


def _range(v: Expr) -> range | None:
    """From types and operators alone; None if it may have any value of a long type."""
    dtype = dtype_of(v)
    if not dtype.is_integer:
        return None
    found = _range_of(v)
    if found is not None and _fits(found, dtype):
        return found
    return _between(dtype.lowest, dtype.highest) if dtype.bits <= 16 else None


def _range_of(v: Expr) -> range | None:
    """Before it is wrapped."""
    match v:
        case Const(x):
            return _between(int(x), int(x))
        case Cast(x):
            return _range(x)
        case Unary("neg", x):
            inner = _range(x)
            return None if inner is None else _between(-inner[-1], -inner[0])
        case Binary("add" | "sub" | "mul", a, b):
            left, right = _range(a), _range(b)
            return None if left is None or right is None else _combined(v.op, left, right)
        case Select(_, a, b):
            left, right = _range(a), _range(b)
            if left is None or right is None:
                return None
            return _between(min(left[0], right[0]), max(left[-1], right[-1]))
        case _:
            return None


def _between(least: int, greatest: int) -> range:
    return range(least, greatest + 1)


def _combined(op: str, a: range, b: range) -> range:
    match op:
        case "add":
            return _between(a[0] + b[0], a[-1] + b[-1])
        case "sub":
            return _between(a[0] - b[-1], a[-1] - b[0])
        case _:
            products = [x * y for x in (a[0], a[-1]) for y in (b[0], b[-1])]
            return _between(min(products), max(products))
