# SPDX-License-Identifier: Apache-2.0
"""The gamma function and its logarithm, of float64, as straight vector code.

From 3/2 to 5/2 a polynomial; below 8 as many factors lead there (Abramowitz and Stegun 6.1.16);
above, Stirling's formula (6.1.40) with a polynomial for its series; below -1/2 the reflection
(6.1.17). Coefficients: tools/fit_special.py.
"""

from __future__ import annotations

import math

from tcsym.codegen.scalar.floats import Num, in_pairs, where
from tcsym.codegen.scalar.math_f64 import exp_in_parts, log, sin_cos
from tcsym.codegen.scalar.math_f64_pow import exact_product, log_in_parts

INF, NAN = math.inf, math.nan
_HALF_LOG_2PI = 0.9189385332046728
_LGAMMA = (
    0.42278433509846713,
    0.32246703342411326,
    -0.06735230105319831,
    0.020580808427780567,
    -0.0073855510286498375,
    0.002890510331024007,
    -0.0011927539127529736,
    0.0005096695156665203,
    -0.00022315473527938698,
    9.945767018726502e-05,
    -4.4926529806141534e-05,
    2.0505616098813074e-05,
    -9.437245709608878e-06,
    4.384595687871519e-06,
    -2.049719074164828e-06,
    9.203006103400207e-07,
    -4.201173924327452e-07,
    2.7850793895057516e-07,
    -1.432299104969076e-07,
)
_GAMMA = (
    0.42278433509846713,
    0.41184033042644036,
    0.08157691924708355,
    0.07424901075340976,
    -0.0002669820685131993,
    0.011154045723856754,
    -0.0028526458299878853,
    0.0021039331865557926,
    -0.0009195736557721812,
    0.000490390793085749,
    -0.00024094370424596772,
    0.00012165238641201147,
    -6.0775345200196315e-05,
    3.0573500895804143e-05,
    -1.5320144327592445e-05,
    7.221912531926494e-06,
    -3.5613264418526884e-06,
    2.6213104165053702e-06,
    -1.35388517417067e-06,
)
_STIRLING = (
    0.08333333333333333,
    -0.0027777777777740907,
    0.0007936507898292107,
    -0.0005952366055021241,
    0.0008414726790242081,
    -0.001890530650286174,
    0.005069057083610575,
)


def lgamma(x: Num) -> Num:
    """Within 5 ulp of the greater of the result and 1."""
    a, mirrored = x.magnitude(), x <= -0.5
    z = where(mirrored, a, x)
    t, up, down = _shifted(z)
    series = t * in_pairs(t, _LGAMMA)
    logarithm = log(where(z < 1.5, down.magnitude(), where(z < 8.0, up, z)))
    near = where(z < 1.5, series - logarithm, series + logarithm)
    far = (z - 0.5) * (logarithm - 1.0) + (_stirling(z) + (_HALF_LOG_2PI - 0.5))
    value = where(z < 8.0, near, far)
    value = where(mirrored, log(_mirror(a).magnitude()) - value, value)
    return where(a.equals(INF), INF, value)


def tgamma(x: Num) -> Num:
    """Within 6 ulp."""
    machine = x.code.machine
    if machine.has_libm and not machine.has_fma:
        return x.each("tgamma")
    a, mirrored = x.magnitude(), x <= -0.5
    z = where(mirrored, a, x)
    t, up, down = _shifted(z)
    above = t.times_plus(in_pairs(t, _GAMMA), 1.0) * up
    near = where(mirrored, down, above) / where(mirrored, above, down)
    high, low = _log_in_parts(where(z < 8.0, 8.0, where(z > 200.0, 200.0, z)))
    part, first, second = exp_in_parts(where(mirrored, -high, high), where(mirrored, -low, low))
    value = where(z < 8.0, near, part + 1.0)
    mirror = _mirror(a)
    value = where(mirrored, where(mirror.magnitude() < INF, value * mirror, NAN), value)
    return where(z < 8.0, value, value * first * second)


def _shifted(z: Num) -> tuple[Num, Num, Num]:
    """t between -1/2 and 1/2 and factors with gamma(z) = gamma(2 + t) up / down, -1/2 < z < 8."""
    whole = z.intrinsic("rint")
    whole = where(whole > 8.0, 8.0, whole)
    t = z - whole
    up = where(whole > 2.0, t + 2.0, 1.0)
    for j in range(3, 8):
        up = up * where(whole > j, t + j, 1.0)
    return t, up, where(z < 1.5, where(z > 0.5, z, z * (z + 1.0)), 1.0)


def _mirror(a: Num) -> Num:
    """gamma(a) gamma(-a), infinite where a is an integer."""
    whole = a.intrinsic("rint")
    part = a - whole
    half = whole * 0.5
    odd = half.intrinsic("floor").equals(half) ^ 1
    product = math.pi / (a * sin_cos(part * math.pi)[0])
    return where(odd, product, -product)


def _stirling(z: Num) -> Num:
    """The logarithm less Stirling's formula, z >= 8."""
    inverse = 1.0 / z
    return in_pairs(inverse * inverse, _STIRLING) * inverse


def _log_in_parts(z: Num) -> tuple[Num, Num]:
    """The logarithm as a sum of two numbers, 8 <= z <= 200."""
    less = z - 0.5
    log_high, log_low = log_in_parts(z)
    product, rest = exact_product(less, log_high)
    rest = less.times_plus(log_low, rest)
    below = product - z
    total = below + _HALF_LOG_2PI
    rest = rest + ((product - below) - z) + ((below - total) + _HALF_LOG_2PI + _stirling(z))
    high = total + rest
    return high, (total - high) + rest
