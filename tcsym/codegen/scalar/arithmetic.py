# SPDX-License-Identifier: Apache-2.0
"""The language's arithmetic on values in registers (LANGUAGE B7-B9, E2).

Integers wrap; `/` and `%` round down and give 0 for a zero divisor; no operation traps. Minima and
maxima propagate NaN. Operators are tables from the name to an LLVM instruction where one suffices.
"""

from __future__ import annotations

from collections.abc import Callable

from tcsym.codegen.scalar.extrema import extremum
from tcsym.codegen.scalar.floats import Num
from tcsym.codegen.scalar.remainders import float_modulo
from tcsym.codegen.scalar.values import Code, Val, bits_of, constant
from tcsym.types import DType

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul"}
_BITS = {"bitand": "and", "bitor": "or", "bitxor": "xor"}
_BOOL = {"add": "or", "max": "or", "or": "or", "mul": "and", "min": "and", "and": "and"}
_ORDERED = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_INTEGER_ORDER = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def arithmetic(code: Code, op: str, a: Val, b: Val, dtype: DType) -> Val:
    """`op` of two values of `dtype`, in the register type of `dtype`."""
    if op in _BITS:
        return code.binary(_BITS[op], a, b)
    if dtype is DType.BOOL:
        return code.binary(_BOOL[op], a, b)
    if op in ("min", "max"):
        return extremum(code, op, [a, b], dtype)
    if dtype.is_float:
        return (
            float_modulo(Num(code, a), Num(code, b))
            if op == "mod"
            else code.binary(_FLOAT[op], a, b)
        )
    if op in _INTEGER:
        return code.binary(_INTEGER[op], a, b)
    if op in ("shl", "shr"):
        return _shift(code, op, a, b, dtype.is_signed)
    divide = floor_divide if op == "div" else floor_modulo
    return divide(code, a, b, dtype.is_signed)


def negate(code: Code, a: Val, dtype: DType) -> Val:
    return code.unary("fneg", a) if dtype.is_float else code.binary("sub", constant(0, a.kind), a)


def _shift(code: Code, op: str, a: Val, b: Val, signed: bool) -> Val:
    """The count is `b` read as unsigned; LLVM leaves open what counts from the width on do."""
    last, known = bits_of(a.kind) - 1, _literal(b)
    instruction = "shl" if op == "shl" else "ashr" if signed else "lshr"
    if known is not None and 0 <= known <= last:
        return code.binary(instruction, a, b)
    beyond = code.compare("icmp ugt", b, constant(last, b.kind))
    if instruction == "ashr":
        return code.binary(instruction, a, code.select(beyond, constant(last, b.kind), b))
    shifted = code.binary(instruction, a, code.select(beyond, constant(0, b.kind), b))
    return code.select(beyond, constant(0, a.kind), shifted)


# ---- division


def floor_divide(code: Code, a: Val, b: Val, signed: bool, least: int | None = None) -> Val:
    """floor(a / b); 0 where b is 0; the lowest integer / -1 wraps. b is never below `least`."""
    known = _literal(b)
    if known is not None and known > 0:
        return _by_positive(code, a, known, signed)
    if signed and (least is None or least < 0):
        quotient, _, _ = _divided(code, a, b)
        return quotient
    safe, is_zero = _nonzero(code, b, least)
    quotient = _by_any_positive(code, a, safe) if signed else code.binary("udiv", a, safe)
    return quotient if is_zero is None else code.select(is_zero, constant(0, a.kind), quotient)


def floor_modulo(code: Code, a: Val, b: Val, signed: bool, least: int | None = None) -> Val:
    """a - b*floor(a / b); 0 where b is 0. b is never below `least`."""
    known = _literal(b)
    if known is not None and known > 0 and known & (known - 1) == 0:
        return code.binary("and", a, constant(known - 1, a.kind))
    if known is not None and known > 0:
        quotient = _by_positive(code, a, known, signed)
        return code.binary("sub", a, code.binary("mul", quotient, b))
    zero = constant(0, a.kind)
    if signed:
        _, remainder, is_zero = _divided(code, a, b)
        return code.select(is_zero, zero, remainder)
    safe, is_none = _nonzero(code, b, least)
    rest = code.binary("urem", a, safe)
    return rest if is_none is None else code.select(is_none, zero, rest)


def _nonzero(code: Code, b: Val, least: int | None) -> tuple[Val, Val | None]:
    """b, or 1 where that is 0; and where it is, unless it never is."""
    if least is not None and least > 0:
        return b, None
    is_zero = code.compare("icmp eq", b, constant(0, b.kind))
    return code.select(is_zero, constant(1, b.kind), b), is_zero


def _literal(b: Val) -> int | None:
    return int(b.text) if b.text.lstrip("-").isdigit() else None


def _by_positive(code: Code, a: Val, divisor: int, signed: bool) -> Val:
    if divisor & (divisor - 1) == 0:
        shift = constant(divisor.bit_length() - 1, a.kind)
        return code.binary("ashr" if signed else "lshr", a, shift)
    by = constant(divisor, a.kind)
    if not signed:
        return code.binary("udiv", a, by)
    return _by_any_positive(code, a, by)


def _by_any_positive(code: Code, a: Val, b: Val) -> Val:
    """floor(a / b) of signed numbers where b > 0."""
    # round down: for negative a, -1 - (-1 - a) / b, and x ^ -1 is -1 - x
    bits = int(a.kind[1:])
    sign = code.binary("ashr", a, constant(bits - 1, a.kind))
    flipped = code.binary("xor", a, sign)
    return code.binary("xor", code.binary("sdiv", flipped, b), sign)


def _divided(code: Code, a: Val, b: Val) -> tuple[Val, Val, Val]:
    """Of signed numbers: floored quotient (0 for a zero divisor), remainder, and where b is 0."""
    zero, one = constant(0, a.kind), constant(1, a.kind)
    is_zero = code.compare("icmp eq", b, zero)
    minus = code.compare("icmp eq", b, constant(-1, a.kind))
    safe = code.select(code.binary("or", is_zero, minus), one, b)
    truncated = code.binary("sdiv", a, safe)
    rest = code.binary("sub", a, code.binary("mul", truncated, safe))
    differ = code.compare("icmp slt", code.binary("xor", rest, safe), zero)
    down = code.binary("and", differ, code.compare("icmp ne", rest, zero))
    quotient = code.binary("sub", truncated, code.convert("zext", down, a.kind))
    remainder = code.select(down, code.binary("add", rest, safe), rest)
    quotient = code.select(minus, code.binary("sub", zero, a), quotient)
    return code.select(is_zero, zero, quotient), remainder, is_zero


# ---- comparison


def compare(code: Code, op: str, a: Val, b: Val, left: DType, right: DType) -> Val:
    """Values of one type, or integers of any two types by value."""
    if left.is_float:
        return code.compare("fcmp " + _ORDERED[op], a, b)
    if left is right or left.is_signed == right.is_signed:
        signed = left.is_signed
        wide = max(a.kind, b.kind, key=lambda k: int(k[1:]))
        return _integer(
            code, op, extend(code, a, wide, signed), extend(code, b, wide, signed), signed
        )
    if left.is_unsigned:
        return compare(code, _MIRRORED[op], b, a, right, left)
    if right.bits < 64:
        a, b = extend(code, a, "i64", True), extend(code, b, "i64", False)
        return _integer(code, op, a, b, True)
    wide_a = extend(code, a, "i64", True)
    negative = code.compare("icmp slt", wide_a, constant(0, "i64"))
    answer = constant(op in ("lt", "le", "ne"), "i1")
    return code.select(negative, answer, _integer(code, op, wide_a, b, False))


_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def _integer(code: Code, op: str, a: Val, b: Val, signed: bool) -> Val:
    if op in ("eq", "ne"):
        return code.compare(f"icmp {op}", a, b)
    return code.compare(f"icmp {'s' if signed else 'u'}{_INTEGER_ORDER[op]}", a, b)


def extend(code: Code, a: Val, kind: str, signed: bool) -> Val:
    return code.convert("sext" if signed else "zext", a, kind)


# ---- reductions over lanes


def tree_reduce(code: Code, a: Val, combine: Callable[[Val, Val], Val]) -> Val:
    """`combine` over the lanes of a vector whose width is a power of two."""
    while a.lanes > 1:
        half = a.lanes // 2
        if half == 1:
            return combine(code.lane(a, 0), code.lane(a, 1))
        low = code.shuffle(a, None, tuple(range(half)))
        a = combine(low, code.shuffle(a, None, tuple(range(half, a.lanes))))
    return a
