# SPDX-License-Identifier: Apache-2.0
"""Instructions on numbers with fractions, rounded to nearest, ties to even.

Reference: PTX ISA, 9.7.3 (floating point), 9.7.9.21 (cvt). No instruction flushes subnormal
numbers: with `.ftz` they are refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from tests.ptx.values import KINDS, How, Pure, Values, compared


def _same(count: int, how: How) -> Callable[[str], Pure]:
    return lambda kind: Pure((KINDS[kind],) * count, KINDS[kind], how)


def _sum_of_product(kind: str) -> Pure:
    k = KINDS[kind]
    return Pure((k, k, k), k, {"f2": _fma_16, "f4": _fma_32, "f8": _fma_64}[k])


def _fma_16(a: Values, b: Values, c: Values) -> Values:
    """Exact in 64 bits: a product has 22 bits from 2**-48 on."""
    return (a.astype("f8") * b.astype("f8") + c.astype("f8")).astype("f2")


def _fma_32(a: Values, b: Values, c: Values) -> Values:
    """The product is exact in 64 bits. The sum is rounded to odd, so that rounding it again to 32
    bits is as rounding once (Boldo and Melquiond, 2008)."""
    product, addend = a.astype("f8") * b.astype("f8"), c.astype("f8")
    total = product + addend
    error = _error_of_sum(product, addend, total)
    if error.any():
        bits = total.view("i8")
        inexact = (error != 0) & np.isfinite(error) & ((bits & 1) == 0)
        step = np.where((error > 0) == (total > 0), 1, -1)
        total = np.where(inexact, bits + step, bits).view("f8")
    return total.astype("f4")


def _to_odd(a: Values) -> Values:
    """float64 -> float32, that of an odd last bit if none is exact."""
    near = a.astype("f4")
    bits, error = near.view("i4"), a - near
    inexact = (error != 0) & np.isfinite(error) & ((bits & 1) == 0)
    step = np.where((error > 0) == (a > 0), 1, -1).astype("i4")
    return np.where(inexact, bits + step, bits).view("f4")


def _error_of_sum(a: Values, b: Values, total: Values) -> Values:
    """Two-sum: a + b - total, exactly."""
    rest = total - a
    return (a - (total - rest)) + (b - rest)


def _fma_64(a: Values, b: Values, c: Values) -> Values:
    """The product as a sum of two numbers (Dekker), then three are summed. A last bit may be
    wrong where they nearly cancel; a product's own error, with c = -product, is exact."""
    product = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    low = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    total = product + c
    exact = total + (_error_of_sum(product, c, total) + low)
    return np.where(np.isfinite(exact), exact, total)


def _halves(a: Values) -> tuple[Values, Values]:
    upper = a * 134217729.0
    upper = upper - (upper - a)
    return upper, a - upper


def _extreme(which: str, is_strict: str | None, kind: str) -> Pure:
    """Of a number and none: the number, but with `.NaN` none. -0 is less than 0."""
    k = KINDS[kind]
    pick = np.maximum if which == "max" else np.minimum
    lenient = np.fmax if which == "max" else np.fmin
    join = operator.and_ if which == "max" else operator.or_

    def how(a: Values, b: Values) -> Values:
        found = pick(a, b) if is_strict else lenient(a, b)
        bits = f"u{k[1]}"
        return np.where((a == 0) & (b == 0), join(a.view(bits), b.view(bits)).view(k), found)

    return Pure((k, k), k, how)


def _with_sign(kind: str) -> Pure:
    """The sign of the first, the rest of the second."""
    k = KINDS[kind]
    return Pure((k, k), k, lambda a, b: np.copysign(b, a))


def bits_of_bfloat(a: Values) -> Values:
    """float32 -> bfloat16's bits, to nearest."""
    bits = a.view("u4").astype("u8")
    rounded = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(a), 0x7FFF, rounded).astype("u2")


def bfloat_of_bits(bits: Values) -> Values:
    """bfloat16's bits -> float32."""
    return (bits.astype("u4") << np.uint32(16)).view("f4")


def _tf32(a: Values) -> Values:
    """float32 -> the nearest number of 10 bits of fraction, ties away from zero, as 32 bits."""
    bits = a.view("u4")
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(a), np.uint32(0x7FFFFFFF), rounded)


def _pair(to: str) -> Pure:
    """The first becomes the upper half."""
    short = bits_of_bfloat if to == "bf16" else lambda a: a.astype("f2").view("u2")

    def how(a: Values, b: Values) -> Values:
        return short(a).astype("u4") << np.uint32(16) | short(b)

    return Pure(("f4", "f4"), "u4", how)


def _to_integer(rounding: str, to: str, source: str) -> Pure:
    """What is too large or small is the nearest there is; what is no number is 0 (the highest bit
    where both have 64 bits)."""
    k, s = KINDS[to], KINDS[source]
    limits = np.iinfo(k)
    none = np.array(1 << 63, "u8").view(k) if (s, k[1]) == ("f8", "8") else np.zeros((), k)

    def how(a: Values) -> Values:
        whole = _ROUNDINGS[rounding](a.astype("f8"))
        too_small, too_large = whole < float(limits.min), whole >= float(limits.max) + 1.0
        if k[1] != "8":
            too_large = whole > float(limits.max)
        inside = np.where(too_small | too_large | np.isnan(whole), 0, whole).astype(k)
        found = np.where(too_small, limits.min, np.where(too_large, limits.max, inside))
        return np.where(np.isnan(whole), none, found.astype(k))

    return Pure((s,), k, how)


_ROUNDINGS: dict[str, How] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _rounded(rounding: str, kind: str) -> Pure:
    k = KINDS[kind]
    return Pure((k,), k, lambda a: _ROUNDINGS[rounding](a))


def _of_bfloats(name: str) -> Pure:
    """What the instruction does to float32, to nearest: all are exact enough there to round again
    (Figueroa, 1995)."""
    from tests.ptx.values import pure

    found = pure(f"{name}.f32")
    assert found is not None
    count, how, is_test = len(found.operands), found.how, found.result == "?"

    def of_bits(*bits: Values) -> Values:
        made = how(*map(bfloat_of_bits, bits))
        return made if is_test else bits_of_bfloat(made)

    return Pure(("u2",) * count, "?" if is_test else "u2", of_bits)


def _converted(to: str, source: str) -> Pure:
    k = KINDS[to]
    return Pure((KINDS[source],), k, lambda a: a.astype(k))


def _to_tf32() -> Pure:
    return Pure(("f4",), "u4", _tf32)


_FLOAT = r"(f16|f32|f64)"
_INT = r"([su](?:8|16|32|64))"
FLOATS: dict[str, Callable[..., Pure]] = {
    rf"add(?:\.rn)?\.{_FLOAT}": _same(2, operator.add),
    rf"sub(?:\.rn)?\.{_FLOAT}": _same(2, operator.sub),
    rf"mul(?:\.rn)?\.{_FLOAT}": _same(2, operator.mul),
    rf"fma\.rn\.{_FLOAT}": _sum_of_product,
    r"div\.rn\.(f32|f64)": _same(2, operator.truediv),
    r"rcp\.rn\.(f32|f64)": _same(1, np.reciprocal),
    r"sqrt\.rn\.(f32|f64)": _same(1, np.sqrt),
    rf"neg\.{_FLOAT}": _same(1, operator.neg),
    rf"abs\.{_FLOAT}": _same(1, np.abs),
    rf"(min|max)(\.NaN)?\.{_FLOAT}": _extreme,
    r"copysign\.(f32|f64)": _with_sign,
    rf"setp\.((?:eq|ne|lt|le|gt|ge)u?|nan|num)\.{_FLOAT}": compared,
    r"((?:add|sub|mul)(?:\.rn)?|(?:min|max)(?:\.NaN)?|neg|abs|setp\.\w+)\.bf16": _of_bfloats,
    r"cvt\.f32\.bf16": lambda: Pure(("u2",), "f4", bfloat_of_bits),
    r"cvt\.f64\.bf16": lambda: Pure(("u2",), "f8", lambda a: bfloat_of_bits(a).astype("f8")),
    r"cvt\.rn\.bf16\.f64": lambda: Pure(("f8",), "u2", lambda a: bits_of_bfloat(_to_odd(a))),
    r"cvt\.rn\.bf16\.f32": lambda: Pure(("f4",), "u2", bits_of_bfloat),
    r"cvt\.rn\.(bf16|f16)x2\.f32": _pair,
    r"cvt\.rna\.tf32\.f32": _to_tf32,
    rf"cvt\.(?:rn\.)?{_FLOAT}\.{_FLOAT}": _converted,
    rf"cvt\.rn\.{_FLOAT}\.{_INT}": _converted,
    rf"cvt\.(rni|rzi|rmi|rpi)\.{_INT}\.{_FLOAT}": _to_integer,
    rf"cvt\.(rni|rzi|rmi|rpi)\.{_FLOAT}\.(?:{_FLOAT[1:-1]})": _rounded,
}
