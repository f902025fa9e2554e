# SPDX-License-Identifier: Apache-2.0
"""Every built-in function against tabulated values, in each floating type, and special cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tcsym.frontend.interpret_functions import FUNCTIONS, call
from tcsym.types import DType

INF, NAN = math.inf, math.nan

KNOWN: dict[str, tuple[tuple[float, ...], float]] = {
    "acos": ((0.5,), math.pi / 3),
    "acosh": ((2.0,), 1.3169578969248167),
    "asin": ((0.5,), math.pi / 6),
    "asinh": ((1.0,), 0.881373587019543),
    "atan": ((1.0,), math.pi / 4),
    "atan2": ((-1.0, -1.0), -3 * math.pi / 4),
    "atanh": ((0.5,), 0.5493061443340549),
    "cbrt": ((-27.0,), -3.0),
    "ceil": ((-1.5,), -1.0),
    "copysign": ((3.0, -0.0), -3.0),
    "cos": ((1.0,), 0.5403023058681398),
    "cosh": ((1.0,), 1.5430806348152437),
    "cospi": ((0.25,), 0.7071067811865476),
    "cyl_bessel_i0": ((1.0,), 1.2660658777520084),
    "cyl_bessel_i1": ((1.0,), 0.5651591039924851),
    "erf": ((0.5,), 0.5204998778130465),
    "erfc": ((2.0,), 0.004677734981047266),
    "erfcinv": ((0.25,), 0.8134198475976185),
    "erfcx": ((30.0,), 0.018795888861416751),
    "erfinv": ((0.5,), 0.4769362762044699),
    "exp": ((1.0,), math.e),
    "exp10": ((-2.0,), 0.01),
    "exp2": ((0.5,), math.sqrt(2)),
    "expm1": ((1.0,), math.e - 1),
    "fabs": ((-2.5,), 2.5),
    "fdim": ((5.0, 3.0), 2.0),
    "fdivide": ((1.0, 4.0), 0.25),
    "floor": ((-1.5,), -2.0),
    "fma": ((2.0, 3.0, 4.0), 10.0),
    "fmax": ((NAN, 2.0), 2.0),
    "fmin": ((NAN, 2.0), 2.0),
    "fmod": ((-5.5, 2.0), -1.5),
    "hypot": ((3.0, 4.0), 5.0),
    "j0": ((1.0,), 0.7651976865579666),
    "j1": ((1.0,), 0.4400505857449335),
    "lgamma": ((5.0,), math.log(24)),
    "log": ((10.0,), 2.302585092994046),
    "log10": ((1000.0,), 3.0),
    "log1p": ((1.0,), math.log(2)),
    "log2": ((8.0,), 3.0),
    "logb": ((10.0,), 3.0),
    "nextafter": ((1.0, -INF), 1.0),
    "norm3d": ((2.0, 3.0, -6.0), 7.0),
    "norm4d": ((2.0, 4.0, 5.0, 6.0), 9.0),
    "normcdf": ((1.0,), 0.8413447460685429),
    "normcdfinv": ((0.75,), 0.6744897501960817),
    "pow": ((2.0, 10.0), 1024.0),
    "rcbrt": ((8.0,), 0.5),
    "remainder": ((5.5, 2.0), -0.5),
    "rhypot": ((3.0, 4.0), 0.2),
    "rnorm3d": ((2.0, 3.0, 6.0), 1 / 7),
    "rnorm4d": ((2.0, 4.0, 5.0, 6.0), 1 / 9),
    "round": ((-2.5,), -3.0),
    "rsqrt": ((4.0,), 0.5),
    "sin": ((1.0,), 0.8414709848078965),
    "sinh": ((1.0,), 1.1752011936438014),
    "sinpi": ((-0.5,), -1.0),
    "sqrt": ((2.0,), math.sqrt(2)),
    "tan": ((1.0,), 1.5574077246549023),
    "tanh": ((0.5,), 0.46211715726000973),
    "tgamma": ((0.5,), math.sqrt(math.pi)),
    "trunc": ((-1.7,), -1.0),
    "y0": ((1.0,), 0.08825696421567698),
    "y1": ((1.0,), -0.7812128213002887),
}

SPECIAL: list[tuple[str, tuple[float, ...], float]] = [
    ("acos", (2.0,), NAN),
    ("cospi", (0.5,), 0.0),
    ("cospi", (1e15 + 1,), -1.0),
    ("cospi", (INF,), NAN),
    ("cyl_bessel_i0", (-INF,), INF),
    ("cyl_bessel_i0", (50.0,), 2.93255378384934e20),
    ("cyl_bessel_i1", (-50.0,), -2.9030785901035567e20),
    ("erfcinv", (0.0,), INF),
    ("erfcinv", (2.0,), -INF),
    ("erfcinv", (1e-100,), 15.065574702592645),
    ("erfcx", (-30.0,), INF),
    ("erfcx", (INF,), 0.0),
    ("erfcx", (-1.0,), 5.0089800807622835),
    ("erfinv", (1.0,), INF),
    ("erfinv", (-1.5,), NAN),
    ("erfinv", (1e-9,), 8.862269254527581e-10),
    ("exp", (1e6,), INF),
    ("fdim", (3.0, 5.0), 0.0),
    ("fdim", (INF, INF), 0.0),
    ("fdim", (NAN, 1.0), NAN),
    ("fdivide", (1.0, 0.0), INF),
    ("fma", (INF, 0.0, 1.0), NAN),
    ("fma", (1.0, 2.0, -INF), -INF),
    ("fma", (1 + 2.0**-52, 1 - 2.0**-52, -1.0), -(2.0**-104)),
    ("fma", (1e308, -1e308, 0.0), -INF),
    ("fmod", (1.0, 0.0), NAN),
    ("fmod", (3.0, INF), 3.0),
    ("hypot", (NAN, INF), INF),
    ("j0", (20.0,), 0.16702466434058316),
    ("j0", (100.0,), 0.019985850304223122),
    ("j0", (INF,), 0.0),
    ("j1", (-100.0,), 0.07714535201411216),
    ("lgamma", (-2.0,), INF),
    ("lgamma", (-INF,), INF),
    ("lgamma", (1e308,), INF),
    ("log", (-1.0,), NAN),
    ("log", (0.0,), -INF),
    ("logb", (0.0,), -INF),
    ("logb", (-INF,), INF),
    ("logb", (5e-324,), -1074.0),
    ("normcdf", (-20.0,), 2.7536241186062337e-89),
    ("normcdfinv", (1e-20,), -9.262340089798408),
    ("normcdfinv", (0.5,), 0.0),
    ("normcdfinv", (1.0,), INF),
    ("normcdfinv", (-0.1,), NAN),
    ("pow", (NAN, 0.0), 1.0),
    ("pow", (-8.0, 1 / 3), NAN),
    ("remainder", (1.0, 0.0), NAN),
    ("remainder", (INF, 2.0), NAN),
    ("remainder", (1.0, INF), 1.0),
    ("round", (0.49999999999999994,), 0.0),
    ("round", (4503599627370497.5,), 4503599627370498.0),
    ("round", (-INF,), -INF),
    ("sinpi", (1e15 + 1,), 0.0),
    ("tgamma", (-1.0,), NAN),
    ("tgamma", (-0.0,), -INF),
    ("tgamma", (-1e-310,), -INF),
    ("tgamma", (200.0,), INF),
    ("y0", (0.0,), -INF),
    ("y0", (-1.0,), NAN),
    ("y0", (50.0,), -0.09806499547007698),
    ("y1", (0.0,), -INF),
    ("y1", (10.0,), 0.24901542420695388),
]


def value(function: str, args: tuple[float, ...], dtype: DType) -> float:
    held = np.float64 if dtype is DType.FLOAT64 else np.float32
    with np.errstate(all="ignore"):
        result = call(function, [np.array([a], dtype=held) for a in args], dtype)
    assert result.dtype == held
    return float(result[0])


def test_all_functions_are_in_the_table() -> None:
    assert len(FUNCTIONS) == 64 and set(KNOWN) == set(FUNCTIONS)


@pytest.mark.parametrize("function", KNOWN)
def test_known_values(function: str) -> None:
    args, expected = KNOWN[function]
    for dtype, rtol in ((DType.FLOAT64, 1e-13), (DType.FLOAT32, 2e-7), (DType.BFLOAT16, 2e-2)):
        assert value(function, args, dtype) == pytest.approx(expected, rel=rtol)


@pytest.mark.parametrize(("function", "args", "expected"), SPECIAL)
def test_special_cases(function: str, args: tuple[float, ...], expected: float) -> None:
    assert value(function, args, DType.FLOAT64) == pytest.approx(
        expected, rel=1e-12, abs=1e-15 if abs(expected) > 1e-30 else 0, nan_ok=True
    )


@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        (DType.FLOAT64, 2.0**-52),
        (DType.FLOAT32, 2.0**-23),
        (DType.FLOAT16, 2.0**-10),
        (DType.BFLOAT16, 2.0**-7),
    ],
)
def test_nextafter_is_the_neighbour_in_the_type(dtype: DType, step: float) -> None:
    assert value("nextafter", (1.0, 2.0), dtype) == 1.0 + step


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_take_empty_arrays(function: str) -> None:
    empty = np.zeros(0, np.float32)
    assert call(function, [empty] * len(KNOWN[function][0]), DType.FLOAT32).shape == (0,)
