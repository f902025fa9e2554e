"""`pow` of float64: the logarithm as a sum of two numbers, its multiple, the exponential of that.

The result's relative error is the exponent's absolute one, and exponents reach 745: a logarithm
of one number would leave nine bits fewer. Sums and products keep what rounding takes from them, as
in T. J. Dekker, A Floating-Point Technique for Extending the Available Precision (1971).
Coefficients: tools/fit_polynomials.py.
"""

from __future__ import annotations

from tcsym.codegen.scalar.floats import Num, in_pairs, where
from tcsym.codegen.scalar.math_f64 import LN2_HIGH, LN2_LOW, exp_of_sum, split

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
THIRD, THIRD_LOW = 1 / 3, 1.850371707708594e-17


def pow(x: Num, y: Num) -> Num:
    """C's pow, within 2 ulp."""
    if not x.code.machine.has_fma:
        return x.each("pow", y)
    high, low = _log(x.magnitude())
    product, rest = _product(y, high)
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


def _log(x: Num) -> tuple[Num, Num]:
    """log(x) as a sum, relatively within 2^-63: of m 2^e by 2 atanh((m - 1)/(m + 1))."""
    tiny = x < 2.2250738585072014e-308
    e, f = split(where(tiny, x * 18014398509481984.0, x))  # 2^54
    e = e - where(tiny, x.like(54.0), 0.0)
    below = f + 2.0
    s = f / below
    lost = (-s).times_plus(below, f) - s * (f - (below - 2.0))
    s_low = lost / below
    square, square_low = _product(s, s)
    square_low = (s + s).times_plus(s_low, square_low)
    tail = square * in_pairs(square, _ATANH)
    third = THIRD + tail
    third_low = (THIRD - third) + tail + THIRD_LOW
    cube, cube_low = _product(s, square)
    cube_low = cube_low + s.times_plus(square_low, s_low * square)
    series, series_low = _product(cube, third)
    series_low = series_low + cube.times_plus(third_low, cube_low * third)
    part = s + series
    part_low = (s - part) + series + (s_low + series_low)
    whole, twice = e * LN2_HIGH, part + part
    high = whole + twice
    back = high - whole
    low = (whole - (high - back)) + (twice - back)
    low = low + e.times_plus(LN2_LOW, part_low + part_low)
    return high, low


def _product(a: Num, b: Num) -> tuple[Num, Num]:
    """a*b and what its rounding took."""
    high = a * b
    return high, a.times_plus(b, -high)
