"""Remainders of floats, exactly: what is left after whole quotients that one division finds.

A quotient below 2^24 (2^53 for float64) is rounded to an integer at most one too large; its product
taken off by a fused step leaves no rounding, as what is left is a multiple of the divisor's last
place. Larger quotients, and whatever is not finite, are the library's.
"""

from __future__ import annotations

from tcsym.codegen.scalar.floats import Num, or_library, where
from tcsym.codegen.scalar.values import Val


def fmod(x: Num, y: Num) -> Num:
    """C's `fmod`, whose result has the sign of x."""
    if not x.code.machine.has_fma:
        return x.each("fmod", y)
    a, b = x.magnitude(), y.magnitude()
    quotient = (a / b).intrinsic("trunc")
    rest = (-quotient).times_plus(b, a)
    rest = where(rest < 0.0, rest + b, rest).with_sign(x)
    near = (quotient < (2.0**24 if x.val.kind == "float" else 2.0**53)) & (b < float("inf"))
    return or_library("fmod", rest, near, x, y)


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
