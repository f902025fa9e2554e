# SPDX-License-Identifier: Apache-2.0
"""`pow` and `cbrt` of float64.

`pow` takes the logarithm as a sum of two numbers, its multiple, the exponential of that. The
result's relative error is the exponent's absolute one, and exponents reach 745: a logarithm of one
number would leave nine bits fewer. Sums and products keep what rounding takes from them, as in
T. J. Dekker, A Floating-Point Technique for Extending the Available Precision (1971).
Coefficients: tools/fit_polynomials.py, tools/fit_special.py.
"""

from __future__ import annotations

from tcsym.codegen.scalar.floats import Num, in_pairs, where
from tcsym.codegen.scalar.math_f64 import (
    LN2_HIGH,
    LN2_LOW,
    exp_of_sum,
    split,
)

INF, NAN = float("inf"), float("nan")
_ATANH = (
    0.1999999999999999,
    0.14285714285722545,
    0.11111111108771386,
    0.0909090943469414,
    0.07692278471009358,
    0.06668157234353053,
    0.05837440736536392,
    0.05994236004903153,
)
_CBRT = (
    0.9999998654145352,
    0.33333539114620386,
    -0.1110844432675232,
    0.061575666851882836,
    -0.0418616107799685,
    0.0333405744683305,
    -0.020044650029455043,
)
_ROOT_OF_2, _ROOT_OF_HALF = 1.2599210498948732, 0.7937005259840998  # cubic
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer in the low bits
THIRD, THIRD_LOW = 1 / 3, 1.850371707708594e-17


def pow(x: Num, y: Num) -> Num:
    """C's pow, within 2 ulp."""
    machine = x.code.machine
    if machine.has_libm and not machine.has_fma:
        return x.each("pow", y)
    high, low = log_in_parts(x.magnitude())
    product, rest = exact_product(y, high)
    rest = y.times_plus(low, rest)
    rest = where(product.magnitude() < 1000.0, rest, 0.0)
    return with_signs(x, y, exp_of_sum(product, rest))


def with_signs(x: Num, y: Num, raw: Num) -> Num:
    """pow(x, y) from pow(|x|, y), which is not asked where one of them is zero or infinite."""
    a = x.magnitude()
    up = (y > 0.0) ^ (a < 1.0)  # grows with |y|
    raw = where(a.equals(0.0) | a.equals(INF), where(up, raw.like(INF), 0.0), raw)
    raw = where(y.magnitude().equals(INF), where(up, raw.like(INF), 0.0), raw)
    whole = y.intrinsic("floor").equals(y)
    half = y * 0.5
    odd = whole & (half.intrinsic("floor").equals(half) ^ 1)
    odd = odd & (y.magnitude() < INF)
    signed = where((x.bits() < 0) & odd, -raw, raw)
    finite = (x < 0.0) & (x > -INF)
    signed = where(finite & (whole ^ 1), NAN, signed)
    signed = where(y.magnitude().equals(INF) & a.equals(1.0), 1.0, signed)
    signed = where(x.is_nan() | y.is_nan(), NAN, signed)
    return where(y.equals(0.0) | x.equals(1.0), 1.0, signed)


def log_in_parts(x: Num) -> tuple[Num, Num]:
    """log(x) as a sum, relatively within 2^-63: of m 2^e by 2 atanh((m - 1)/(m + 1))."""
    tiny = x < 2.2250738585072014e-308
    e, f = split(where(tiny, x * 18014398509481984.0, x))  # 2^54
    e = e - where(tiny, x.like(54.0), 0.0)
    below = f + 2.0
    s = f / below
    lost = (-s).times_plus(below, f) - s * (f - (below - 2.0))
    s_low = lost / below
    square, square_low = exact_product(s, s)
    square_low = (s + s).times_plus(s_low, square_low)
    tail = square * in_pairs(square, _ATANH)
    third = THIRD + tail
    third_low = (THIRD - third) + tail + THIRD_LOW
    cube, cube_low = exact_product(s, square)
    cube_low = cube_low + s.times_plus(square_low, s_low * square)
    series, series_low = exact_product(cube, third)
    series_low = series_low + cube.times_plus(third_low, cube_low * third)
    part = s + series
    part_low = (s - part) + series + (s_low + series_low)
    whole, twice = e * LN2_HIGH, part + part
    high = whole + twice
    back = high - whole
    low = (whole - (high - back)) + (twice - back)
    low = low + e.times_plus(LN2_LOW, part_low + part_low)
    return high, low


def exact_product(a: Num, b: Num) -> tuple[Num, Num]:
    """a*b and what its rounding took."""
    high = a * b
    return high, a.times_plus(b, -high)


def cbrt(x: Num) -> Num:
    """Within 1 ulp: a polynomial, and a step of Halley's iteration from so few bits of it that
    their square is exact."""
    tiny = x.magnitude() < 2.2250738585072014e-308
    e, f = split(where(tiny, x * 18014398509481984.0, x).magnitude())  # 2^54
    e = e - where(tiny, x.like(54.0), 0.0)
    whole = e.times_plus(1 / 3, _ROUND + 1023)
    third = whole - (_ROUND + 1023)
    left = third.times_plus(-3.0, e)
    above, below = left > 0.5, left < -0.5
    part = (f + 1.0) * where(above, x.like(2.0), where(below, x.like(0.5), 1.0))
    root = where(above, x.like(_ROOT_OF_2), where(below, x.like(_ROOT_OF_HALF), 1.0))
    near = ((in_pairs(f, _CBRT) * root).bits() & -0x8000000).as_float()
    quotient = part / (near * near)
    root = near + near * ((quotient - near) / (near + near + quotient))
    root = (root * (whole.bits() << 52).as_float()).with_sign(x)
    return where((x.magnitude() < INF) & (x.equals(0.0) ^ 1), root, x)
