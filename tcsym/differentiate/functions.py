# SPDX-License-Identifier: Apache-2.0
"""The derivative of each built-in function by each of its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tcsym.differentiate.algebra import (
    FALSEHOOD,
    add,
    both,
    constant,
    divide,
    multiply,
    negative,
    select,
    subtract,
)
from tcsym.frontend.program import Binary, Call, Compare, Const, Expr, Read, dtype_of
from tcsym.types import DType

Partial = Callable[[Sequence[Expr], Expr], tuple[Expr | None, ...]]


def partials(call: Call, result: Expr) -> tuple[Expr | None, ...]:
    """d call / d argument, for each; None where it is 0. `result`: the value of the call."""
    if call.function in _STEPS:
        return (None,) * len(call.args)
    return _TABLE[call.function](call.args, result)


# Constant wherever they have a derivative.
_STEPS = frozenset(("ceil", "floor", "round", "trunc", "logb"))


def _c(value: float, like: Expr) -> Const:
    return constant(value, dtype_of(like))


def _f(function: str, *args: Expr) -> Call:
    return Call(function, args, dtype_of(args[0]))


def _one_minus(x: Expr) -> Expr:
    return subtract(_c(1.0, x), x)


def _square(x: Expr) -> Expr:
    return multiply(x, x)


def _over(x: Expr) -> Expr:
    return divide(_c(1.0, x), x)


def _scaled(k: float, x: Expr) -> Expr:
    return multiply(_c(k, x), x)


def _gaussian(k: float, x: Expr, sign: float) -> Expr:
    """k * exp(sign * x * x)"""
    exponent = _scaled(sign, _square(x))
    return _scaled(k, _f("exp", exponent))


def _truth(op: str, a: Expr, b: Expr) -> Expr:
    return Compare(op, a, b)  # type: ignore[arg-type]


def _sign(x: Expr) -> Expr:
    zero, one = _c(0.0, x), _c(1.0, x)
    return select(_truth("gt", x, zero), one, select(_truth("lt", x, zero), _c(-1.0, x), zero))


def _is_nan(x: Expr) -> Expr:
    return FALSEHOOD if isinstance(x, Const) and x.value == x.value else _truth("ne", x, x)


def _either(a: Expr, b: Expr) -> Expr:
    return a if b == FALSEHOOD else Binary("or", a, b, DType.BOOL)


def _chosen(a: Expr, b: Expr, y: Expr, op: str) -> tuple[Expr, Expr]:
    """As torch: the first where they are equal, and where the second is NaN."""
    one, zero = _c(1.0, a), _c(0.0, a)
    if isinstance(a, Const) and isinstance(y, Read) and _is_nan(a) == FALSEHOOD:
        first = _truth(op, a, y)  # then the second need not be computed again
    else:
        first = _either(_truth(op, a, b), _is_nan(b))
    return select(first, one, zero), select(first, zero, one)


def _quotient(a: Expr, b: Expr, y: Expr) -> tuple[Expr, Expr]:
    return _over(b), negative(divide(y, b))


def _power(a: Expr, b: Expr, y: Expr) -> tuple[Expr, Expr]:
    """By the base: 0 for the exponent 0, as in torch; by the exponent: 0 for the base 0."""
    zero = _c(0.0, a)
    by_base: Expr = multiply(b, _f("pow", a, subtract(b, _c(1.0, b))))
    if isinstance(b, Const):
        by_base = _c(0.0, a) if b.value == 0 else by_base
        by_base = _scaled(2.0, a) if b.value == 2 else by_base
        by_base = _c(1.0, a) if b.value == 1 else by_base
    else:
        by_base = select(_truth("eq", b, zero), zero, by_base)
    at_zero = both(_truth("eq", a, zero), _truth("ge", b, zero))
    return by_base, select(at_zero, zero, multiply(y, _f("log", a)))


def _norm(args: Sequence[Expr], y: Expr) -> tuple[Expr, ...]:
    """As torch: 0 where the norm is 0."""
    zero = _c(0.0, y)
    return tuple(select(_truth("eq", y, zero), zero, divide(x, y)) for x in args)


def _reciprocal_norm(args: Sequence[Expr], y: Expr) -> tuple[Expr, ...]:
    cube = multiply(multiply(y, y), y)
    return tuple(negative(multiply(x, cube)) for x in args)


def _remainder(args: Sequence[Expr], function: str) -> tuple[Expr, Expr]:
    a, b = args
    return _c(1.0, a), negative(_f(function, divide(a, b)))


def _ieee_remainder(args: Sequence[Expr], y: Expr) -> tuple[Expr, Expr]:
    """b times the whole number n was taken away: n = (a - y) / b, rounded for what division lost"""
    a, b = args
    return _c(1.0, a), negative(_f("round", divide(subtract(a, y), b)))


def _digamma(x: Expr) -> Expr:
    """The derivative of log(gamma(x)): ten steps up, where a series in 1/x**2 is exact to the last
    bits of a double; below 1/2 by reflection. Abramowitz and Stegun, 6.3.5, 6.3.7 and 6.3.18."""
    is_low = _truth("lt", x, _c(0.5, x))
    z = select(is_low, _one_minus(x), x)
    above = add(z, _c(float(_STEPS_UP), x))
    w = _over(_square(above))
    series: Expr = _c(_BERNOULLI[-1], x)
    for b in reversed(_BERNOULLI[:-1]):
        series = subtract(_c(b, x), multiply(w, series))
    found = subtract(_f("log", above), divide(_c(0.5, x), above))
    found = subtract(found, multiply(w, series))
    for k in range(_STEPS_UP):
        found = subtract(found, _over(add(z, _c(float(k), x))))
    cotangent = divide(_f("cospi", x), _f("sinpi", x))
    return subtract(found, select(is_low, _scaled(_PI, cotangent), _c(0.0, x)))


def _bessel1(order_zero: str, x: Expr, y: Expr) -> Expr:
    """d/dx of a Bessel function of order 1: that of order 0, less itself over x."""
    rest = subtract(_f(order_zero, x), divide(y, x))
    if order_zero != "j0" and order_zero != "cyl_bessel_i0":
        return rest
    return select(_truth("eq", x, _c(0.0, x)), _c(0.5, x), rest)


def _one(f: Callable[[Expr, Expr], Expr]) -> Partial:
    return lambda args, y: (f(args[0], y),)


_PI = math.pi
_TWO_OVER_ROOT_PI = 2 / math.sqrt(_PI)
_STEPS_UP = 10
_BERNOULLI = (1 / 12, 1 / 120, 1 / 252, 1 / 240, 1 / 132, 691 / 32760)  # |B(2n)| / 2n
_LN2, _LN10 = math.log(2), math.log(10)

_TABLE: dict[str, Partial] = {
    "acos": _one(lambda x, y: negative(_f("rsqrt", _one_minus(_square(x))))),
    "asin": _one(lambda x, y: _f("rsqrt", _one_minus(_square(x)))),
    "atan": _one(lambda x, y: _over(add(_c(1.0, x), _square(x)))),
    "acosh": _one(
        lambda x, y: multiply(_f("rsqrt", subtract(x, _c(1.0, x))), _f("rsqrt", add(x, _c(1.0, x))))
    ),
    "asinh": _one(lambda x, y: _f("rsqrt", add(_square(x), _c(1.0, x)))),
    "atanh": _one(lambda x, y: _over(_one_minus(_square(x)))),
    "cbrt": _one(lambda x, y: _over(_scaled(3.0, _square(y)))),
    "cos": _one(lambda x, y: negative(_f("sin", x))),
    "cosh": _one(lambda x, y: _f("sinh", x)),
    "cospi": _one(lambda x, y: _scaled(-_PI, _f("sinpi", x))),
    "cyl_bessel_i0": _one(lambda x, y: _f("cyl_bessel_i1", x)),
    "cyl_bessel_i1": _one(lambda x, y: _bessel1("cyl_bessel_i0", x, y)),
    "erf": _one(lambda x, y: _gaussian(_TWO_OVER_ROOT_PI, x, -1.0)),
    "erfc": _one(lambda x, y: _gaussian(-_TWO_OVER_ROOT_PI, x, -1.0)),
    "erfcinv": _one(lambda x, y: _gaussian(-1 / _TWO_OVER_ROOT_PI, y, 1.0)),
    "erfcx": _one(lambda x, y: subtract(multiply(_scaled(2.0, x), y), _c(_TWO_OVER_ROOT_PI, x))),
    "erfinv": _one(lambda x, y: _gaussian(1 / _TWO_OVER_ROOT_PI, y, 1.0)),
    "exp": _one(lambda x, y: y),
    "exp10": _one(lambda x, y: _scaled(_LN10, y)),
    "exp2": _one(lambda x, y: _scaled(_LN2, y)),
    "expm1": _one(lambda x, y: add(y, _c(1.0, y))),
    "fabs": _one(lambda x, y: _sign(x)),
    "j0": _one(lambda x, y: negative(_f("j1", x))),
    "j1": _one(lambda x, y: _bessel1("j0", x, y)),
    "lgamma": _one(lambda x, y: _digamma(x)),
    "log": _one(lambda x, y: _over(x)),
    "log10": _one(lambda x, y: _over(_scaled(_LN10, x))),
    "log1p": _one(lambda x, y: _over(add(x, _c(1.0, x)))),
    "log2": _one(lambda x, y: _over(_scaled(_LN2, x))),
    "normcdf": _one(lambda x, y: _gaussian(1 / math.sqrt(2 * _PI), x, -0.5)),
    "normcdfinv": _one(lambda x, y: _gaussian(math.sqrt(2 * _PI), y, 0.5)),
    "rcbrt": _one(lambda x, y: negative(divide(y, _scaled(3.0, x)))),
    "rsqrt": _one(lambda x, y: multiply(_scaled(-0.5, y), _square(y))),
    "sin": _one(lambda x, y: _f("cos", x)),
    "sinh": _one(lambda x, y: _f("cosh", x)),
    "sinpi": _one(lambda x, y: _scaled(_PI, _f("cospi", x))),
    "sqrt": _one(lambda x, y: divide(_c(0.5, x), y)),
    "tan": _one(lambda x, y: add(_c(1.0, x), _square(y))),
    "tgamma": _one(lambda x, y: multiply(y, _digamma(x))),
    "tanh": _one(lambda x, y: _one_minus(_square(y))),
    "y0": _one(lambda x, y: negative(_f("y1", x))),
    "y1": _one(lambda x, y: _bessel1("y0", x, y)),
    "atan2": lambda args, y: (
        divide(args[1], add(_square(args[0]), _square(args[1]))),
        negative(divide(args[0], add(_square(args[0]), _square(args[1])))),
    ),
    "copysign": lambda args, y: (
        select(_truth("eq", args[0], _c(0.0, y)), _c(0.0, y), divide(y, args[0])),
        None,
    ),
    "fdim": lambda args, y: (
        select(_truth("gt", args[0], args[1]), _c(1.0, y), _c(0.0, y)),
        select(_truth("gt", args[0], args[1]), _c(-1.0, y), _c(0.0, y)),
    ),
    "fdivide": lambda args, y: _quotient(args[0], args[1], y),
    "fma": lambda args, y: (args[1], args[0], _c(1.0, y)),
    "fmax": lambda args, y: _chosen(args[0], args[1], y, "ge"),
    "fmin": lambda args, y: _chosen(args[0], args[1], y, "le"),
    "fmod": lambda args, y: _remainder(args, "trunc"),
    "hypot": _norm,
    "nextafter": lambda args, y: (_c(1.0, y), None),
    "norm3d": _norm,
    "norm4d": _norm,
    "pow": lambda args, y: _power(args[0], args[1], y),
    "remainder": _ieee_remainder,
    "rhypot": _reciprocal_norm,
    "rnorm3d": _reciprocal_norm,
    "rnorm4d": _reciprocal_norm,
}
