# SPDX-License-Identifier: Apache-2.0
"""Short elements side by side in 32 bits, and sums of their products: calls of the loop IR.

`pack(a, b)` or `pack(a, b, c, d)` is an int32 that holds elements of 16 or 8 bits, the first in the
lowest bits. A dot product `dot_*(x, y)` of two such values is the sum of the products of what they
hold, as one instruction computes it and adds it. Programs have no such calls: plans make them
(`mapping.pack`).
"""

from __future__ import annotations

from tcsym.frontend.program import Call, Expr, Read, dtype_of
from tcsym.index.expr import Index
from tcsym.target.machine import DotFunction, Machine
from tcsym.types import DType

PACK = "pack"
BFLOAT: DotFunction = "dot_bfloat16"  # 2 products in float32; subnormal numbers count as zero
SHORT: DotFunction = "dot_int16"  # 2 products of signed numbers in int32, which wraps
SIGNED: DotFunction = "dot_int8"  # 4 products of signed numbers
BYTES: DotFunction = "dot_uint8_int8"  # 4 products, unsigned by signed
DOTS: frozenset[str] = frozenset((BFLOAT, SHORT, SIGNED, BYTES))


def pack(elements: tuple[Expr, ...]) -> Call:
    """Contract: 32 bits of elements of one type."""
    assert sum(dtype_of(x).bits for x in elements) == 32
    return Call(PACK, elements, DType.INT32)


def dot(function: str, x: Expr, y: Expr) -> Call:
    return Call(function, (x, y), DType.FLOAT32 if function == BFLOAT else DType.INT32)


def is_dot(v: object) -> bool:
    return isinstance(v, Call) and v.function in DOTS


def available(machine: Machine) -> frozenset[str]:
    """The dot products that are instructions there (`dot_int16`: at most two)."""
    return frozenset(x.function for x in machine.dots)


def first_of_run(elements: tuple[Expr, ...]) -> Read | None:
    """The first of elements that are read one after another along their last subscript, if they
    are: where that runs along memory they are one load."""
    first, *others = elements
    if not isinstance(first, Read) or not _is_plain(first):
        return None
    return first if all(_is_ahead(x, first, k) for k, x in enumerate(others, 1)) else None


def packed_run(v: object) -> Read | None:
    """`first_of_run` of what a value packs."""
    return first_of_run(v.args) if isinstance(v, Call) and v.function == PACK else None


def elements_of(v: object) -> int:
    """How many a value packs; 1 if it is a plain one."""
    return len(v.args) if isinstance(v, Call) and v.function == PACK else 1


def _is_plain(r: Read) -> bool:
    affine = bool(r.subscripts) and all(isinstance(s, Index) for s in r.subscripts)
    return affine and not any(r.checked) and r.unwritten is None


def _is_ahead(x: Expr, first: Read, steps: int) -> bool:
    if not (isinstance(x, Read) and x.tensor == first.tensor and _is_plain(x)):
        return False
    *outer, last = first.subscripts
    assert isinstance(last, Index)
    return x.subscripts == (*outer, last + steps)
