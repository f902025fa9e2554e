# SPDX-License-Identifier: Apache-2.0
"""Derives the coefficients of erfc, cbrt, gamma and Bessel functions in tcsym/codegen; prints them.

Minimax polynomials as in `fit_polynomials`. Needs mpmath. Run: python -m tools.fit_special
"""

from __future__ import annotations

from functools import partial

import mpmath as mp

from tools.fit_polynomials import erfc_scaled, erfinv_over, fit

LOG_2PI = mp.log(2 * mp.pi)
NEAR = 6  # below it Bessel functions are polynomials
ZEROS = {0: [mp.besseljzero(0, 1), mp.besseljzero(0, 2)], 1: [mp.besseljzero(1, 1)]}  # below that


def cbrt_of_part(f: mp.mpf) -> mp.mpf:
    return mp.cbrt(1 + f)


def lgamma_over(t: mp.mpf) -> mp.mpf:
    """lgamma(2 + t) / t"""
    return mp.loggamma(2 + t) / t if t else 1 - mp.euler


def gamma_over(t: mp.mpf) -> mp.mpf:
    """(gamma(2 + t) - 1) / t"""
    return (mp.gamma(2 + t) - 1) / t if t else 1 - mp.euler


def stirling(w: mp.mpf) -> mp.mpf:
    """x (lgamma(x) - Stirling's formula) at w = 1/x^2"""
    x = 1 / mp.sqrt(w)
    return x * (mp.loggamma(x) - ((x - 0.5) * mp.log(x) - x + LOG_2PI / 2))


def near_zero_free(order: int, v: mp.mpf) -> mp.mpf:
    """J(x) / x^order over the differences of x^2 and the squares of its zeros below 6.

    v = x^2/18 - 1, as in the functions that follow.
    """
    x = NEAR * mp.sqrt((v + 1) / 2)
    value = mp.besselj(order, x) / x**order
    for zero in ZEROS[order]:
        value /= x * x - zero**2
    return value


def rest_of_y(order: int, v: mp.mpf) -> mp.mpf:
    """Y without its logarithm and its pole, over x^order"""
    x = NEAR * mp.sqrt((v + 1) / 2)
    pole = 1 / x if order else 0
    singular = 2 / mp.pi * (mp.log(x) * mp.besselj(order, x) - pole)
    return (mp.bessely(order, x) - singular) / x**order


def hankel(order: int, part: int, w: mp.mpf) -> mp.mpf:
    """P or Q x/6 of Hankel's expansion (Abramowitz and Stegun 9.2.5) at w = 36/x^2"""
    x = NEAR / mp.sqrt(w)
    scale = mp.sqrt(mp.pi * x / 2)
    angle = x - mp.pi / 4 - order * mp.pi / 2
    j, y = scale * mp.besselj(order, x), scale * mp.bessely(order, x)
    if part == 0:
        return j * mp.cos(angle) + y * mp.sin(angle)
    return (y * mp.cos(angle) - j * mp.sin(angle)) * x / NEAR


def erfcinv_over(v: mp.mpf) -> mp.mpf:
    """erfinv(x)/s at v = 1/s, s^2 = -log(1 - x^2)"""
    w = 1 / v**2
    return erfinv_over(w) * mp.sqrt(-mp.expm1(-w)) * v


FITS = {
    "cbrt": (cbrt_of_part, -0.2929, 0.4143, 6, lambda f: 1),
    "erfc": (erfc_scaled, -0.7778, 0.8635, 24, lambda u: 1 / erfc_scaled(u)),
    "erfinv far": (erfcinv_over, 0.0365, 0.4473, 13, lambda v: 1),
    "lgamma": (lgamma_over, -0.5, 0.5, 18, lambda t: 1 / lgamma_over(t)),
    "gamma": (gamma_over, -0.5, 0.5, 18, lambda t: t),
    "Stirling": (stirling, 1e-12, 1 / 64, 6, lambda w: 1),
}
for n in (0, 1):
    j, y = partial(near_zero_free, n), partial(rest_of_y, n)
    FITS[f"J{n}"] = (j, -1 + 1e-20, 1, 13, lambda v, j=j: 1 / j(v))
    FITS[f"Y{n}"] = (y, -1 + 1e-20, 1, 14, lambda v, n=n: (NEAR * mp.sqrt((v + 1) / 2)) ** n)
    FITS[f"P{n}"] = (partial(hankel, n, 0), 1e-6, 1, 15, lambda w: 1)
    FITS[f"Q{n}"] = (partial(hankel, n, 1), 1e-6, 1, 15, lambda w: 1)


def main() -> None:
    for name, (f, low, high, degree, weight) in FITS.items():
        coefficients, error = fit(f, low, high, degree, weight)
        print(f"{name}: error {error:.2e} = 2^{mp.nstr(mp.log(error, 2), 4)}", flush=True)
        for c in coefficients:
            print(f"    {c!r},", flush=True)
    for order, zeros in ZEROS.items():
        for zero in zeros:
            print(f"zero of J{order}: {float(zero)!r}, {float(zero - float(zero))!r}")
    with mp.workdps(400):
        print(f"2/pi: {int(mp.floor(mp.mpf(2) ** 1217 / mp.pi)):x}")


if __name__ == "__main__":
    main()
