# SPDX-License-Identifier: Apache-2.0
"""The complement of the error function and what follows from it, of float64, as vector code.

erfc(x) is exp(-x^2) times a function that changes little: a polynomial in (x - 2)/(x + 2) over
1 + 2x, as in M. M. Shepherd and J. G. Laframboise, Chebyshev Approximation of (1 + 2x) exp(x^2)
erfc x (1981). The square is a sum of two numbers, as its error would be the result's. Inverses are
polynomials good for half of the digits, and a step of Newton's iteration for the others.
Coefficients: tools/fit_special.py.
"""

from __future__ import annotations

import math

from tcsym.codegen.scalar.floats import Num, in_pairs, polynomial, where
from tcsym.codegen.scalar.math_f32 import ERFINV
from tcsym.codegen.scalar.math_f64 import erf_excess, exp, exp_in_parts, log

INF, NAN = math.inf, math.nan
_SQRT_PI = math.sqrt(math.pi)
_ERFC = (
    1.2769783815525286,
    -0.09276382658574596,
    -0.16603039761528926,
    0.16405128003343428,
    -0.05422000099204358,
    -0.008034015082059805,
    0.008722653875805186,
    0.0012713389580249566,
    -0.0014568139464650653,
    -0.0004543407336849898,
    0.00020636718459837505,
    0.0001510384206116683,
    -1.509553338698223e-06,
    -3.641940342416149e-05,
    -1.349451962008935e-05,
    3.696557975116352e-06,
    5.229296604499923e-06,
    1.5391932927590817e-06,
    -7.0677414123932e-07,
    -8.946248427680185e-07,
    -2.477398328106402e-07,
    2.0457350379555999e-07,
    1.5000843071798383e-07,
    -1.7732063096925186e-08,
    -2.7259504793021416e-08,
)
_ERFINV_FAR = (
    1.0000550857606063,
    -0.011300979241712951,
    -1.6816510146918788,
    12.628112259816316,
    -102.69765411288593,
    753.545172668239,
    -4351.404350905311,
    19054.98022068714,
    -62050.019284818656,
    147031.31350273045,
    -245317.6415242238,
    272393.79316460085,
    -180347.27779802616,
    53805.216859929744,
)


def erfc(x: Num) -> Num:
    """Within 1.5 ulp."""
    machine = x.code.machine
    if machine.has_libm and not machine.has_fma:
        return x.each("erfc")
    a = _bounded(x, 30.0)
    high, low = _square(a)
    return _upper(x, a, *exp_in_parts(-high, -low), 1.0)


def normcdf(x: Num) -> Num:
    """Within 2 ulp: erfc(-x/sqrt 2)/2, but the exponential is of x itself."""
    a = _bounded(x, 40.0)
    high, low = _square(a)
    parts = exp_in_parts(high * -0.5, low * -0.5)
    return _upper(x * -math.sqrt(0.5), a * math.sqrt(0.5), *parts, 0.5)


def _upper(x: Num, a: Num, part: Num, first: Num, second: Num, scale: float) -> Num:
    """`scale` times erfc(x): a is |x|, and exp(-x^2) is (1 + part) times the two that follow."""
    scaled, low = _scaled(a)
    tail = (scaled + scaled.times_plus(part, low)) * scale * first * second
    tail = where(x < 0.0, 2 * scale - tail, tail)
    return where(a < 0.25, scale - scale * x.times_plus(erf_excess(x), x), tail)


def erfcx(x: Num) -> Num:
    """exp(x^2) erfc(x) within 2 ulp: of an asymptotic series above 27."""
    a = _bounded(x, 30.0)
    high, low = _square(a)
    part, first, second = exp_in_parts(high, low)
    grown = (part + 1.0) * first * second
    scaled, low = _scaled(a)
    scaled = scaled + low
    value = where(x < 0.0, grown + grown - scaled, scaled)
    value = where(a < 0.25, grown - grown * x.times_plus(erf_excess(x), x), value)
    return where(x > 27.0, _far_scaled(x), value)


def _far_scaled(x: Num) -> Num:
    """Abramowitz and Stegun 7.1.23."""
    inverse = 1.0 / x
    terms = [1.0]
    for n in range(1, 9):
        terms.append(-terms[-1] * (2 * n - 1) / 2)
    return polynomial(inverse * inverse, tuple(terms)) * inverse * (1 / _SQRT_PI)


def _bounded(x: Num, most: float) -> Num:
    """|x|, or `most` if that is less; NaN stays NaN."""
    a = x.magnitude()
    return where(a > most, most, a)


def _square(a: Num) -> tuple[Num, Num]:
    """a*a as the square of its first 26 bits, which is exact, and the rest."""
    high = (a.bits() & -0x8000000).as_float()
    return high * high, (a - high) * (a + high)


def _scaled(a: Num) -> tuple[Num, Num]:
    """erfcx between 1/4 and 27, as a number and most of what it lacks."""
    u = (a - 2.0) / (a + 2.0)
    varying = in_pairs(u, _ERFC[1:]) * u
    above = varying + _ERFC[0]
    above_low = (_ERFC[0] - above) + varying
    below = a.times_plus(2.0, 1.0)
    below_low = (1.0 - below) + (a + a)
    inverse = 1.0 / below
    high = above * inverse
    low = (-high).times_plus(below, above) + (-high).times_plus(below_low, above_low)
    return high, low * inverse


def erfinv(x: Num) -> Num:
    """Within 3 ulp, as the two that follow are."""
    a = x.magnitude()
    y = where(a < 0.7, _center(a, 0.0), _tail(1.0 - a))
    y = where(a.equals(1.0), INF, where(a > 1.0, NAN, y))
    return y.with_sign(x)


def erfcinv(q: Num) -> Num:
    upper = q > 1.7
    tail = _tail(where(upper, 2.0 - q, q))
    x = 1.0 - q
    y = where(upper, -tail, where(q < 0.3, tail, _center(x, (1.0 - x) - q)))
    y = where(q.equals(0.0), INF, where(q.equals(2.0), -INF, y))
    return where((q < 0.0) | (q > 2.0), NAN, y)


def normcdfinv(p: Num) -> Num:
    return erfcinv(p * 2.0) * -math.sqrt(2.0)


def _center(x: Num, low: Num | float) -> Num:
    """y with erf(y) = x + low, |x| < 0.7."""
    y = x * in_pairs(-log((1.0 - x) * (1.0 + x)) - 2.5, ERFINV)
    gap = y.times_plus(erf_excess(y), (y - x) - low)
    return y - gap * exp(y * y) * (0.5 * _SQRT_PI)


def _tail(q: Num) -> Num:
    """y with log(erfc(y)) = log(q), which is nearly a parabola, 0 < q < 1/3."""
    log_q = log(q)
    w = -(log_q + log(2.0 - q))
    s = w.intrinsic("sqrt")
    near = in_pairs(w - 2.5, ERFINV) * (1.0 - q)
    y = where(w < 5.0, near, in_pairs(1.0 / s, _ERFINV_FAR) * s)
    high, low = _square(y)
    scaled = _scaled(y)[0]
    gap = ((log(scaled) - high) - log_q) - low
    return y + gap * scaled * (0.5 * _SQRT_PI)
