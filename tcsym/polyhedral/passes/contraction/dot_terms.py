"""Terms of sums -> factors that a dot product of packed elements takes.

bfloat16 in float32 as they are. Integers in int32 by what values they can have: bytes, unsigned by
signed, four at a time, or 16 bits, two at a time. Of two signed bytes one is taken 128 higher, of
two unsigned ones one 128 lower, and 128 times the sum of the other is owed.
"""

from __future__ import annotations

from tcsym.frontend.program import Binary, Cast, Const, Expr, Select, Unary, dtype_of
from tcsym.loop_ir import Update, loads
from tcsym.packed import BFLOAT, BYTES, SHORT
from tcsym.polyhedral.passes.common.access import value_variables
from tcsym.records import dataclass
from tcsym.types import DType

_SHIFT = 128


@dataclass(frozen=True, slots=True)
class DotTerm:
    """`function` of left and right; and `factor` times the sum of `owed`, a value in int32."""

    function: str
    left: Expr
    right: Expr
    owed: Expr | None = None
    factor: int = 0

    @property
    def steps(self) -> int:
        return 32 // dtype_of(self.left).bits


def dot_term(x: Update, rows: str | None, have: frozenset[str]) -> DotTerm | None:
    """How a sum's term can be computed in packed steps. rows: that side pays for what is owed."""
    term = x.value
    if x.op != "add" or not isinstance(term, Binary) or term.op != "mul" or term.exact:
        return None
    if not (_is_plain(term.left) and _is_plain(term.right)):
        return None
    sides = (term.left, term.right)
    if rows is not None and rows in value_variables(term.right):
        sides = (term.right, term.left)
    if term.dtype is DType.FLOAT32 and BFLOAT in have:
        return _bfloats(*sides)
    if term.dtype is DType.INT32:
        found = _bytes(*sides) if BYTES in have else None
        return found or (_shorts(*sides) if SHORT in have else None)
    return None


def _is_plain(v: Expr) -> bool:
    """Loads without checks, which can be made early and side by side."""
    found = loads(v)
    return bool(found) and not any(any(r.checked) or r.unwritten is not None for r in found)


def _bfloats(a: Expr, b: Expr) -> DotTerm | None:
    if not (isinstance(a, Cast) and isinstance(b, Cast)):
        return None
    types = {dtype_of(a.operand), dtype_of(b.operand)}
    return DotTerm(BFLOAT, a.operand, b.operand) if types == {DType.BFLOAT16} else None


def _bytes(rows: Expr, columns: Expr) -> DotTerm | None:
    types = [_byte_type(_range(v)) for v in (rows, columns)]
    match types:
        case [None, _] | [_, None]:
            return None
        case [DType.UINT8, DType.INT8]:
            return DotTerm(BYTES, _as(rows, DType.UINT8), _as(columns, DType.INT8))
        case [DType.INT8, DType.UINT8]:
            return DotTerm(BYTES, _as(columns, DType.UINT8), _as(rows, DType.INT8))
        case [DType.INT8, _]:
            up = _shifted(_as(rows, DType.INT8), DType.INT8, DType.UINT8)
            return DotTerm(BYTES, up, _as(columns, DType.INT8), columns, -_SHIFT)
        case _:
            down = _shifted(_as(rows, DType.UINT8), DType.UINT8, DType.INT8)
            return DotTerm(BYTES, _as(columns, DType.UINT8), down, columns, _SHIFT)


def _byte_type(values: range | None) -> DType | None:
    for dtype in (DType.UINT8, DType.INT8):
        if _fits(values, dtype):
            return dtype
    return None


def _shifted(v: Expr, dtype: DType, target: DType) -> Expr:
    """The same bits but the highest, which is the other one: 128 more, or less."""
    highest = Const(-_SHIFT if dtype is DType.INT8 else _SHIFT, dtype)
    return Cast(Binary("add", v, highest, dtype), target)


def _shorts(a: Expr, b: Expr) -> DotTerm | None:
    if not all(_fits(_range(v), DType.INT16) for v in (a, b)):
        return None
    return DotTerm(SHORT, _as(a, DType.INT16), _as(b, DType.INT16))


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
