# SPDX-License-Identifier: Apache-2.0
"""Single-precision elementary functions as straight vector code.

The common ones stay in single precision; their largest error was measured over every bit
pattern. The rest go through double vectors and are rounded once. NaN, infinities, denormals and
overflow behave as in C. Coefficients: tools/fit_polynomials.py.
"""

from __future__ import annotations

from tcsym.codegen.scalar import math_f64 as wide
from tcsym.codegen.scalar.floats import Num, in_pairs, polynomial, where
from tcsym.codegen.scalar.library import Formula, or_library

INF, NAN = float("inf"), float("nan")
LOG2E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (
    0.4999999311863003,
    0.16666520998270742,
    0.04166848049081564,
    0.008368667520864464,
    0.0013809035341454223,
)
_EXP2 = (
    0.6931472029238752,
    0.24022648043773512,
    0.05550332318605263,
    0.009618419851291643,
    0.0013398918205191472,
    0.00015358283666084223,
)
_LOG = (
    0.33333313021910327,
    -0.250000105230972,
    0.20002095877960147,
    -0.16667935883035562,
    0.1421990629994683,
    -0.12406767611359346,
    0.11886977402680488,
    -0.11668550722102869,
    0.06740509022093397,
)
_ERF = (
    0.1283791657276763,  # less 1: x + x*p rounds better
    -0.3761262584425031,
    0.1128358547343078,
    -0.02685382846049872,
    0.005188363334283304,
    -0.0008010536347162371,
    7.855072290121647e-05,
)

_ERFC_AT_1 = 0.15729920705028513
_LOG2_ERFC = (  # of the quotient by that, over x - 1, at x - 1
    -3.8072247275344218,
    -1.216359011830056,
    -0.059885438200111656,
    0.014288718249793858,
    -0.0026475034375229014,
    0.00027083793048904655,
)

ERFINV = (
    1.5014093591189792,
    0.24664028578545122,
    -0.004177386135805079,
    -0.0012527412127639327,
    0.00021834400131052806,
    -4.963702803565364e-06,
    -3.4626047256403173e-06,
    4.662432943253266e-07,
    2.3225278393921444e-08,
    -8.796088826994818e-09,
)
_ERFINV_MIDDLE = (
    2.9332316697609087,
    1.0033560661844785,
    0.007460257998365766,
    -0.00569539220102148,
    0.004119330355220115,
    -0.0027211594174116256,
    0.0013267979890065804,
    -0.00028713036469886315,
    -0.0001471610479003539,
    0.00013062174266908897,
    -2.9011368028462215e-05,
)
_ERFINV_FAR = (
    6.869019645027049,
    1.0085955665654223,
    -0.0005126206707293891,
    6.393525245063533e-06,
    6.024527018772063e-06,
    -1.6792512684390627e-06,
    3.251879731244875e-07,
    -4.081270778467579e-08,
    6.687831191106451e-09,
    -2.5057457898839e-09,
    3.632979460506577e-10,
)


def _powers(x: Num, factor: float) -> tuple[Num, Num, Num]:
    """n = rint(x*factor) as a float, and 2^a, 2^b with a + b = n for -254 <= n < 250.

    Adding 1.5 * 2^23 + 254 leaves n + 254 in the low bits; shifted left by 23, a half of it is an
    exponent. So no step of the scaling overflows or is denormal before the last, and n = -254 gives
    two zeros: products that vanish are exact, hence not slow as denormal ones are.
    """
    whole = x.times_plus(factor, 12582912.0 + 254)
    bits = whole.bits()
    half = bits.shifted_right(1)
    return whole - (12582912.0 + 254), (half << 23).as_float(), ((bits - half) << 23).as_float()


def exp(x: Num) -> Num:
    """Within 0.88 ulp."""
    x = wide.clamped(x, -176.2, 89.0)
    n, first, second = _powers(x, LOG2E)
    r = n.times_plus(-LN2_HIGH, x)
    r = n.times_plus(-LN2_LOW, r)
    p = in_pairs(r, _EXP).times_plus(r, 1.0)
    return p.times_plus(r * first, first) * second


def exp2(x: Num) -> Num:
    """Within 0.95 ulp."""
    x = wide.clamped(x, -254.0, 129.0)
    n, first, second = _powers(x, 1.0)
    r = x - n
    p = polynomial(r, _EXP2)
    return p.times_plus(r * first, first) * second


def log(x: Num) -> Num:
    """Within 0.81 ulp."""
    tiny = x < 1.1754943508222875e-38
    scaled = where(tiny, x * 8388608.0, x)
    e, f = _split(scaled)
    result = _log(e - where(tiny, x.like(23.0), 0.0), f)
    result = where(x.equals(INF), INF, result)
    result = where(x.equals(0.0), -INF, result)
    return where(x >= 0.0, result, NAN)


def _split(x: Num) -> tuple[Num, Num]:
    """e and f of x = 2^e (1 + f) with 1 + f between the roots of 1/2 and 2; x is no denormal."""
    bits = x.bits() - 0x3F3504F3
    f = ((bits & 0x7FFFFF) + 0x3F3504F3).as_float() - 1.0
    return (bits >> 23).to("float", "sitofp"), f


def _log(e: Num, f: Num, rest: Num | float = 0.0) -> Num:
    """log(2^e (1 + f)), and a small number."""
    square = f * f
    tail = in_pairs(f, _LOG).times_plus(square * f, rest)
    tail = e.times_plus(LN2_LOW, tail)
    tail = square.times_plus(-0.5, tail)
    return e.times_plus(LN2_HIGH, f + tail)


def log1p(x: Num) -> Num:
    """Within 0.81 ulp: the logarithm of the rounded sum, corrected for what the rounding lost."""
    u = x + 1.0
    result = _log(*_split(u), (x - (u - 1.0)) / u)
    result = where(x.equals(INF), INF, result)
    result = where(x.equals(-1.0), INF, result)
    return where(x >= -1.0, result, NAN).with_sign(x)


def tanh(x: Num) -> Num:
    """Within 2.62 ulp: h / (h + 1) with h = (exp(2x) - 1) / 2, in which nothing cancels.

    Half the reduced argument's exponential less one is r + r^2 q(r) at r = x - n ln(2)/2; q is the
    polynomial of exp in 2r.
    """
    x = wide.clamped(x, -9.02, 9.02)
    whole = x.times_plus(2 * LOG2E, 12582912.0 + 127)
    power = (whole.bits() << 23).as_float()
    r = (whole - (12582912.0 + 127)).times_plus(-0.34657359027997264, x)
    q = polynomial(r, tuple(c * 2 ** (k + 1) for k, c in enumerate(_EXP)))
    h = (q * r).times_plus(r, r).times_plus(power, power.times_plus(0.5, -0.5))
    return (h / (h + 1.0)).with_sign(x)


def erf(x: Num) -> Num:
    """Within 0.91 ulp: a series below 1, 1 - 2^(log2 erfc) above."""
    a = x.magnitude()
    small = in_pairs(x * x, _ERF).times_plus(x, x)
    beyond = where(a > 4.0, 4.0, a) - 1.0
    t = in_pairs(beyond, _LOG2_ERFC) * beyond
    whole = t + (12582912.0 + 127)
    r = t - (whole - (12582912.0 + 127))
    p = in_pairs(r, tuple(c * _ERFC_AT_1 for c in (1.0, *_EXP2)))
    large = 1.0 - p * (whole.bits() << 23).as_float()
    return where(a < 1.0, small, large.with_sign(x))


def rsqrt(x: Num) -> Num:
    return 1.0 / x.intrinsic("sqrt")


# ---- through double


def exp10(x: Num) -> Num:
    return wide.exp_for_single(x.double() * 2.302585092994046).single()


def expm1(x: Num) -> Num:
    d = x.double()
    series = d * (1.0 + d * (0.5 + d * (1 / 6 + d / 24.0)))
    return where(d.magnitude() < 2.0**-9, series, wide.exp_for_single(d) - 1.0).single()


def log2(x: Num) -> Num:
    return (wide.log_for_single(x.double()) * LOG2E).single()


def log10(x: Num) -> Num:
    return (wide.log_for_single(x.double()) * 0.4342944819032518).single()


def sinh(x: Num) -> Num:
    d = x.double()
    t = d * d
    series = d * t * (1 / 6 + t * (1 / 120 + t / 5040.0)) + d
    e = wide.exp_for_single(d)
    return where(d.magnitude() < 0.06, series, 0.5 * (e - 1.0 / e)).single()


def cosh(x: Num) -> Num:
    e = wide.exp_for_single(x.double().magnitude())
    return (0.5 * (e + 1.0 / e)).single()


def asinh(x: Num) -> Num:
    d = x.double()
    a, t = d.magnitude(), d * d
    series = d * t * (t * (0.075 - t * (15 / 336)) - 1 / 6) + d
    whole = wide.log_for_single(a + (t + 1.0).intrinsic("sqrt")).with_sign(d)
    return where(a < 2.0**-6, series, whole).single().with_sign(x)


def acosh(x: Num) -> Num:
    d = x.double()
    root = (d * d - 1.0).intrinsic("sqrt")
    return where(d >= 1.0, wide.log_for_single(d + root), NAN).single()


def atanh(x: Num) -> Num:
    d = x.double()
    t = d * d
    series = d * t * (1 / 3 + t * (0.2 + t * (1 / 7))) + d
    whole = 0.5 * wide.log_for_single((1.0 + d) / (1.0 - d))
    return where(d.magnitude() < 2.0**-6, series, whole).single()


def cbrt(x: Num) -> Num:
    d = x.double()
    root = wide.exp_for_single(wide.log_for_single(d.magnitude()) * (1 / 3)).with_sign(d)
    return where(d.equals(0.0), d, root).single()


def rcbrt(x: Num) -> Num:
    d = x.double()
    return wide.exp_for_single(wide.log_for_single(d.magnitude()) * (-1 / 3)).with_sign(d).single()


def erfc(x: Num) -> Num:
    return wide.erfc_for_single(x.double()).single()


def normcdf(x: Num) -> Num:
    return (0.5 * wide.erfc_for_single(x.double() * -0.7071067811865476)).single()


def erfinv(x: Num) -> Num:
    d = x.double()
    a = d.magnitude()
    return _inverse(d, 1.0 - a, 1.0 + a).with_sign(d).single()


def erfcinv(q: Num) -> Num:
    d = q.double()
    return _inverse(1.0 - d, d, 2.0 - d).single()


def normcdfinv(p: Num) -> Num:
    d = p.double() * 2.0
    return (_inverse(1.0 - d, d, 2.0 - d) * -1.4142135623730951).single()


def _inverse(x: Num, below: Num, above: Num) -> Num:
    """erfinv(x): x times polynomials in w = -log(1 - x^2) and its root; 1 - x, 1 + x are known."""
    w = -wide.log_for_single(below * above)
    s = w.intrinsic("sqrt")
    ratio = where(s < 4.08, in_pairs(s - 3.1, _ERFINV_MIDDLE), in_pairs(s - 7.0, _ERFINV_FAR))
    ratio = where(w < 5.0, in_pairs(w - 2.5, ERFINV), ratio)
    ratio = where(w.equals(INF), INF, ratio)
    return where(x.magnitude() <= 1.0, x * ratio, NAN)


def atan2(y: Num, x: Num) -> Num:
    return wide.angle_for_single(y.double(), x.double()).single()


def atan(x: Num) -> Num:
    d = x.double()
    return wide.angle_for_single(d, d.like(1.0)).single()


def asin(x: Num) -> Num:
    d = x.double()
    return wide.angle_for_single(d, _other_leg(d)).single()


def acos(x: Num) -> Num:
    d = x.double()
    return wide.angle_for_single(_other_leg(d), d).single()


def _other_leg(d: Num) -> Num:
    """sqrt(1 - d^2), NaN beyond 1."""
    return ((1.0 - d) * (1.0 + d)).intrinsic("sqrt")


def hypot(x: Num, y: Num) -> Num:
    a, b = x.double(), y.double()
    length = (a * a + b * b).intrinsic("sqrt")
    infinite = a.magnitude().equals(INF) | b.magnitude().equals(INF)
    return where(infinite, INF, length).single()


def sin(x: Num) -> Num:
    return _for_angles("sin", wide.far_sin, x, wide.sin_cos(x.double())[0].single())


def cos(x: Num) -> Num:
    return _for_angles("cos", wide.far_cos, x, wide.sin_cos(x.double())[1].single())


def tan(x: Num) -> Num:
    sine, cosine = wide.sin_cos(x.double())
    return _for_angles("tan", wide.far_tan, x, (sine / cosine).single())


def _for_angles(function: str, far: Formula, x: Num, near: Num) -> Num:
    return or_library(function, far, near, (x.magnitude() >= wide.LARGE_ANGLE) ^ 1, x)


def pow(x: Num, y: Num) -> Num:
    """C's pow: signs and special values by selection around exp(y*log|x|)."""
    a, p = x.double(), y.double()
    raw = wide.exp_for_single(p * wide.log_for_single(a.magnitude()))
    whole = p.intrinsic("floor").equals(p)
    half = p * 0.5
    odd = whole & (half.intrinsic("floor").equals(half) ^ 1)
    negative = a.bits() < 0
    signed = where(negative & odd, -raw, raw)
    signed = where((a < 0.0) & (whole ^ 1), NAN, signed)
    one = p.equals(0.0) | a.equals(1.0)
    far = p.magnitude().equals(INF)
    signed = where(far & a.magnitude().equals(1.0), 1.0, where(far, raw, signed))
    infinite = a.magnitude().equals(INF) & (whole ^ 1)
    signed = where(infinite, raw, signed)
    signed = where(a.is_nan(), a, where(p.is_nan(), p, signed))
    return where(one, 1.0, signed).single()
