# SPDX-License-Identifier: Apache-2.0
"""The built-in functions of the language on arrays (LANGUAGE A18), with C99 and CUDA meanings.

Each is computed in float64; a float32 (or half) result is rounded once. Values outside a domain
give NaN or an infinity as in C, never an exception. What numpy and `math` lack is in
`interpret_special`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcsym.frontend import interpret_special as special
from tcsym.frontend.interpret_values import held_in, stored
from tcsym.types import DType

Array = NDArray[Any]


def call(function: str, args: Sequence[Array], dtype: DType) -> Array:
    """`function(*args)` in `dtype` (a floating type); arguments and result are held values."""
    if function == "nextafter":  # the neighbour in the type itself
        start, toward = (stored(a, dtype) for a in args)
        return np.nextafter(start, toward).astype(held_in(dtype))
    result = FUNCTIONS[function](*(a.astype(np.float64) for a in args))
    return np.asarray(result).astype(held_in(dtype))


def _each(scalar: Callable[..., float], n_args: int = 1) -> Callable[..., Array]:
    """A function of Python floats for arrays: ValueError is NaN, OverflowError infinity."""

    def total(*args: float) -> float:
        try:
            return scalar(*args)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    elementwise = np.frompyfunc(total, n_args, 1)
    return lambda *arrays: np.asarray(elementwise(*arrays)).astype(np.float64)


def _round(x: Array) -> Array:
    """To the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)


def _logb(x: Array) -> Array:
    _, exponent = np.frexp(x)
    finite = np.where(x == 0, -np.inf, exponent - 1.0)
    return np.where(np.isfinite(x), finite, np.abs(x))


def _fdim(x: Array, y: Array) -> Array:
    return np.where(x <= y, 0.0, x - y)


def _fma(x: float, y: float, z: float) -> float:
    """x*y + z rounded once."""
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        return x * y + z if not (math.isfinite(x) and math.isfinite(y)) else z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        return x * y + z if x * y == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _lgamma(x: float) -> float:
    if x <= 0 and x == math.floor(x):
        return math.inf
    return math.lgamma(x)


def _tgamma(x: float) -> float:
    if abs(x) < 2.0**-1024:  # about 1/x
        return math.copysign(math.inf, x)
    return math.gamma(x)


def _norm(*components: Array) -> Array:
    length = np.abs(components[0])
    for x in components[1:]:
        length = np.hypot(length, x)
    return length


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": special.cospi,
    "cyl_bessel_i0": special.bessel_i0,
    "cyl_bessel_i1": special.bessel_i1,
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "erfcinv": _each(special.erfcinv),
    "erfcx": _each(special.erfcx),
    "erfinv": _each(special.erfinv),
    "exp": np.exp,
    "exp10": lambda x: np.power(10.0, x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fabs": np.fabs,
    "fdim": _fdim,
    "fdivide": np.divide,
    "floor": np.floor,
    "fma": _each(_fma, 3),
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "j0": special.bessel_j0,
    "j1": special.bessel_j1,
    "lgamma": _each(_lgamma),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "logb": _logb,
    "nextafter": np.nextafter,
    "norm3d": _norm,
    "norm4d": _norm,
    "normcdf": _each(special.normcdf),
    "normcdfinv": _each(special.normcdfinv),
    "pow": np.power,
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "remainder": _each(math.remainder, 2),
    "rhypot": lambda x, y: 1.0 / np.hypot(x, y),
    "rnorm3d": lambda *xs: 1.0 / _norm(*xs),
    "rnorm4d": lambda *xs: 1.0 / _norm(*xs),
    "round": _round,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": special.sinpi,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "tgamma": _each(_tgamma),
    "trunc": np.trunc,
    "y0": special.bessel_y0,
    "y1": special.bessel_y1,
}
