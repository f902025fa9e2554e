# SPDX-License-Identifier: Apache-2.0
"""Angles of any size -> what is left of them beyond whole quarters of the circle.

As M. H. Payne and R. N. Hanek, Radian Reduction for Trigonometric Functions (1983): of the product
of the angle and 2/pi only bits that weigh less than four count, so a window of 192 bits of 2/pi
serves every exponent. What the window leaves off is below 2^-136 of a quarter, and no double is
nearer to a quarter than 2^-62.
"""

from __future__ import annotations

from itertools import pairwise

from tcsym.codegen.scalar.floats import Num, where
from tcsym.codegen.scalar.values import Val

_QUARTER, _QUARTER_LOW = 1.5707963267948966, 6.123233995736766e-17
_BITS = int(  # of 2/pi behind the point
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1"
    "921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ff"
    "de05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb"
    "5fb11f8d5d0856033046fc7b6bab",
    16,
)
_WORDS = 20  # of 64 bits; the first is zero, for angles below 2^64


def beyond_quarters(x: Num) -> tuple[Num, Num, Num]:
    """r, low and k with x = k pi/2 + r + low, |r| <= pi/4; of k, an integer, the last bits count.

    x: a scalar double. r is NaN where x is not finite.
    """
    bits = x.magnitude().bits()
    whole = (bits & 0xFFFFFFFFFFFFF) | (1 << 52)
    place = bits.shifted_right(52) - 1013
    place = where(place < 0, 0, place)  # for angles below 1/4, which are left as they are
    words = _window(place)
    first, second, third = (_wide(w) for w in words)
    factor = _wide(whole)
    turns = (factor * first << 64) + factor * second + (factor * third).shifted_right(64)
    k = (turns.shifted_right(126) + (turns.shifted_right(125) & 1)).to("i64", "trunc")
    high, rest = _as_floats(turns << 2)
    r = high * _QUARTER
    low = high.times_plus(_QUARTER, -r) + (rest * _QUARTER + high * _QUARTER_LOW)
    small, negative = x.magnitude() < 0.25, x < 0.0
    r = where(x.magnitude() < float("inf"), where(negative, -r, r), float("nan"))
    return (
        where(small, x, r),
        where(small, 0.0, where(negative, -low, low)),
        where(small, 0, where(negative, 0 - k, k)),
    )


def _window(place: Num) -> list[Num]:
    """Three words of the table from that bit on."""
    code, f = place.code, place.code.function
    if "tcsym.quarters" not in f.module.names:
        f.module.names.add("tcsym.quarters")
        words = [_BITS >> 64 * (_WORDS - 1 - i) & ((1 << 64) - 1) for i in range(_WORDS)]
        table = ", ".join(f"i64 {w}" for w in words)
        f.module.functions.append(
            f"@tcsym.quarters = internal constant [{_WORDS} x i64] [{table}]\n"
        )
    index = place.shifted_right(6)
    loaded = []
    for i in range(4):
        at = f"getelementptr i64, ptr @tcsym.quarters, {(index + i).val.typed}"
        loaded.append(Num(code, Val(f.pure(f"load i64, ptr {f.pure(at)}"), "i64")))
    return [a.intrinsic("fshl", b, place & 63) for a, b in pairwise(loaded)]


def _wide(x: Num) -> Num:
    return x.to("i128", "zext")


def _as_floats(fraction: Num) -> tuple[Num, Num]:
    """A signed fraction of 128 bits as a double and what it lacks: by way of three exact ones."""
    mask = (1 << 43) - 1
    parts = [
        (fraction >> 85).to("i64", "trunc"),
        fraction.shifted_right(42).to("i64", "trunc") & mask,
        fraction.to("i64", "trunc") & (mask >> 1),
    ]
    a, b, c = (p.to("double", "sitofp") * 2.0**-n for p, n in zip(parts, (43, 86, 128)))
    high = a + b
    return high, (a - high) + b + c
