# SPDX-License-Identifier: Apache-2.0
"""Special functions in float64 that numpy and `math` lack: erf family, Bessel, sin and cos of pi x.

About 1e-13 relative (Bessel J and Y near their zeros: absolute). Formula numbers are those of
Abramowitz and Stegun, Handbook of Mathematical Functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_SQRT_PI = math.sqrt(math.pi)
_SQRT_2 = math.sqrt(2.0)
_NORMAL = NormalDist()

# ---- sin and cos of pi x


def _pi_octant(x: Array) -> tuple[Array, Array]:
    """(n, t): |x| = n/2 + t modulo 2, |t| <= 1/4, both exact."""
    r = np.fmod(np.abs(x), 2.0)
    n = np.rint(2.0 * r)
    return n % 4, (r - 0.5 * n) * math.pi


def sinpi(x: Array) -> Array:
    n, t = _pi_octant(x)
    value = np.select([n == 0, n == 1, n == 2], [np.sin(t), np.cos(t), -np.sin(t)], -np.cos(t))
    value = np.where(value == 0, np.abs(value), value)
    return np.where(np.isfinite(x), np.copysign(1.0, x) * value, np.nan)


def cospi(x: Array) -> Array:
    n, t = _pi_octant(x)
    value = np.select([n == 0, n == 1, n == 2], [np.cos(t), -np.sin(t), -np.cos(t)], np.sin(t))
    return np.where(np.isfinite(x), value, np.nan)


# ---- error function family (Python floats; OverflowError and ValueError mean infinity and NaN)


def erfcx(x: float) -> float:
    """exp(x*x) * erfc(x)."""
    if x > 25.0:  # asymptotic series 7.1.23
        term, total, k = 1.0, 1.0, 1
        while abs(term) > 1e-18:
            term *= -(2 * k - 1) / (2.0 * x * x)
            total, k = total + term, k + 1
        return total / (x * _SQRT_PI)
    if math.isnan(x) or x < -1e3:
        return x * x * math.inf
    square = x * x
    head = math.ldexp(math.floor(math.ldexp(x, 20)), -20)  # head*head is exact
    error = (head * head - square) + (x - head) * (x + head)
    return math.exp(square) * (1.0 + error) * math.erfc(x)


def erfinv(y: float) -> float:
    if abs(y) > 0.5:
        return math.copysign(_erfc_inverse(1.0 - abs(y)), y)
    x = 0.5 * _SQRT_PI * y * (1.0 + math.pi / 12.0 * y * y)
    for _ in range(4):
        x -= (math.erf(x) - y) * 0.5 * _SQRT_PI * math.exp(x * x)
    return x


def erfcinv(z: float) -> float:
    if z > 1.5:
        return -_erfc_inverse(2.0 - z)
    return erfinv(1.0 - z) if z >= 0.5 else _erfc_inverse(z)


def _erfc_inverse(z: float) -> float:
    """x with erfc(x) = z for z <= 1/2; a step of Newton on log(erfc) polishes the quantile."""
    if z <= 0.0 or math.isnan(z):
        return math.inf if z == 0.0 else math.nan
    x = -_NORMAL.inv_cdf(0.5 * z) / _SQRT_2 if z > 1e-300 else math.sqrt(-math.log(z))
    for _ in range(1 if z > 1e-300 else 8):
        x += (math.log(erfcx(x)) - x * x - math.log(z)) * 0.5 * _SQRT_PI * erfcx(x)
    return x


def normcdf(x: float) -> float:
    return 0.5 * math.erfc(-x / _SQRT_2)


def normcdfinv(p: float) -> float:
    return -_SQRT_2 * erfcinv(2.0 * p)


# ---- modified Bessel functions


def _bessel_i(order: int, x: Array) -> Array:
    a = np.abs(x)
    series = term = np.where(a < 30.0, (0.5 * a) ** order, 0.0)
    quarter = 0.25 * np.where(a < 30.0, a, 0.0) ** 2
    for k in range(1, 80):  # 9.6.10
        term = term * quarter / (k * (k + order))
        series = series + term
    far = np.maximum(a, 30.0)
    asymptotic = part = np.ones_like(a)
    for k in range(1, 25):  # 9.7.1
        part = part * ((2 * k - 1) ** 2 - 4 * order**2) / (8.0 * k * far)
        asymptotic = asymptotic + part
    grown = np.exp(0.5 * far)
    large = grown * (grown / np.sqrt(2.0 * math.pi * far) * asymptotic)
    value = np.where(a < 30.0, series, np.where(np.isinf(a), np.inf, large))
    return np.copysign(value, x) if order else np.where(np.isnan(x), x, value)


def bessel_i0(x: Array) -> Array:
    return _bessel_i(0, x)


def bessel_i1(x: Array) -> Array:
    return _bessel_i(1, x)


# ---- Bessel functions: an integral over the period below 25, Hankel's expansion above

_FAR = 25.0
_THETA = (np.arange(256) + 0.5) * (2.0 * math.pi / 256)
_ORDERS = np.arange(1, 40)
_SIGNS = np.where(_ORDERS % 2 == 0, 1.0, -1.0)
# Neumann's series 9.1.88, the sums over k of (-1)^k J_2k / k and (-1)^k (2k+1) J_{2k+1} / (k(k+1)),
# as weights of the integrand that gives J_0 or J_1
_Y0_WEIGHTS = (_SIGNS / _ORDERS) @ np.cos(2 * np.outer(_ORDERS, _THETA))
_Y1_WEIGHTS = (_SIGNS * (2 * _ORDERS + 1) / (_ORDERS * (_ORDERS + 1.0))) @ np.sin(
    np.outer(2 * _ORDERS + 1, _THETA)
)


def _mean(integrand: Callable[[Array], Array], x: Array, weights: Array) -> Array:
    """Mean over the period of integrand(x sin(theta)) * weight: exact to rounding for x <= 25."""
    parts = [
        integrand(np.outer(part, np.sin(_THETA))) @ weights / len(_THETA)
        for part in np.array_split(x, len(x) // 1024 + 1)
    ]
    return np.concatenate(parts)


def _hankel(order: int, x: Array) -> tuple[Array, Array]:
    """(J, Y) of `order` 0 or 1 for x >= 25 (9.2.5, 9.2.6)."""
    p, q, term = np.ones_like(x), np.zeros_like(x), np.ones_like(x)
    for k in range(1, 25):
        term = term * (4 * order**2 - (2 * k - 1) ** 2) / (8.0 * k * x)
        sign = -1.0 if k % 4 >= 2 else 1.0
        p, q = (p + sign * term, q) if k % 2 == 0 else (p, q + sign * term)
    c, s = np.cos(x), np.sin(x)
    cos, sin = (c + s, s - c) if order == 0 else (s - c, -s - c)  # of the phase, times sqrt(2)
    scale = 1.0 / np.sqrt(math.pi * x)
    return scale * (p * cos - q * sin), scale * (p * sin + q * cos)


def _bessel(order: int, kind: int, near: Callable[[Array], Array], x: Array) -> Array:
    """`near` below 25, else J (kind 0) or Y (kind 1); x >= 0."""
    flat = np.ravel(x)
    small = flat <= _FAR
    value = np.zeros_like(flat)
    value[small] = near(flat[small])
    large = ~small & ~np.isinf(flat)
    value[large] = _hankel(order, flat[large])[kind]
    return value.reshape(np.shape(x))


def _near_j0(x: Array) -> Array:
    return _mean(np.cos, x, np.ones_like(_THETA))


def _near_j1(x: Array) -> Array:
    return _mean(np.sin, x, np.sin(_THETA))


def _near_y0(x: Array) -> Array:
    log = np.log(0.5 * x) + np.euler_gamma
    return (2.0 / math.pi) * (log * _near_j0(x) - 2.0 * _mean(np.cos, x, _Y0_WEIGHTS))


def _near_y1(x: Array) -> Array:
    log = np.log(0.5 * x) + np.euler_gamma - 1.0
    rest = log * _near_j1(x) - _mean(np.sin, x, _Y1_WEIGHTS)
    return (2.0 / math.pi) * (rest - _near_j0(x) / x)


def bessel_j0(x: Array) -> Array:
    return _bessel(0, 0, _near_j0, np.abs(x))


def bessel_j1(x: Array) -> Array:
    return np.where(x < 0, -1.0, 1.0) * _bessel(1, 0, _near_j1, np.abs(x))


def bessel_y0(x: Array) -> Array:
    return np.where(x == 0, -np.inf, _bessel(0, 1, _near_y0, np.where(x > 0, x, np.nan)))


def bessel_y1(x: Array) -> Array:
    return np.where(x == 0, -np.inf, _bessel(1, 1, _near_y1, np.where(x > 0, x, np.nan)))
