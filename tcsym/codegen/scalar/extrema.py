# SPDX-License-Identifier: Apache-2.0
"""The least or greatest of several values, NaN where one is NaN (LANGUAGE B9).

x86's instruction gives its second operand where either is NaN. So the first value keeps its NaN
through all comparisons with others as first operands; whether one of those is NaN is asked of two
at a time, and NaN put in at the end: one and a half instructions of the comparing kind for each
value, where LLVM's intrinsic has three.
"""

from __future__ import annotations

import math
import struct
from functools import reduce

from tcsym.codegen.scalar.values import Code, Val, bits_of, constant
from tcsym.types import DType


def extremum(code: Code, op: str, values: list[Val], dtype: DType) -> Val:
    """`op` ("min" or "max") of values of `dtype`."""
    if not dtype.is_float:
        name = ("s" if dtype.is_signed else "u") + op
        return reduce(lambda a, b: code.intrinsic(name, a, b), values)
    lanes = max(v.lanes for v in values)
    if lanes == 1:  # nsz: the sign of a zero is free, and x86 then needs no extra compares
        name = "minimum" if op == "min" else "maximum"
        return reduce(lambda a, b: code.intrinsic(name, a, b, flags="nsz "), values)
    ordered = sorted(values, key=_is_number)
    known = sum(map(_is_number, values))
    first, *rest = (code.spread(v, lanes) for v in ordered)
    best = first
    for x in rest:
        better = code.compare("fcmp olt" if op == "min" else "fcmp ogt", x, best)
        best = code.select(better, x, best)
    unordered = _any_nan(code, rest[: len(rest) - known] if known < len(values) else [])
    return best if unordered is None else _with_nan(code, unordered, best)


def _is_number(v: Val) -> bool:
    """A literal that is not NaN."""
    if not v.text.startswith("0x"):
        return False
    (number,) = struct.unpack("<d", struct.pack("<Q", int(v.text, 16)))
    return not math.isnan(number)


def _any_nan(code: Code, values: list[Val]) -> Val | None:
    found: Val | None = None
    for k in range(0, len(values), 2):
        pair = code.compare("fcmp uno", values[k], values[min(k + 1, len(values) - 1)])
        found = pair if found is None else code.binary("or", found, pair)
    return found


def _with_nan(code: Code, where: Val, v: Val) -> Val:
    """`v`, NaN in some lanes: all bits set are one, and an `or` runs on any port."""
    if code.machine.has_masks:
        return code.select(where, constant(math.nan, v.kind), v)
    kind = f"i{bits_of(v.kind)}"
    mask, bits = code.convert("sext", where, kind), code.convert("bitcast", v, kind)
    return code.convert("bitcast", code.binary("or", bits, mask), v.kind)
