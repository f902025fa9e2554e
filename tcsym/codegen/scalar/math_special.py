# SPDX-License-Identifier: Apache-2.0
"""Functions computed in double precision for float32 and float64, as straight vector code.

Relative errors are a few ulp over the whole range, unless it says otherwise where one is defined.
Both arms of a selection are computed: none can trap.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tcsym.codegen.scalar import math_bessel, math_f64_tails, math_gamma
from tcsym.codegen.scalar.floats import Num, polynomial, where
from tcsym.codegen.scalar.math_f64 import exp, sin_cos
from tcsym.codegen.scalar.math_f64_angles import hypot
from tcsym.codegen.scalar.math_f64_pow import cbrt

INF, NAN = math.inf, math.nan


# ---- circles and lengths


def _quarters(x: Num) -> tuple[Num, Num, Num]:
    """sin and cos of pi*(x - k/2) with k = rint(2x), and k mod 4."""
    r = x - 2.0 * (0.5 * x).intrinsic("rint")
    k = (2.0 * r).intrinsic("rint")
    t = (r - 0.5 * k) * math.pi
    return *sin_cos(t), k - 4.0 * (k * 0.25).intrinsic("floor")


def sinpi(x: Num) -> Num:
    s, c, k = _quarters(x)
    value = where(k.equals(1.0), c, where(k.equals(2.0), -s, where(k.equals(3.0), -c, s)))
    value = where(k.is_nan(), NAN, value)
    return where(value.equals(0.0), value.with_sign(x), value)


def cospi(x: Num) -> Num:
    s, c, k = _quarters(x)
    value = where(k.equals(1.0), -s, where(k.equals(2.0), -c, where(k.equals(3.0), s, c)))
    return where(k.is_nan(), NAN, value)


def reciprocal_norm(*parts: Num) -> Num:
    return 1.0 / hypot(*parts)


def rcbrt(x: Num) -> Num:
    return 1.0 / cbrt(x)


# ---- modified Bessel functions


def bessel_i0(x: Num) -> Num:
    return _bessel(x.magnitude(), 0)


def bessel_i1(x: Num) -> Num:
    return _bessel(x.magnitude(), 1).with_sign(x)


def _bessel(a: Num, order: int) -> Num:
    """The power series below 20 (all terms positive), the asymptotic expansion above."""
    series = [1.0]
    for k in range(1, 45):
        series.append(series[-1] / (k * (k + order)))
    small = polynomial(0.25 * a * a, tuple(series))
    small = small * (0.5 * a) if order else small
    expansion = [1.0]
    for k in range(1, 30):
        expansion.append(expansion[-1] * ((2 * k - 1) ** 2 - 4 * order * order) / (8.0 * k))
    bounded = where(a < 20.0, 20.0, a)
    root = exp(0.5 * bounded)
    scale = root / (bounded * (2.0 * math.pi)).intrinsic("sqrt")
    large = scale * polynomial(1.0 / bounded, tuple(expansion)) * root
    return where(a < 20.0, small, where(a.equals(INF), INF, large))


SPECIAL: dict[str, Callable[..., Num]] = {
    "cospi": cospi,
    "cyl_bessel_i0": bessel_i0,
    "cyl_bessel_i1": bessel_i1,
    "erfcinv": math_f64_tails.erfcinv,
    "erfcx": math_f64_tails.erfcx,
    "erfinv": math_f64_tails.erfinv,
    "j0": math_bessel.j0,
    "j1": math_bessel.j1,
    "lgamma": math_gamma.lgamma,
    "norm3d": hypot,
    "norm4d": hypot,
    "normcdf": math_f64_tails.normcdf,
    "normcdfinv": math_f64_tails.normcdfinv,
    "rcbrt": rcbrt,
    "rhypot": reciprocal_norm,
    "rnorm3d": reciprocal_norm,
    "rnorm4d": reciprocal_norm,
    "sinpi": sinpi,
    "tgamma": math_gamma.tgamma,
    "y0": math_bessel.y0,
    "y1": math_bessel.y1,
}
