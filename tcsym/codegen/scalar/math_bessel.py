# SPDX-License-Identifier: Apache-2.0
"""Bessel functions J and Y of orders 0 and 1, of float64, as straight vector code.

Below 6 polynomials in x^2: of J without its zeros, which are factors, and of Y without its
logarithm and its pole (Abramowitz and Stegun 9.1.13). Above, Hankel's expansion (9.2.5, 9.2.6) with
polynomials for its series. Coefficients: tools/fit_special.py.
"""

from __future__ import annotations

import math

from tcsym.codegen.scalar.floats import Num, in_pairs, where
from tcsym.codegen.scalar.math_f64 import cos, log, sin

INF, NAN = math.inf, math.nan
_TWO_OVER_PI = 2 / math.pi
_ZEROS = (  # each as a sum of two numbers
    ((2.404825557695773, -1.176691651530894e-16), (5.520078110286311, 8.088597146146722e-17)),
    ((3.8317059702075125, -1.5269184090088067e-16),),
)
_J0 = (
    0.002430675493924603,
    -0.002204696491432354,
    0.0008320347890581551,
    -0.00017922875807499376,
    2.5314152757899952e-05,
    -2.5407373066792985e-06,
    1.9115376799876682e-07,
    -1.1201566488818575e-08,
    5.263104137050265e-10,
    -2.0284563217591683e-11,
    6.53195432038929e-13,
    -1.7843658244896258e-14,
    4.1933607285391455e-16,
    -8.478995027428996e-18,
)
_J1 = (
    -0.010875695570951574,
    0.014068784747965768,
    -0.006920680877558077,
    0.0018410211581445695,
    -0.00030977754159849827,
    3.610484244578274e-05,
    -3.094554542909321e-06,
    2.0354595502586895e-07,
    -1.060860036583015e-08,
    4.4918477534684465e-10,
    -1.5763940907698204e-11,
    4.661598841361623e-13,
    -1.1791810851347201e-14,
    2.541368694945476e-16,
)
_Y0 = (
    0.23144649403798057,
    -0.9446076120040159,
    -0.15182922873915472,
    0.6673124865861597,
    -0.33360014135756944,
    0.08279745527591624,
    -0.012825198728186094,
    0.0013775449763471482,
    -0.0001093135837517006,
    6.6921904885044745e-06,
    -3.262866254379984e-07,
    1.2984096599745366e-08,
    -4.3003069738978896e-10,
    1.2067674996269479e-11,
    -2.8962684280201057e-13,
)
_Y1 = (
    0.15342210591925187,
    -0.026212367438516446,
    -0.186212417521995,
    0.13647459877549867,
    -0.04363349674993547,
    0.008229262792587361,
    -0.001040014515279053,
    9.484358330863668e-05,
    -6.557583028340759e-06,
    3.5626970696573767e-07,
    -1.5629343694136486e-08,
    5.656792801686589e-10,
    -1.7189367094097986e-11,
    4.4558818433712527e-13,
    -9.847145260053642e-15,
)
_P0 = (
    1.0,
    -0.0019531249999969102,
    8.653711360656863e-05,
    -1.2270681491848921e-05,
    3.6161122019213657e-06,
    -1.816833833399267e-06,
    1.3736362265404218e-06,
    -1.3833563044174194e-06,
    1.5963130515877467e-06,
    -1.8134933746327978e-06,
    1.8026803325850293e-06,
    -1.4418948663423194e-06,
    8.664511808875615e-07,
    -3.6217586619541984e-07,
    9.319052617405e-08,
    -1.1065877692518385e-08,
)
_P1 = (
    1.0,
    0.0032552083333300687,
    -0.00011126200327486735,
    1.4501715852941398e-05,
    -4.098277243542476e-06,
    2.00821208591989e-06,
    -1.4937954955313726e-06,
    1.4885213198616512e-06,
    -1.706624235483357e-06,
    1.9315915332676408e-06,
    -1.915922022298844e-06,
    1.5304640956090886e-06,
    -9.188998252502096e-07,
    3.8387992880635866e-07,
    -9.873486979305788e-08,
    1.172068199113092e-08,
)
_Q0 = (
    -0.020833333333333325,
    0.0003390842013843111,
    -2.9206275508587008e-05,
    6.171849849466581e-06,
    -2.418931061025884e-06,
    1.5156513365334849e-06,
    -1.3639969350618493e-06,
    1.5632401830102932e-06,
    -1.9660996150252404e-06,
    2.3555136669124594e-06,
    -2.4186274127966086e-06,
    1.9744836972361015e-06,
    -1.2026254672715866e-06,
    5.074386197082262e-07,
    -1.314617176874581e-07,
    1.5690993569685544e-08,
)
_Q1 = (
    0.06249999999999999,
    -0.000474717881939616,
    3.5696559027297786e-05,
    -7.121366828645026e-06,
    2.703531949461422e-06,
    -1.6601678203494989e-06,
    1.4740397673078289e-06,
    -1.674584207709743e-06,
    2.0949569482262124e-06,
    -2.502149533350851e-06,
    2.564532430365068e-06,
    -2.0912572260428847e-06,
    1.272822888172459e-06,
    -5.36788684522229e-07,
    1.3901509419205416e-07,
    -1.658803839439672e-08,
)
_J, _Y, _P, _Q = (_J0, _J1), (_Y0, _Y1), (_P0, _P1), (_Q0, _Q1)


def j0(x: Num) -> Num:
    """Within 6 ulp of the result or of the size of the oscillation, as all four are."""
    return _j(x.magnitude(), 0)


def j1(x: Num) -> Num:
    value = _j(x.magnitude(), 1)
    return where(x.bits() < 0, -value, value)


def y0(x: Num) -> Num:
    return _y(x, 0)


def y1(x: Num) -> Num:
    return _y(x, 1)


def _j(a: Num, order: int) -> Num:
    p, q, cosine, sine = _hankel(a, order)
    value = where(a < 6.0, _near_j(a, order), p * cosine - q * sine)
    return where(a.equals(INF), 0.0, value)


def _y(x: Num, order: int) -> Num:
    p, q, cosine, sine = _hankel(x, order)
    rest = in_pairs(_middle(x), _Y[order])
    near = (log(x) * _TWO_OVER_PI).times_plus(_near_j(x, order), rest * x if order else rest)
    near = near - _TWO_OVER_PI / x if order else near
    value = where(x < 6.0, near, p * sine + q * cosine)
    value = where(x.equals(0.0), -INF, where(x.equals(INF), 0.0, value))
    return where(x < 0.0, NAN, value)


def _middle(x: Num) -> Num:
    """From -1 to 1 where x is from 0 to 6."""
    return (x * x).times_plus(1 / 18, -1.0)


def _near_j(x: Num, order: int) -> Num:
    value = in_pairs(_middle(x), _J[order])
    for zero, low in _ZEROS[order]:
        value = value * ((x - zero) - low) * (x + zero)
    return value * x if order else value


def _hankel(x: Num, order: int) -> tuple[Num, Num, Num, Num]:
    """P, Q, and the cosine and the sine of the phase, these times the size of the oscillation."""
    inverse = 6.0 / x
    square = inverse * inverse
    p, q = in_pairs(square, _P[order]), in_pairs(square, _Q[order]) * inverse
    s, c = sin(x), cos(x)
    size = math.sqrt(1 / math.pi) / x.intrinsic("sqrt")
    cosine, sine = (c + s, s - c) if order == 0 else (s - c, -(s + c))
    return p, q, cosine * size, sine * size
