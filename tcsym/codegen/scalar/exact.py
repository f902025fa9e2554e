"""Exact integers in subscripts: int64 arithmetic whose overflow is a fault (LANGUAGE E4).

What is found in a tensor of at most 32 bits is far from overflow after a step or two: there nothing
is checked. Else lanes are checked together where instructions tell, which is not so for products.
"""

from __future__ import annotations

from tcsym.codegen.scalar.arithmetic import arithmetic
from tcsym.codegen.scalar.branches import choose, fail_if
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.values import Code, Val, constant, suffix, type_text
from tcsym.frontend.program import Binary, Cast, Const, dtype_of
from tcsym.ir.compiled import Fault
from tcsym.ir.loops import Value
from tcsym.types import DType

OVERFLOW = "an integer of a subscript does not fit in 64 bits"
_OVERFLOWING = {"add": "sadd", "sub": "ssub", "mul": "smul"}
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_SHORT = 1 << 31
Range = tuple[int, int]


def exact_arithmetic(context: Context, node: Binary, a: Val, b: Val) -> Val:
    """a op b as int64, in as many lanes as they have. Contract: `node.exact`."""
    code, op = context.code, node.op
    if op in ("min", "max", "mod") or value_range(node) is not None:
        return arithmetic(code, op, a, b, node.dtype)
    fault = Fault("size", OVERFLOW, node.span)
    if op == "div":
        lowest = code.compare("icmp eq", a, constant(_LOWEST, "i64"))
        minus = code.compare("icmp eq", b, constant(-1, "i64"))
        fail_if(context, code.binary("and", lowest, minus), fault)
        return arithmetic(code, op, a, b, node.dtype)
    if op != "mul" or a.lanes == b.lanes:
        return _checked(context, op, a, b, fault)
    lanes, same, of_lanes = (a, b, node.left) if a.lanes > 1 else (b, a, node.right)
    if not _is_short(value_range(of_lanes)):
        return _checked(context, op, a, b, fault)
    moved = code.binary("add", same, constant(_SHORT, "i64"))
    return choose(
        context,
        code.compare("icmp ult", moved, constant(2 * _SHORT, "i64")),
        lambda: code.binary("mul", lanes, same),
        lambda: _checked(context, op, a, b, fault),
        lanes.lanes,
    )


def value_range(v: Value) -> Range | None:
    """Bounds of an integer, if they are known and fit in 64 bits."""
    match v:
        case Const(int(x), _):
            return x, x
        case Cast(operand, DType.INT64) if dtype_of(operand).is_integer:
            inner = value_range(operand)
            dtype = dtype_of(operand)
            return inner or _fitting((dtype.lowest, dtype.highest))
        case Binary(op, left, right, DType.INT64) if v.exact:
            a, b = value_range(left), value_range(right)
            return None if a is None or b is None else _fitting(_combined(op, a, b))
        case _:
            return None


def _combined(op: str, a: Range, b: Range) -> Range | None:
    match op:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            corners = [x * y for x in a for y in b]
            return min(corners), max(corners)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "div" if b[0] > 0:
            corners = [x // y for x in a for y in b]
            return min(corners), max(corners)
        case "mod" if b[0] > 0:
            return 0, b[1] - 1
        case _:
            return None


def _fitting(r: Range | None) -> Range | None:
    """The range if int64 has it all, which is not so for elements of uint64."""
    return r if r is not None and r[0] >= _LOWEST and r[1] <= _HIGHEST else None


def _is_short(r: Range | None) -> bool:
    return r is not None and r[0] >= -_SHORT and r[1] < _SHORT


def _checked(context: Context, op: str, a: Val, b: Val, fault: Fault) -> Val:
    code = context.code
    if op == "mul":
        parts = [_overflowing(code, op, code.lane(a, i), code.lane(b, i)) for i in _lanes(a, b)]
        fail_if(context, code.from_lanes([bad for _, bad in parts]), fault)
        return code.from_lanes([x for x, _ in parts])
    result, bad = _overflowing(code, op, *code.level(a, b))
    fail_if(context, bad, fault)
    return result


def _lanes(a: Val, b: Val) -> range:
    return range(max(a.lanes, b.lanes))


def _overflowing(code: Code, op: str, a: Val, b: Val) -> tuple[Val, Val]:
    """The wrapped result, and where it is not the exact one. Contract: as many lanes."""
    f = code.function
    name = f"llvm.{_OVERFLOWING[op]}.with.overflow.{suffix(a.kind, a.lanes)}"
    bad = type_text("i1", a.lanes)
    pair = f"{{{a.type}, {bad}}}"
    f.module.declare(pair, name, f"{a.type}, {b.type}")
    both = f.pure(f"call {pair} @{name}({a.typed}, {b.typed})")
    wrapped = Val(f.pure(f"extractvalue {pair} {both}, 0"), a.kind, a.lanes)
    return wrapped, Val(f.pure(f"extractvalue {pair} {both}, 1"), "i1", a.lanes)
