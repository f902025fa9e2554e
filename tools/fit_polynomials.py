# SPDX-License-Identifier: Apache-2.0
"""Derives the coefficients in tcsym/codegen/scalar/math_f32.py and math_f64.py; prints them.

Each fit is a weighted least-squares fit at Chebyshev nodes in 50 digits, with the weights raised
where the error is largest (Lawson's iteration), which approaches the minimax polynomial. Needs
mpmath. Run: python tools/fit_polynomials.py
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 50


def fit(f: Callable, low: float, high: float, degree: int, weight: Callable) -> tuple[list, float]:
    """Coefficients, lowest first, of p minimising max |weight * (p - f)| on [low, high]; that
    max."""
    n = 6 * (degree + 1)
    nodes = [
        (mp.mpf(low) + high) / 2 + (mp.mpf(high) - low) / 2 * mp.cos(mp.pi * (k + 0.5) / n)
        for k in range(n)
    ]
    values = [f(x) for x in nodes]
    scale = [weight(x) for x in nodes]
    lawson = [mp.mpf(1)] * n
    best: tuple[list, float] = ([], float("inf"))
    for _ in range(25):
        a, b = mp.matrix(n, degree + 1), mp.matrix(n, 1)
        for i, x in enumerate(nodes):
            w = scale[i] * mp.sqrt(lawson[i])
            for d in range(degree + 1):
                a[i, d] = w * x**d
            b[i] = w * values[i]
        c = mp.lu_solve(a, b)
        errors = [
            abs(scale[i] * (mp.polyval(list(reversed(list(c))), x) - values[i]))
            for i, x in enumerate(nodes)
        ]
        worst = max(errors)
        if worst < best[1]:
            best = ([float(v) for v in c], float(worst))
        lawson = [w * e / worst for w, e in zip(lawson, errors)]
        total = sum(lawson)
        lawson = [w * n / total + mp.mpf(10) ** -12 for w in lawson]
    return best


def exp_tail(x: mp.mpf) -> mp.mpf:
    """(exp(x) - 1 - x) / x^2"""
    return mp.nsum(lambda k: x**k / mp.factorial(k + 2), [0, 40]) if x else mp.mpf(1) / 2


def log_tail(f: mp.mpf) -> mp.mpf:
    """(log1p(f) - f + f^2/2) / f^3"""
    if abs(f) < 0.01:
        return mp.fsum((-1) ** k * f**k / (k + 3) for k in range(25))
    return (mp.log1p(f) - f + f * f / 2) / f**3


def tanh_tail(t: mp.mpf) -> mp.mpf:
    """(tanh(x)/x - 1)/x^2 at t = x^2"""
    x = mp.sqrt(t) if t > 1e-12 else mp.mpf(10) ** -6
    return (mp.tanh(x) / x - 1) / (x * x)


def erf_small(t: mp.mpf) -> mp.mpf:
    """erf(x)/x at t = x^2"""
    x = mp.sqrt(t) if t > 1e-20 else mp.mpf(10) ** -10
    return mp.erf(x) / x


def log2_erfc(x: mp.mpf) -> mp.mpf:
    """log2(erfc(1 + x)/erfc(1)) / x"""
    slope = -2 / (mp.sqrt(mp.pi) * mp.e * mp.erfc(1) * mp.log(2))
    return mp.log(mp.erfc(1 + x) / mp.erfc(1), 2) / x if x else slope


def atanh_tail(t: mp.mpf) -> mp.mpf:
    """(atanh(s)/s - 1)/s^2 at t = s^2"""
    s = mp.sqrt(t) if t > 1e-20 else mp.mpf(10) ** -10
    return (mp.atanh(s) / s - 1) / (s * s)


def atan_tail(t: mp.mpf) -> mp.mpf:
    """(atan(r)/r - 1)/r^2 at t = r^2"""
    r = mp.sqrt(t) if t > 1e-20 else mp.mpf(10) ** -10
    return (mp.atan(r) / r - 1) / (r * r)


def atanh_rest(t: mp.mpf) -> mp.mpf:
    """(atanh(s)/s - 1 - s^2/3)/s^4 at t = s^2"""
    if t < 1e-6:
        return mp.fsum(t**k / (2 * k + 5) for k in range(20))
    s = mp.sqrt(t)
    return (mp.atanh(s) / s - 1 - t / 3) / t**2


def erfinv_over(w: mp.mpf) -> mp.mpf:
    """erfinv(x)/x at w = -log(1 - x^2)"""
    if w < mp.mpf(10) ** -12:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    if x < 0.9:
        return mp.erfinv(x) / x
    below = mp.log(mp.exp(-w) / (1 + x))
    return mp.findroot(lambda y: mp.log(mp.erfc(y)) - below, mp.sqrt(w)) / x


def sin_tail(t: mp.mpf) -> mp.mpf:
    return mp.fsum((-1) ** (k + 1) * t**k / mp.factorial(2 * k + 3) for k in range(20))


def cos_tail(t: mp.mpf) -> mp.mpf:
    return mp.fsum((-1) ** k * t**k / mp.factorial(2 * k + 4) for k in range(20))


def erfc_scaled(u: mp.mpf) -> mp.mpf:
    """erfc(x) exp(x^2) (1 + 2x) at u = (x - 2)/(x + 2)"""
    x = 2 * (1 + u) / (1 - u)
    return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)


def tail_of_erf(u: mp.mpf) -> mp.mpf:
    """What an error of `erfc_scaled` is of erf, relatively."""
    x = 2 * (1 + u) / (1 - u)
    return mp.exp(-x * x) / (1 + 2 * x) / mp.erf(x)


HALF_LN2 = 0.34658
FITS = {
    "exp f32": (exp_tail, -HALF_LN2, HALF_LN2, 4, lambda x: x * x / mp.exp(x)),
    "exp2 f32": (
        lambda x: (mp.mpf(2) ** x - 1) / x if x else mp.log(2),
        -0.5,
        0.5,
        5,
        lambda x: abs(x) / mp.mpf(2) ** x,
    ),
    "log f32": (log_tail, -0.2929, 0.4143, 8, lambda f: abs(f**3 / mp.log1p(f)) if f else 1e-9),
    "erf f32": (erf_small, 1e-9, 1.0, 6, lambda t: mp.sqrt(t) / mp.erf(mp.sqrt(t))),
    "log2 erfc f32": (log2_erfc, 0.0, 3.0, 5, lambda x: x * mp.erfc(1 + x) / mp.erf(1 + x)),
    "exp f64": (exp_tail, -HALF_LN2, HALF_LN2, 10, lambda x: x * x / mp.exp(x)),
    "exp f64 for f32": (exp_tail, -HALF_LN2, HALF_LN2, 5, lambda x: x * x / mp.exp(x)),
    "atanh f64 for f32": (atanh_tail, 1e-12, 0.02945, 3, lambda t: t),
    "atan f64 for f32": (atan_tail, 1e-12, 0.1716, 5, lambda t: t),
    "atanh f64": (atanh_tail, 1e-12, 0.02945, 7, lambda t: t),
    "atanh f64 for pow": (atanh_rest, 0, 0.02945, 7, lambda t: t * t),
    "atan f64": (atan_tail, 1e-12, 0.17158, 11, lambda t: t),
    "erfinv f32": (lambda u: erfinv_over(u + 2.5), -2.5, 2.5, 9, lambda u: 1),
    "erfinv f32 middle": (lambda u: erfinv_over((u + 3.1) ** 2), -0.87, 1.0, 10, lambda u: 0.3),
    "erfinv f32 far": (lambda u: erfinv_over((u + 7) ** 2), -2.95, 3.3, 10, lambda u: 0.15),
    "tanh f64": (tanh_tail, 1e-9, 0.55**2, 12, lambda t: t),
    "sin f64": (sin_tail, 0, 0.6169, 6, lambda t: t),
    "cos f64": (cos_tail, 0, 0.6169, 6, lambda t: t * t),
    "erfc f64 for f32": (erfc_scaled, -1.0, 0.71, 13, lambda u: 1 / erfc_scaled(u)),
    # the first coefficient of "erf f64" is kept less 1
    "erf f64": (erf_small, 1e-20, 1.0, 11, lambda t: mp.sqrt(t) / mp.erf(mp.sqrt(t))),
    "erf f64 tail": (erfc_scaled, -1 / 3, 0.5, 11, tail_of_erf),
}


def main() -> None:
    for name, (f, low, high, degree, weight) in FITS.items():
        coefficients, error = fit(f, low, high, degree, weight)
        print(f"{name}: error {error:.2e} = 2^{mp.nstr(mp.log(error, 2), 4)}")
        for c in coefficients:
            print(f"    {c!r},")


if __name__ == "__main__":
    main()
