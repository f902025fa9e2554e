# SPDX-License-Identifier: Apache-2.0
"""Arc functions, lengths and hyperbolic functions of float64 as straight vector code.

Coefficients: tools/fit_polynomials.py.
"""

from __future__ import annotations

from tcsym.codegen.scalar.floats import Num, in_pairs, where
from tcsym.codegen.scalar.math_f64 import LN2, expm1, log, log1p

INF, NAN = float("inf"), float("nan")
QUARTER, QUARTER_LOW = 1.5707963267948966, 6.123233995736766e-17  # of a circle, and what it lacks
_ATAN = (
    -0.33333333333333326,
    0.19999999999997692,
    -0.1428571428539084,
    0.1111111108835777,
    -0.09090908151097715,
    0.07692282908386217,
    -0.06666228981695826,
    0.05877043685426581,
    -0.05218545865261443,
    0.04504126803854343,
    -0.033487943616664975,
    0.015208893132920419,
)
_SCALE = 2.0**600


def atan2(y: Num, x: Num) -> Num:
    """Within 3 ulp: of the lesser of the two over the greater, less pi/4 where that is large."""
    a, b = y.magnitude(), x.magnitude()
    steep = a > b
    small, large = where(steep, b, a), where(steep, a, b)
    factor = where(large > 1e300, 0.25, where(large < 1e-290, large.like(_SCALE), 1.0))
    small, large = small * factor, large * factor
    infinite = small.equals(INF) & large.equals(INF)
    turned = infinite | (small > large * 0.4142135623730951)  # by pi/4: tan(pi/8) is left
    above = where(infinite, 0.0, where(turned, small - large, small))
    below = where(turned, small + large, large)
    r = above / where(infinite | below.equals(0.0), 1.0, below)
    t = r * r
    rest = in_pairs(t, _ATAN) * t * r
    angle = rest + r
    low = where(turned, rest + 0.5 * QUARTER_LOW, rest)
    turn = where(turned, r.like(0.5 * QUARTER), 0.0)
    angle = where(turned, turn + (r + low), angle)
    back = (QUARTER - turn) - ((r + low) - QUARTER_LOW)
    angle = where(steep, back, angle)
    left = x.bits() < 0
    angle = where(left, 2 * QUARTER - (angle - 2 * QUARTER_LOW), angle)
    return where(x.is_nan() | y.is_nan(), NAN, angle).with_sign(y)


def atan(x: Num) -> Num:
    return atan2(x, x.like(1.0))


def asin(x: Num) -> Num:
    return atan2(x, _other_leg(x))


def acos(x: Num) -> Num:
    return atan2(_other_leg(x), x)


def _other_leg(x: Num) -> Num:
    """sqrt(1 - x^2), NaN beyond 1."""
    return ((1.0 - x) * (1.0 + x)).intrinsic("sqrt")


def hypot(*parts: Num) -> Num:
    """The length of a vector, within 2 ulp, scaled where squares would not be numbers."""
    sizes = [p.magnitude() for p in parts]
    large = sizes[0]
    for a in sizes[1:]:
        large = where(large > a, large, a)
    up, down = large < 1e-140, large > 1e140
    factor = where(up, large.like(_SCALE), where(down, large.like(1 / _SCALE), 1.0))
    back = where(up, large.like(1 / _SCALE), where(down, large.like(_SCALE), 1.0))
    first, *others = [a * factor for a in sizes]
    square = first * first
    for a in others:
        square = a.times_plus(a, square)
    length = square.intrinsic("sqrt") * back
    infinite = sizes[0].equals(INF)
    for a in sizes[1:]:
        infinite = infinite | a.equals(INF)
    return where(infinite, INF, length)


def sinh(x: Num) -> Num:
    """Within 3 ulp, as cosh is."""
    a = x.magnitude()
    half = where(a > 40.0, 0.5 * a, a)
    e = expm1(half)
    power = e + 1.0
    near = 0.5 * (e + e / power)
    return where(a > 40.0, (0.5 * power) * power, near).with_sign(x)


def cosh(x: Num) -> Num:
    a = x.magnitude()
    half = where(a > 40.0, 0.5 * a, a)
    e = expm1(half)
    power = e + 1.0
    near = 1.0 + (e * e) / (2.0 * power)
    return where(a > 40.0, (0.5 * power) * power, near)


def asinh(x: Num) -> Num:
    """Within 3 ulp, as acosh and atanh are: log1p of what exceeds 1, a logarithm where that is
    nearly all."""
    a = x.magnitude()
    near = where(a > 1e8, 0.0, a)
    above = near + near * near / (1.0 + near.times_plus(near, 1.0).intrinsic("sqrt"))
    return where(a > 1e8, log(a) + LN2, log1p(above)).with_sign(x)


def acosh(x: Num) -> Num:
    above = where(x > 1e8, 0.0, x - 1.0)
    root = above.times_plus(above, above + above).intrinsic("sqrt")
    length = where(x > 1e8, log(x) + LN2, log1p(above + root))
    return where(x >= 1.0, length, NAN)


def atanh(x: Num) -> Num:
    a = x.magnitude()
    return (0.5 * log1p((a + a) / (1.0 - a))).with_sign(x)
