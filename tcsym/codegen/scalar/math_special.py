"""Functions the C library lacks, as scalar double-precision functions of the module being emitted.

Each is written once a module (`@tcsym.erfinv`, ...) and called lane by lane; relative errors are
about 1e-13 or better over the whole range. Both arms of a selection are computed: none can trap.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tcsym.codegen.scalar.floats import Num, polynomial, where
from tcsym.codegen.scalar.text import Function
from tcsym.codegen.scalar.values import Code, Val

INF, NAN = math.inf, math.nan
_SQRT_PI = math.sqrt(math.pi)


def special(code: Code, name: str, args: list[Val]) -> Val:
    """`name` lane by lane, computed in double precision."""
    kind = args[0].kind
    symbol = f"tcsym.{name}"
    _define(code, symbol, len(args), SPECIAL[name])
    wide = [code.convert("fpext", a, "double") for a in args]
    result = code.call_each(symbol, *wide)
    return code.convert("fptrunc", result, kind)


def _define(code: Code, symbol: str, n_args: int, body: Callable[..., Num]) -> None:
    module = code.function.module
    if symbol in module.names:
        return
    module.names.add(symbol)
    names = [f"%x{i}" for i in range(n_args)]
    parameters = ", ".join(f"double {n}" for n in names)
    f = Function(module, f"define internal double @{symbol}({parameters}) #1")
    inner = Code(f, code.machine)
    result = body(*(Num(inner, Val(n, "double")) for n in names))
    f.do(f"ret double {result.val.text}")
    f.finish()


# ---- circles and lengths


def _quarters(x: Num) -> tuple[Num, Num, Num]:
    """sin and cos of pi*(x - k/2) with k = rint(2x), and k mod 4."""
    r = x - 2.0 * (0.5 * x).intrinsic("rint")
    k = (2.0 * r).intrinsic("rint")
    t = (r - 0.5 * k) * math.pi
    return t.each("sin"), t.each("cos"), k - 4.0 * (k * 0.25).intrinsic("floor")


def sinpi(x: Num) -> Num:
    s, c, k = _quarters(x)
    value = where(k.equals(1.0), c, where(k.equals(2.0), -s, where(k.equals(3.0), -c, s)))
    value = where(k.is_nan(), NAN, value)
    return where(value.equals(0.0), value.with_sign(x), value)


def cospi(x: Num) -> Num:
    s, c, k = _quarters(x)
    value = where(k.equals(1.0), -s, where(k.equals(2.0), -c, where(k.equals(3.0), s, c)))
    return where(k.is_nan(), NAN, value)


def norm(*parts: Num) -> Num:
    length = parts[0].magnitude()
    for p in parts[1:]:
        length = length.each("hypot", p)
    return length


def reciprocal_norm(*parts: Num) -> Num:
    return 1.0 / norm(*parts)


def rcbrt(x: Num) -> Num:
    return 1.0 / x.each("cbrt")


# ---- error functions


def _square_parts(x: Num) -> tuple[Num, Num]:
    """x*x as a rounded product and the rest."""
    high = x * x
    return high, x.intrinsic("fma", x, -high)


def erfcx(x: Num) -> Num:
    """exp(x^2) erfc(x): the product below 25, an asymptotic series above."""
    high, low = _square_parts(x)
    product = high.each("exp") * x.each("erfc")
    near = where(product.equals(INF), INF, product + product * low)
    u = 1.0 / (2.0 * high)
    terms = [1.0]
    for n in range(1, 9):
        terms.append(-terms[-1] * (2 * n - 1))
    far = polynomial(u, tuple(terms)) / (x * _SQRT_PI)
    return where(x > 25.0, far, near)


def normcdf(x: Num) -> Num:
    """erfc(-x/sqrt 2)/2, corrected for the rounding of the argument."""
    a = x * -math.sqrt(0.5)
    root_low = -4.833646656726457e-17  # sqrt(1/2) minus its double
    low = x.intrinsic("fma", -math.sqrt(0.5), -a) - x * root_low
    slope = (-(a * a)).each("exp") * (2.0 / _SQRT_PI)
    value = 0.5 * (a.each("erfc") - slope * low)
    return where(x > 40.0, 1.0, where(x < -40.0, 0.0, value))


def erfinv(x: Num) -> Num:
    a = x.magnitude()
    y = where(a < 0.5, _erfinv_center(a), _erfcinv_tail(1.0 - a))
    y = where(a.equals(1.0), INF, where(a > 1.0, NAN, y))
    return y.with_sign(x)


def erfcinv(q: Num) -> Num:
    upper = q > 1.5
    tail = _erfcinv_tail(where(upper, 2.0 - q, q))
    center = _erfinv_center(1.0 - q)
    y = where(upper, -tail, where(q < 0.5, tail, center))
    y = where(q.equals(0.0), INF, where(q.equals(2.0), -INF, y))
    return where((q < 0.0) | (q > 2.0), NAN, y)


def normcdfinv(p: Num) -> Num:
    return erfcinv(p * 2.0) * -math.sqrt(2.0)


def _erfinv_center(x: Num) -> Num:
    """|x| <= 0.5: Halley's iteration on erf(y) = x."""
    y = x * (0.886226925452758 + x * x * 0.2320136665)
    for _ in range(4):
        step = (y.each("erf") - x) * (y * y).each("exp") * (0.5 * _SQRT_PI)
        y = y - step / (1.0 + y * step)
    return y


def _erfcinv_tail(q: Num) -> Num:
    """0 < q <= 0.5: Newton's iteration on log erfc(y) = log q, which is nearly a parabola."""
    log_q = q.each("log")
    y = (-log_q - 0.5 * (1.1447298858494002 - log_q).each("log")).intrinsic("maximum", 0.2)
    y = y.intrinsic("sqrt")
    for _ in range(6):
        scaled = erfcx(y)
        high, low = _square_parts(y)
        gap = ((scaled.each("log") - high) - log_q) - low
        y = y + gap * scaled * (0.5 * _SQRT_PI)
    return y


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
    root = (0.5 * bounded).each("exp")
    scale = root / (bounded * (2.0 * math.pi)).intrinsic("sqrt")
    large = scale * polynomial(1.0 / bounded, tuple(expansion)) * root
    return where(a < 20.0, small, where(a.equals(INF), INF, large))


SPECIAL: dict[str, Callable[..., Num]] = {
    "cospi": cospi,
    "cyl_bessel_i0": bessel_i0,
    "cyl_bessel_i1": bessel_i1,
    "erfcinv": erfcinv,
    "erfcx": erfcx,
    "erfinv": erfinv,
    "norm3d": norm,
    "norm4d": norm,
    "normcdf": normcdf,
    "normcdfinv": normcdfinv,
    "rcbrt": rcbrt,
    "rhypot": reciprocal_norm,
    "rnorm3d": reciprocal_norm,
    "rnorm4d": reciprocal_norm,
    "sinpi": sinpi,
}
