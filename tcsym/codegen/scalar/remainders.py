# SPDX-License-Identifier: Apache-2.0
"""Remainders of floats, exactly: what is left after whole quotients that one division finds.

A quotient below 2^24 (2^53 for float64) is rounded to an integer at most one too large; its product
taken off by a fused step leaves no rounding, as what is left is a multiple of the divisor's last
place. Larger quotients, and whatever is not finite, are the library's, or long divisions.
"""

from __future__ import annotations

from tcsym.codegen.scalar.floats import Num, where
from tcsym.codegen.scalar.library import or_library
from tcsym.codegen.scalar.values import Val


def fmod(x: Num, y: Num) -> Num:
    """C's `fmod`, whose result has the sign of x."""
    machine = x.code.machine
    if machine.has_libm and not machine.has_fma:
        return x.each("fmod", y)
    a, b = x.magnitude(), y.magnitude()
    quotient = (a / b).intrinsic("trunc")
    rest = (-quotient).times_plus(b, a)
    rest = where(rest < 0.0, rest + b, rest).with_sign(x)
    near = (quotient < (2.0**24 if x.val.kind == "float" else 2.0**53)) & (b < float("inf"))
    return or_library("fmod", _long_division, rest, near, x, y)


def _long_division(x: Num, y: Num) -> Num:
    """fmod of scalar doubles, ten bits of the quotient a round."""
    code, f = x.code, x.code.function
    a, b = x.magnitude(), y.magnitude()
    (rest, place), (divisor, unit) = _mantissa(a), _mantissa(b)
    divisor = where(b.equals(0.0), 1, divisor)
    places = where(place > unit, place - unit, 0)
    shifted, left, rest_after, left_after = (f.new_register() for _ in range(4))
    before, loop, end = f.current, f.new_label("divide"), f.new_label("divided")
    f.jump(loop)
    f.start_block(loop)
    f.do(f"{shifted} = phi i64 [ {rest.val.text}, %{before} ], [ {rest_after}, %{loop} ]")
    f.do(f"{left} = phi i64 [ {places.val.text}, %{before} ], [ {left_after}, %{loop} ]")
    step = where(Num(code, Val(left, "i64")) < 10, Num(code, Val(left, "i64")), 10)
    moved = code.binary("shl", Val(shifted, "i64"), step.val)
    f.do(f"{rest_after} = urem i64 {moved.text}, {divisor.val.text}")
    f.do(f"{left_after} = sub i64 {left}, {step.val.text}")
    more = Num(code, Val(left_after, "i64")) > 0
    f.branch(more.val.text, loop, end)
    f.start_block(end)
    remains = Num(code, Val(rest_after, "i64")).to("double", "sitofp") * 2.0**-52
    remains = remains * (unit << 52).as_float()
    remains = where(a < b, a, remains).with_sign(x)
    return where((a < float("inf")) & (b > 0.0), remains, float("nan"))


def _mantissa(a: Num) -> tuple[Num, Num]:
    """Integers m and e with a = m 2^(e - 1075), m < 2^53 and e > 0."""
    bits = a.bits()
    exponent, fraction = bits.shifted_right(52), bits & 0xFFFFFFFFFFFFF
    normal = exponent > 0
    return where(normal, fraction | (1 << 52), fraction), where(normal, exponent, 1)


def remainder(x: Num, y: Num) -> Num:
    """C's `remainder`: of the nearest quotient, the even one of two."""
    a, b = x.magnitude(), y.magnitude()
    twice = b + b
    rest = where(twice < float("inf"), fmod(a, twice), a)
    less = rest - b
    less = where(less + less >= b, less - b, less)
    rest = where(rest + rest > b, less, rest)
    negative = (x.bits() < 0) & (rest.is_nan() ^ 1)
    result = where(negative, -rest, rest)
    return where(
        x.magnitude().equals(float("inf")) | x.is_nan() | y.is_nan(), x - x + y - y, result
    )


def float_modulo(a: Num, b: Num) -> Val:
    """numpy.mod: the remainder has the sign of b."""
    rest = fmod(a, b)
    differ = (rest < 0.0) ^ (b < 0.0)
    zero = rest.equals(0.0)
    moved = where(differ, where(zero, rest, rest + b), rest)
    return where(zero, rest.like(0.0).with_sign(b), moved).val
