# SPDX-License-Identifier: Apache-2.0
"""Exact integers in subscripts: int64 arithmetic whose overflow is a fault (LANGUAGE E4).

What is found in a tensor of at most 32 bits is far from overflow after a step or two: there nothing
is checked. Else lanes are checked together where instructions tell, which is not so for products.
"""

from __future__ import annotations

from tcsym.codegen.scalar.arithmetic import arithmetic
from tcsym.codegen.scalar.branches import choose, fail_if
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.values import Code, Val, constant, suffix, type_text
from tcsym.frontend.program import Binary
from tcsym.ir.compiled import Fault
from tcsym.ir.value_range import known_range

OVERFLOW = "an integer of a subscript does not fit in 64 bits"
_OVERFLOWING = {"add": "sadd", "sub": "ssub", "mul": "smul"}
_LOWEST = -(1 << 63)
_SHORT = 1 << 31


def exact_arithmetic(context: Context, node: Binary, a: Val, b: Val) -> Val:
    """a op b as int64, in as many lanes as they have. Contract: `node.exact`."""
    code, op = context.code, node.op
    if op in ("min", "max", "mod") or known_range(node) is not None:
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
    if not _is_short(known_range(of_lanes)):
        return _checked(context, op, a, b, fault)
    moved = code.binary("add", same, constant(_SHORT, "i64"))
    return choose(
        context,
        code.compare("icmp ult", moved, constant(2 * _SHORT, "i64")),
        lambda: code.binary("mul", lanes, same),
        lambda: _checked(context, op, a, b, fault),
        lanes.lanes,
    )


def _is_short(r: tuple[int, int] | None) -> bool:
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
