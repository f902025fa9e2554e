# SPDX-License-Identifier: Apache-2.0
"""Values of the loop IR -> registers.

Arms of `?:`, `&&` and `||` that load or check anything run only where they are wanted: behind a
branch if the condition is one for all lanes, else under a narrower mask.
"""

from __future__ import annotations

from functools import reduce
from typing import assert_never

from tcsym.codegen.scalar.arithmetic import arithmetic, compare, negate, tree_reduce
from tcsym.codegen.scalar.branches import choose, fail_if
from tcsym.codegen.scalar.built_ins import call
from tcsym.codegen.scalar.casts import cast
from tcsym.codegen.scalar.context import Bound, Context, Lanes
from tcsym.codegen.scalar.exact import OVERFLOW, exact_arithmetic
from tcsym.codegen.scalar.extrema import extremum
from tcsym.codegen.scalar.hoist import hoist_level
from tcsym.codegen.scalar.index_code import (
    as_val,
    atom_variables,
    condition,
    linear,
    number,
    widened,
)
from tcsym.codegen.scalar.powers import power
from tcsym.codegen.scalar.reads import read
from tcsym.codegen.scalar.values import Val, bits_of, constant, register_kind
from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    Select,
    Unary,
)
from tcsym.index.expr import Condition, Index, condition_variables
from tcsym.ir.compiled import Fault
from tcsym.ir.loops import Holds, HorizontalReduce, Shuffle, Value, value_dtype
from tcsym.ir.traverse import subvalues
from tcsym.trees import leaves
from tcsym.types import DType


def value(context: Context, v: Value) -> Val:
    """`v` in the register type of its dtype; a scalar where all lanes agree."""
    with context.function.at(hoist_level(context, v)):
        return _value(context, v)


def _value(context: Context, v: Value) -> Val:
    code = context.code
    match v:
        case Const(x, dtype):
            return constant(x, register_kind(dtype))
        case IndexValue(i, dtype):
            return _index_value(context, i, dtype)
        case Read():
            return read(context, v, value)
        case Cast():
            return _cast(context, v)
        case Unary(op, x, dtype):
            inner = value(context, x)
            return code.not_(inner) if op == "not" else negate(code, inner, dtype)
        case Binary():
            return _binary(context, v)
        case Compare():
            return _compare(context, v)
        case Select():
            return _select(context, v)
        case Call():
            return _call(context, v)
        case Holds(c):
            return _held(context, c)
        case HorizontalReduce() | Shuffle():
            return _of_lanes(context, v)
        case _:
            assert_never(v)


def _compare(context: Context, v: Compare) -> Val:
    exact = as_condition(v)
    if exact is not None:
        return _held(context, exact)
    left, right = value(context, v.left), value(context, v.right)
    return compare(context.code, v.op, left, right, value_dtype(v.left), value_dtype(v.right))


def _held(context: Context, c: Condition) -> Val:
    held = condition(context, c)
    return constant(held, "i1") if isinstance(held, bool) else held


def _index_value(context: Context, i: Index, dtype: DType) -> Val:
    kind = register_kind(dtype)
    lane = context.lane_variable
    step = next((c for a, c in i.terms if a == lane), 0)
    rest = tuple(t for t in i.terms if t[0] != lane)
    if step == 0 or any(lane in atom_variables(a) for a, _ in rest):
        return _truncated(context, as_val(number(context, i)), kind)
    base = _truncated(context, as_val(linear(context, rest, i.constant)), kind)
    numbers = context.code.lane_numbers(context.width, kind)
    along = context.code.binary("mul", numbers, constant(step, kind)) if step != 1 else numbers
    return context.code.binary("add", base, along)


def _truncated(context: Context, x: Val, kind: str) -> Val:
    if x.is_constant and x.lanes == 1:
        return constant(int(x.text), kind)
    x = widened(context.code, x)
    return context.code.convert("trunc", x, kind) if bits_of(kind) < 64 else x


def _call(context: Context, v: Call) -> Val:
    own = context.backend.intrinsics.value(context, v)
    if own is not None:
        return own
    if v.function == "pow" and isinstance(v.args[1], Const):
        result = power(context.code, value(context, v.args[0]), v.args[1].value)
        if result is not None:
            return result
    args = [value(context, a) for a in v.args]
    return call(context.code, v.function, args, v.dtype)


# ---- operators


def _cast(context: Context, v: Cast) -> Val:
    code, operand = context.code, value(context, v.operand)
    if v.exact:
        beyond = code.compare("icmp slt", operand, constant(0, "i64"))  # as a signed number
        fail_if(context, beyond, Fault("size", OVERFLOW, v.span))
    return cast(code, operand, value_dtype(v.operand), v.dtype)


def _binary(context: Context, v: Binary) -> Val:
    """Left-nested operators in a loop: a sum may have more terms than Python has stack frames."""
    if v.op in ("min", "max") and v.dtype.is_float:
        return extremum(
            context.code, v.op, [value(context, x) for x in compared(context, v)], v.dtype
        )
    spine = [v]
    while isinstance(spine[-1].left, Binary):
        spine.append(spine[-1].left)
    result = value(context, spine[-1].left)
    for node in reversed(spine):
        if node.op in ("and", "or"):
            result = _connective(context, node, result)
            continue
        right = value(context, node.right)
        if node.exact:
            result = exact_arithmetic(context, node, result, right)
        else:
            result = arithmetic(context.code, node.op, result, right, node.dtype)
    return result


def compared(context: Context, v: Binary) -> list[Expr]:
    """What `v` is the least or greatest of; what can be found before the loop counts as one."""
    found: list[Expr] = []
    todo: list[Expr] = [v.right, v.left]
    while todo:
        x = todo.pop()
        nested = isinstance(x, Binary) and x.op == v.op and x.dtype is v.dtype
        if nested and isinstance(x, Binary) and hoist_level(context, x) == hoist_level(context, v):
            todo += [x.right, x.left]
        else:
            found.append(x)
    return found


def _connective(context: Context, node: Binary, left: Val) -> Val:
    short = constant(int(node.op == "or"), "i1")
    if left.text == short.text:
        return short
    wanted = left if node.op == "and" else context.code.not_(left)

    def right() -> Val:
        return value(context, node.right)

    if not _must_guard(context, node.right):
        rest = right()
    elif left.lanes > 1:
        with context.masked(left if node.op == "and" else wanted):
            rest = right()
    else:
        lanes = context.width if _varies(context, node.right) else 1
        return choose(context, wanted, right, lambda: short, lanes)
    return context.code.select(wanted, rest, short)


def _select(context: Context, v: Select) -> Val:
    then, orelse = v.then, v.orelse
    if v.eager and isinstance(orelse, Const) and orelse.value == 0:
        return _kept_or_zero(context, v)
    held = value(context, v.condition)
    if held.text in ("true", "false"):
        return value(context, then if held.text == "true" else orelse)
    if v.eager or not (_must_guard(context, then) or _must_guard(context, orelse)):
        return context.code.select(held, value(context, then), value(context, orelse))
    if held.lanes == 1:
        varies = _varies(context, then) or _varies(context, orelse)
        lanes = context.width if varies else 1
        return choose(
            context, held, lambda: value(context, then), lambda: value(context, orelse), lanes
        )
    with context.masked(held):
        a = value(context, then)
    with context.masked(context.code.not_(held)):
        b = value(context, orelse)
    return context.code.select(held, a, b)


def _kept_or_zero(context: Context, v: Select) -> Val:
    """`then` or zero: chosen once by what is the same for all lanes, masked by an `and` for the
    rest. The mask is as wide as an element and made where its condition is: bits for lanes would be
    widened again in front of each use."""
    code, parts = context.code, _conjuncts(v.condition)
    own = [x for x in parts if _varies(context, x)]
    same = [x for x in parts if not _varies(context, x)]
    if not own:
        held = value(context, v.condition)
        return code.select(held, value(context, v.then), value(context, v.orelse))
    once = Select(_all_of(same), v.then, v.orelse, v.dtype, eager=True) if same else v.then
    kept, condition = value(context, once), _all_of(own)
    kind = f"i{bits_of(kept.kind)}"
    with context.function.at(hoist_level(context, condition)):
        mask = code.convert("sext", code.spread(value(context, condition), context.width), kind)
    bits = code.spread(code.convert("bitcast", kept, kind), context.width)
    return code.convert("bitcast", code.binary("and", bits, mask), kept.kind)


def _all_of(conditions: list[Expr]) -> Expr:
    return reduce(lambda a, b: Binary("and", a, b, DType.BOOL), conditions)


def _conjuncts(condition: Expr) -> list[Expr]:
    return list(leaves(condition, _both_sides))


def _both_sides(e: Expr) -> tuple[Expr, ...]:
    return (e.left, e.right) if isinstance(e, Binary) and e.op == "and" else ()


def _must_guard(context: Context, v: Value) -> bool:
    """True if evaluating `v` where it is not wanted could touch memory or fail a check."""
    return context.holds_inside(_may_touch_or_fail, v)


def _may_touch_or_fail(context: Context, v: Value) -> bool:
    if isinstance(v, Read):
        is_register = context.buffers[v.tensor].space == "register"
        return not is_register or v.unwritten is not None or any(v.checked)
    return isinstance(v, Binary | Cast) and v.exact


def _varies(context: Context, v: Value) -> bool:
    """True if the lanes of `v` may differ."""
    lane = context.lane_variable
    if lane is None:
        return False
    for x in subvalues(v):
        match x:
            case IndexValue(i, _):
                found = lane in i.variables()
            case Read(_, subscripts):
                found = any(isinstance(s, Index) and lane in s.variables() for s in subscripts)
            case Holds(c):
                found = lane in condition_variables(c)
            case _:
                found = False
        if found:
            return True
    return False


def _of_lanes(context: Context, v: HorizontalReduce | Shuffle) -> Val:
    if isinstance(v, Shuffle):
        return context.backend.intrinsics.shuffle(context, v)
    return _horizontal(context, v)


def _horizontal(context: Context, v: HorizontalReduce) -> Val:
    if v.width == 1:
        with context.bound(v.variable, Bound(None)):
            return value(context, v.value)
    with context.in_lanes(Lanes(v.variable, v.width)):
        lanes = context.code.spread(value(context, v.value), v.width)
    return reduce_lanes(context, v.op, lanes, v.dtype)


def reduce_lanes(context: Context, op: str, lanes: Val, dtype: DType) -> Val:
    return tree_reduce(context.code, lanes, lambda a, b: arithmetic(context.code, op, a, b, dtype))


def without_widening(v: Value) -> Value:
    """`v` under casts that change nothing in registers: half or bfloat16 to float32."""
    halves = (DType.FLOAT16, DType.BFLOAT16)
    while isinstance(v, Cast) and v.dtype is DType.FLOAT32 and value_dtype(v.operand) in halves:
        v = v.operand
    return v
