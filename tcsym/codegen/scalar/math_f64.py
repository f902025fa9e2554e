# SPDX-License-Identifier: Apache-2.0
"""Double-precision elementary functions as straight vector code.

Used for float64 itself (exp, log, tanh) and, where single precision would be delicate, for float32:
there an error of a few double ulps is nothing. Coefficients: tools/fit_polynomials.py.
"""

from __future__ import annotations

from tcsym.codegen.scalar.floats import Num, in_pairs, where
from tcsym.codegen.scalar.large_angles import beyond_quarters
from tcsym.codegen.scalar.library import Formula, or_library

INF, NAN = float("inf"), float("nan")
LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453
QUARTER = 1.5707963267948966  # of a circle
LARGE_ANGLE = 131072.0  # beyond it the reduction by three parts of pi/2 is not safe
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10  # high: 33 bits
LOG10E_HIGH, LOG10E_LOW = 0.43429448176175356, 1.414982685385801e-10  # high: 31 bits
LN10, LN10_HIGH, LN10_LOW = 2.302585092994046, 2.3025850653648376, 2.7629208037533617e-08  # 26 bits
LOG2_10 = 3.321928094887362
LOG10_2_HIGH, LOG10_2_LOW = 0.30102999566383914, 1.42050232272661e-13  # high: 41 bits
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer in the low bits
_EXP = (
    0.5,
    0.16666666666666682,
    0.0416666666666661,
    0.008333333333317065,
    0.001388888888911327,
    0.00019841269896295555,
    2.4801586931264853e-05,
    2.7557234952844277e-06,
    2.755757785275212e-07,
    2.5112004956776006e-08,
    2.0827867391214456e-09,
)
_ATANH = (
    0.3333333333333333,
    0.20000000000003118,
    0.14285714284543718,
    0.11111111323359485,
    0.09090887831295322,
    0.07693545594293136,
    0.06625051507859814,
    0.0662575318844446,
)
_TANH = (
    -0.3333333333333333,
    0.13333333333333322,
    -0.05396825396824476,
    0.021869488535727823,
    -0.008863235518180737,
    0.0035921278296485236,
    -0.0014558319136443096,
    0.0005900068282457553,
    -0.00023900768639578506,
    9.640955869030159e-05,
    -3.7808981462430493e-05,
    1.3036601167586305e-05,
    -2.8501999305449067e-06,
)
_EXP_SHORT = (
    0.5000000067508598,
    0.1666666586952692,
    0.04166629543707149,
    0.00833349879144981,
    0.0013944622731238857,
    0.00019788819457586325,
)
_ATANH_SHORT = (
    0.3333333282451323,
    0.20000167092603188,
    0.1426868792674601,
    0.11790440893736687,
)
_ATAN_SHORT = (
    -0.3333333251849133,
    0.1999990528293123,
    -0.1428204175821742,
    0.11045073202836574,
    -0.08478256489072374,
    0.047479466273342374,
)
_SIN = (
    -0.16666666666666666,
    0.008333333333333323,
    -0.0001984126984125516,
    2.7557319214236797e-06,
    -2.5052104923330742e-08,
    1.6058368096677758e-10,
    -7.578769955701221e-13,
)
_COS = (
    0.041666666666666664,
    -0.0013888888888888874,
    2.4801587301571526e-05,
    -2.7557319215385137e-07,
    2.0876754367815254e-09,
    -1.147029343003845e-11,
    4.738116062230573e-14,
)
_ERF = (
    0.1283791670955126,
    -0.3761263890318352,
    0.11283791670944197,
    -0.026866170643114334,
    0.005223977606146541,
    -0.0008548325930823167,
    0.00012055293625678383,
    -1.4924713291636424e-05,
    1.6447144264536674e-06,
    -1.6206413688283844e-07,
    1.3711421131563347e-08,
    -7.780302265568224e-10,
)
_ERFC_SCALED = (
    1.2769783816325309,
    -0.09276382532287882,
    -0.16603040867736946,
    0.16405121977884646,
    -0.054219763502969975,
    -0.008033142629463972,
    0.008720876050333505,
    0.001265627797786506,
    -0.0014513598417300896,
    -0.0004352608118018599,
    0.00020129126389196737,
    0.00011858642465755382,
    -7.937891370598618e-06,
    -1.2126288840497483e-05,
)
_ERF_TAIL = (
    1.2769783815525269,
    -0.09276382658565606,
    -0.16603039761120683,
    0.16405128004549321,
    -0.05422000165514936,
    -0.008034020825225006,
    0.008722664321174335,
    0.0012716225546754928,
    -0.0014559627873749748,
    -0.0004564580342725097,
    0.00019007998153669953,
    0.00012349568728388708,
)


def clamped(x: Num, low: float, high: float) -> Num:
    """x within [low, high]; NaN stays NaN."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def exp(x: Num) -> Num:
    """Within 1 ulp."""
    return exp_of_sum(x, None)


def exp_of_sum(x: Num, rest: Num | None) -> Num:
    """exp(x + rest), where rest is small beside x, or None."""
    part, first, second = exp_in_parts(x, rest)
    return (part + 1.0) * first * second


def exp_in_parts(x: Num, rest: Num | None) -> tuple[Num, Num, Num]:
    """`exp_of_sum` as 1 + the first number, times the others: 2^n is two factors, so that denormal
    results round once (see `math_f32`)."""
    x = clamped(x, -1418.3, 710.0)
    whole = x.times_plus(LOG2E, _ROUND + 2046)
    bits = whole.bits()
    half = bits.shifted_right(1)
    first, second = (half << 52).as_float(), ((bits - half) << 52).as_float()
    n = whole - (_ROUND + 2046)
    high = n.times_plus(-LN2_HIGH, x)
    low = n * -LN2_LOW if rest is None else n.times_plus(-LN2_LOW, rest)
    r = high + low
    return in_pairs(r, _EXP).times_plus(r * r, low) + high, first, second


def exp_for_single(x: Num) -> Num:
    """exp with a relative error of 2^-34, for results to be rounded to single precision."""
    x = clamped(x, -180.0, 130.0)
    whole = x.times_plus(LOG2E, _ROUND + 1023)
    r = (whole - (_ROUND + 1023)).times_plus(-LN2, x)
    return in_pairs(r, (1.0, 1.0, *_EXP_SHORT)) * (whole.bits() << 52).as_float()


def log(x: Num) -> Num:
    """Within 1 ulp: log(m * 2^e) by atanh((m - 1)/(m + 1))."""
    tiny = x < 2.2250738585072014e-308
    e, f = split(where(tiny, x * 18014398509481984.0, x))  # 2^54
    e = e - where(tiny, x.like(54.0), 0.0)
    s = f / (f + 2.0)
    t = s * s
    half = 0.5 * f * f
    tail = s * (half + t * in_pairs(t, _ATANH) * 2.0)
    return _with_ends(x, e * LN2_HIGH - ((half - (tail + e * LN2_LOW)) - f))


def log_for_single(x: Num) -> Num:
    """log with a relative error of 2^-36, for no denormals."""
    e, f = split(x)
    s = f / (f + 2.0)
    t = s * s
    series = (in_pairs(t, _ATANH_SHORT) * t).times_plus(s, s)
    return _with_ends(x, e.times_plus(LN2, series + series))


def split(x: Num) -> tuple[Num, Num]:
    """e and f of x = 2^e (1 + f) with 1 + f between the roots of 1/2 and 2; x is no denormal."""
    bits = x.bits() + (0x4000000000000000 - 0x3FE6A09E667F3BCD)
    f = ((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD).as_float() - 1.0
    # a double of the exponent without a conversion, which AVX2 lacks
    return (bits.shifted_right(52) + 0x4338000000000000).as_float() - (_ROUND + 1024), f


def _with_ends(x: Num, logarithm: Num) -> Num:
    """The logarithm, also of zero, infinity and what has none."""
    result = where(x.equals(INF), INF, logarithm)
    result = where(x.equals(0.0), -INF, result)
    return where(x >= 0.0, result, NAN)


def log2(x: Num) -> Num:
    """Within 3 ulp, powers of two exactly."""
    tiny = x < 2.2250738585072014e-308
    e, f = split(where(tiny, x * 18014398509481984.0, x))  # 2^54
    e = e - where(tiny, x.like(54.0), 0.0)
    return _with_ends(x, (_log_of_part(f) * LOG2E) + e)


def log1p(x: Num) -> Num:
    """Within 2 ulp: the logarithm of the rounded sum, corrected for what the rounding lost."""
    u = x + 1.0
    e, f = split(u)
    lost = (x - (u - 1.0)) / u
    result = e * LN2_HIGH + (_log_of_part(f) + (e * LN2_LOW + lost))
    result = where(x.equals(INF), INF, result)
    result = where(x.equals(-1.0), INF, result)
    return where(x >= -1.0, result, NAN).with_sign(x)


def _log_of_part(f: Num) -> Num:
    """log(1 + f), of what `split` leaves."""
    s = f / (f + 2.0)
    t = s * s
    half = 0.5 * f * f
    return f - (half - s * (half + t * in_pairs(t, _ATANH) * 2.0))


def exp2(x: Num) -> Num:
    """Within 2 ulp: exp of what is left of x, times 2^n."""
    x = clamped(x, -2046.0, 1025.0)
    whole = x + (_ROUND + 2046)
    bits = whole.bits()
    half = bits.shifted_right(1)
    first, second = (half << 52).as_float(), ((bits - half) << 52).as_float()
    r = (x - (whole - (_ROUND + 2046))) * LN2
    return (in_pairs(r, _EXP) * r * r + r + 1.0) * first * second


def exp10(x: Num) -> Num:
    """Within 1 ulp: exp of what is left of x, times log(10) in two parts, times 2^n."""
    x = clamped(x, -616.0, 309.0)
    whole = x.times_plus(LOG2_10, _ROUND + 2046)
    bits = whole.bits()
    half = bits.shifted_right(1)
    first, second = (half << 52).as_float(), ((bits - half) << 52).as_float()
    n = whole - (_ROUND + 2046)
    left = n.times_plus(-LOG10_2_HIGH, x)
    left_high = (left.bits() & -0x8000000).as_float()
    left_low = (left - left_high) - n * LOG10_2_LOW
    high = left_high * LN10_HIGH
    low = left_low.times_plus(LN10, left_high * LN10_LOW)
    r = high + low
    return (in_pairs(r, _EXP).times_plus(r * r, low) + high + 1.0) * first * second


def expm1(x: Num) -> Num:
    """Within 2 ulp: 2^n times that of what is left, and 2^n - 1."""
    clipped = clamped(x, -40.0, 710.0)
    whole = clipped.times_plus(LOG2E, _ROUND + 2046)
    bits = whole.bits()
    half = bits.shifted_right(1)
    first, second = (half << 52).as_float(), ((bits - half) << 52).as_float()
    n = whole - (_ROUND + 2046)
    high = n.times_plus(-LN2_HIGH, clipped)
    low = n * -LN2_LOW
    r = high + low
    p = in_pairs(r, _EXP).times_plus(r * r, low) + high
    power = first * second
    small = where(n.equals(0.0), p, p * power + (power - 1.0))
    return where(n > 60.0, (p + 1.0) * first * second, small).with_sign(x)


def log10(x: Num) -> Num:
    """Within 1 ulp, powers of ten exactly: the sum of two products of two parts each."""
    tiny = x < 2.2250738585072014e-308
    e, f = split(where(tiny, x * 18014398509481984.0, x))  # 2^54
    e = e - where(tiny, x.like(54.0), 0.0)
    s = f / (f + 2.0)
    t = s * s
    half = 0.5 * f * f
    high = ((f - half).bits() & -0x100000000).as_float()
    low = (f - high) - half + s * (half + t * in_pairs(t, _ATANH) * 2.0)
    tens = e * LOG10_2_HIGH
    product = high * LOG10E_HIGH
    total = tens + product
    rest = e.times_plus(LOG10_2_LOW, (low + high) * LOG10E_LOW) + low * LOG10E_HIGH
    return _with_ends(x, total + (rest + ((tens - total) + product)))


def sin(x: Num) -> Num:
    """Within 3 ulp, as cos is; tan is within 4."""
    return _for_angles("sin", far_sin, x, sin_cos(x)[0])


def cos(x: Num) -> Num:
    return _for_angles("cos", far_cos, x, sin_cos(x)[1])


def tan(x: Num) -> Num:
    sine, cosine = sin_cos(x)
    return _for_angles("tan", far_tan, x, sine / cosine)


def _for_angles(function: str, far: Formula, x: Num, near: Num) -> Num:
    return or_library(function, far, near, (x.magnitude() >= LARGE_ANGLE) ^ 1, x)


def far_sin(x: Num) -> Num:
    """Sine of a scalar of any size, as far_cos and far_tan are."""
    return _on_circle(x, *beyond_quarters(x))[0]


def far_cos(x: Num) -> Num:
    return _on_circle(x, *beyond_quarters(x))[1]


def far_tan(x: Num) -> Num:
    sine, cosine = _on_circle(x, *beyond_quarters(x))
    return sine / cosine


def sin_cos(x: Num) -> tuple[Num, Num]:
    """Sine and cosine for |x| < 2^20, to about 1e-16 absolute."""
    shifted = x.times_plus(0.6366197723675814, _ROUND)
    k = shifted - _ROUND
    r = k.times_plus(-1.5707963267341256, x)  # pi/2 in three parts, the first two of 33 bits
    r = k.times_plus(-6.077100506303966e-11, r)
    r = k.times_plus(-2.0222662487959506e-21, r)
    return _on_circle(x, r, None, shifted.bits())


def _on_circle(x: Num, r: Num, low: Num | None, quadrant: Num) -> tuple[Num, Num]:
    """Sine and cosine of x, which is r + low and quarters; low is little beside r, or none."""
    t = r * r
    s = r * t * in_pairs(t, _SIN) + r
    c = t * t * in_pairs(t, _COS) + (1.0 - 0.5 * t)
    if low is not None:
        s, c = s + low * c, c - low * s
    swap = (quadrant & 1).equals(1)
    sine, cosine = where(swap, c, s), where(swap, s, c)
    sign = (quadrant & 2) << 62
    sine = where(x.equals(0.0), x, (sine.bits() ^ sign).as_float())  # with the sign of zero
    cosine = (cosine.bits() ^ (((quadrant + 1) & 2) << 62)).as_float()
    return sine, cosine


def angle_for_single(y: Num, x: Num) -> Num:
    """atan2(y, x) with a relative error of 2^-35, for the values of singles: any, in all signs."""
    a, b = y.magnitude(), x.magnitude()
    steep = a > b
    small, large = where(steep, b, a), where(steep, a, b)
    infinite = small.equals(INF) & large.equals(INF)
    turned = infinite | (small > large * 0.4142135623730951)  # by pi/4: tan(pi/8) is left
    above = where(infinite, 0.0, where(turned, small - large, small))
    below = where(turned, small + large, large)
    r = above / where(infinite | below.equals(0.0), 1.0, below)
    t = r * r
    angle = (in_pairs(t, _ATAN_SHORT) * t).times_plus(r, r)
    angle = where(turned, angle + 0.5 * QUARTER, angle)
    angle = where(steep, QUARTER - angle, angle)
    return where(x.bits() < 0, 2 * QUARTER - angle, angle).with_sign(y)


def tanh(x: Num) -> Num:
    """Within 2 ulp."""
    a = x.magnitude()
    t = x * x
    small = (in_pairs(t, _TANH) * t).times_plus(x, x)
    large = 1.0 - 2.0 / (exp(where(a > 22.0, 22.0, a) * 2.0) + 1.0)
    return where(a < 0.55, small, large).with_sign(x)


def erfc_for_single(x: Num) -> Num:
    """erfc with a relative error of 1e-10: a polynomial in (x - 2)/(x + 2) times exp(-x^2)."""
    a = x.magnitude()
    u = (a - 2.0) / (a + 2.0)
    u = where(u > 0.71, 0.71, u)
    tail = in_pairs(u, _ERFC_SCALED) / (1.0 + 2.0 * a) * exp_for_single(-(a * a))
    tail = where(a > 15.0, 0.0, tail)
    return where(x < 0.0, 2.0 - tail, where(x.is_nan(), x, tail))


def erf(x: Num) -> Num:
    """Within 1.1 ulp: a series below 1, 1 - erfc above, a small part of the result."""
    a = x.magnitude()
    a = where(a > 6.0, 6.0, a)
    t = a * a
    near = erf_excess(a).times_plus(a, a)
    above, twice = a + 2.0, a.times_plus(2.0, 1.0)
    inverse = 1.0 / (above * twice)
    tail = in_pairs((a - 2.0) * twice * inverse, _ERF_TAIL) * above * inverse * _exp_of_small(-t)
    return where(a < 1.0, near, 1.0 - tail).with_sign(x)


def erf_excess(x: Num) -> Num:
    """erf(x)/x - 1 for |x| < 1."""
    return in_pairs(x * x, _ERF)


def _exp_of_small(x: Num) -> Num:
    """exp within 2 ulp where neither it nor the scale 2^n is near the ends of the range."""
    whole = x.times_plus(LOG2E, _ROUND + 1023)
    n = whole - (_ROUND + 1023)
    r = n.times_plus(-LN2_LOW, n.times_plus(-LN2_HIGH, x))
    return in_pairs(r, (1.0, 1.0, *_EXP)) * (whole.bits() << 52).as_float()
