# SPDX-License-Identifier: Apache-2.0
"""The 64 built-in functions (LANGUAGE A18) and how many arguments each takes."""

from __future__ import annotations

_ONE = """
acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc
erfcinv erfcx erfinv exp exp10 exp2 expm1 fabs floor j0 j1 lgamma log log10 log1p log2 logb
normcdf normcdfinv rcbrt round rsqrt sin sinh sinpi sqrt tan tanh tgamma trunc y0 y1
"""
_TWO = "atan2 copysign fdim fdivide fmax fmin fmod hypot nextafter pow remainder rhypot"
_THREE = "fma norm3d rnorm3d"
_FOUR = "norm4d rnorm4d"

ARITY: dict[str, int] = {
    name: n
    for n, names in enumerate((_ONE, _TWO, _THREE, _FOUR), start=1)
    for name in names.split()
}
