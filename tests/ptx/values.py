# SPDX-License-Identifier: Apache-2.0
"""Instructions that make a value of values: names -> types of operands, type of the result, how.

Reference: PTX ISA, 9.7.1 (integers), 9.7.6 (comparison), 9.7.8 (logic and shift), 9.7.9 (moves and
conversions). What the ISA leaves open is -1: of a division by zero, every bit.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Values = np.ndarray[Any, Any]
How = Callable[..., Values]


class Pure(NamedTuple):
    """operands, result: numpy's types, of as many bits as the instruction reads of registers."""

    operands: tuple[str, ...]
    result: str
    how: How


# Of PTX's types. A number of 16 bits whose type numpy lacks is its bits.
KINDS = {
    **{
        f"{c}{8 * n}": f"{'u' if c == 'b' else {'s': 'i'}.get(c, c)}{n}"
        for c in "bus"
        for n in (1, 2, 4, 8)
    },
    "f16": "f2",
    "f32": "f4",
    "f64": "f8",
    "bf16": "u2",
    "tf32": "u4",
    "pred": "?",
    "bf16x2": "u4",
    "f16x2": "u4",
}


def pure(name: str) -> Pure | None:
    """What the instruction of that name does, if that is known."""
    from tests.ptx.floats import FLOATS

    for pattern, make in (*FLOATS.items(), *INTEGERS.items()):
        m = re.fullmatch(pattern, name)
        if m is not None:
            return make(*m.groups())
    return None


def _same(count: int, how: How) -> Callable[[str], Pure]:
    """All operands and the result are of one type."""
    return lambda kind: Pure((KINDS[kind],) * count, KINDS[kind], how)


def quotient(a: Values, b: Values) -> Values:
    """Rounded toward zero."""
    safe = np.where(b == 0, 1, b).astype(a.dtype)
    if a.dtype.kind == "i":
        least = a == np.iinfo(a.dtype).min
        safe = np.where(least & (safe == -1), 1, safe).astype(a.dtype)  # its own, wrapped
    q = a // safe
    q += (a % safe != 0) & ((a < 0) != (safe < 0))
    return np.where(b == 0, np.array(-1).astype(a.dtype), q)


def _remainder(a: Values, b: Values) -> Values:
    return np.where(b == 0, np.array(-1).astype(a.dtype), a - quotient(a, b) * b)


def _wide(kind: str) -> Pure:
    k = KINDS[kind]
    result = f"{k[0]}{2 * int(k[1])}"
    return Pure((k, k), result, lambda a, b: a.astype(result) * b.astype(result))


def _high(kind: str) -> Pure:
    k = KINDS[kind]
    wide = np.uint64 if kind[0] == "u" else np.int64
    if k[1] == "8":
        return Pure((k, k), k, _high_64)
    bits = 8 * int(k[1])
    return Pure((k, k), k, lambda a, b: (a.astype(wide) * b.astype(wide) >> bits).astype(k))


def _high_64(a: Values, b: Values) -> Values:
    products = [(int(x) * int(y)) >> 64 for x, y in zip(a.tolist(), b.tolist())]
    return np.array(products, a.dtype)


def _shift(direction: str, kind: str) -> Pure:
    """By more than there are bits it is by all; the sign fills what is free on the left."""
    k = KINDS[kind]
    bits = 8 * int(k[1])

    def how(a: Values, by: Values) -> Values:
        within = np.minimum(by, bits - 1).astype(k)
        if direction == "r" and k[0] == "i":
            return a >> within
        shifted = a << within if direction == "l" else a >> within
        return np.where(by < bits, shifted, 0).astype(k)

    return Pure((k, "u4"), k, how)


_RELATIONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def compared(relation: str, kind: str) -> Pure:
    """With `u` behind it a relation holds of what is no number, without it, it does not."""
    k = KINDS[kind]
    if relation in ("nan", "num"):
        return Pure((k, k), "?", lambda a, b: (np.isnan(a) | np.isnan(b)) == (relation == "nan"))
    how = _RELATIONS[relation[:2]]
    unordered = len(relation) == 3

    def compare(a: Values, b: Values) -> Values:
        found = how(a, b)
        if k[0] != "f":
            return found
        either = np.isnan(a) | np.isnan(b)
        return found | either if unordered else found & ~either

    return Pure((k, k), "?", compare)


def _permuted(a: Values, b: Values, how: Values) -> Values:
    """Byte k of the result: the one of b and a that digit k of `how` says, or its sign."""
    whole = a.astype("u8") | b.astype("u8") << np.uint64(32)
    result = np.zeros(a.shape, "u4")
    for k in range(4):
        digit = (how >> np.uint32(4 * k)) & np.uint32(15)
        byte = (whole >> (8 * (digit & np.uint32(7))).astype("u8")).astype("u4") & np.uint32(255)
        sign = np.where(byte >> np.uint32(7), np.uint32(255), np.uint32(0))
        result |= np.where(digit >> np.uint32(3), sign, byte).astype("u4") << np.uint32(8 * k)
    return result


def _leading_zeros(a: Values) -> Values:
    count = np.zeros(a.shape, "u4")
    for k in range(8 * a.itemsize):
        count = np.where(a >> np.array(k, a.dtype) != 0, 8 * a.itemsize - 1 - k, count)
    return np.where(a == 0, 8 * a.itemsize, count).astype("u4")


def _set_bits(a: Values) -> Values:
    return np.unpackbits(a.view("u1").reshape(a.size, a.itemsize), axis=1).sum(1).astype("u4")


def _funnel(direction: str) -> Pure:
    """The upper or the lower half of b and a, shifted by c modulo 32."""

    def how(a: Values, b: Values, c: Values) -> Values:
        whole = a.astype("u8") | b.astype("u8") << np.uint64(32)
        by = (c & np.uint32(31)).astype("u8")
        shifted = whole << by >> np.uint64(32) if direction == "l" else whole >> by
        return shifted.astype("u4")

    return Pure(("u4", "u4", "u4"), "u4", how)


def _field(kind: str) -> Pure:
    """`len` bits of a from bit `pos` on; the highest of them that there is fills the rest, of
    signed numbers."""
    k = KINDS[kind]
    bits = 8 * int(k[1])

    def one(a: int, pos: int, n: int) -> int:
        pos, n = pos & 255, n & 255
        if not n:
            return 0
        found = a % (1 << bits) >> pos & ((1 << n) - 1)
        if k[0] == "i":
            sign = a % (1 << bits) >> min(pos + n - 1, bits - 1) & 1
            found |= -sign << min(n, bits - pos if pos < bits else 0)
        return found % (1 << bits)

    def how(a: Values, pos: Values, n: Values) -> Values:
        found = [one(*x) for x in zip(a.tolist(), pos.tolist(), n.tolist())]
        return np.array(found, f"u{k[1]}").view(k)

    return Pure((k, "u4", "u4"), k, how)


def converted(to: str, source: str) -> Pure:
    """Of integers: what more bits need is zeros, or the sign; what is more is dropped."""
    k = KINDS[to]
    return Pure((KINDS[source],), k, lambda a: a.astype(k))


def _chosen(kind: str) -> Pure:
    k = KINDS[kind]
    return Pure((k, k, "?"), k, lambda a, b, p: np.where(p, a, b))


_INT = r"([su](?:16|32|64))"
_BITS = r"([bus](?:16|32|64))"
INTEGERS: dict[str, Callable[..., Pure]] = {
    rf"add\.{_INT}": _same(2, operator.add),
    rf"sub\.{_INT}": _same(2, operator.sub),
    rf"mul\.lo\.{_INT}": _same(2, operator.mul),
    rf"mad\.lo\.{_INT}": _same(3, lambda a, b, c: a * b + c),
    rf"mul\.hi\.{_INT}": _high,
    r"mul\.wide\.([su](?:16|32))": _wide,
    rf"div\.{_INT}": _same(2, quotient),
    rf"rem\.{_INT}": _same(2, _remainder),
    rf"abs\.{_INT}": _same(1, np.abs),
    rf"neg\.{_INT}": _same(1, lambda a: -a),
    rf"min\.{_INT}": _same(2, np.minimum),
    rf"max\.{_INT}": _same(2, np.maximum),
    r"and\.(b16|b32|b64|pred)": _same(2, operator.and_),
    r"or\.(b16|b32|b64|pred)": _same(2, operator.or_),
    r"xor\.(b16|b32|b64|pred)": _same(2, operator.xor),
    r"not\.(b16|b32|b64|pred)": _same(1, operator.invert),
    r"sh(l)\.(b16|b32|b64)": _shift,
    rf"sh(r)\.{_BITS}": _shift,
    r"(min|max)\.relu\.s32": lambda which: Pure(
        ("i4", "i4"), "i4", lambda a, b: np.maximum(getattr(np, f"{which}imum")(a, b), 0)
    ),
    r"shf\.([lr])\.wrap\.b32": _funnel,
    r"prmt\.b32": lambda: Pure(("u4",) * 3, "u4", _permuted),
    r"bfe\.([su](?:32|64))": _field,
    r"clz\.(b32|b64)": lambda kind: Pure((KINDS[kind],), "u4", _leading_zeros),
    r"popc\.(b32|b64)": lambda kind: Pure((KINDS[kind],), "u4", _set_bits),
    rf"setp\.(eq|ne|lt|le|gt|ge)\.{_BITS}": compared,
    r"selp\.([busf](?:16|32|64))": _chosen,
    r"mov\.([busf](?:16|32|64)|pred)": _same(1, lambda a: a.copy()),
    r"cvt\.([su](?:8|16|32|64))\.([su](?:8|16|32|64))": converted,
}
