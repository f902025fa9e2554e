# SPDX-License-Identifier: Apache-2.0
"""Reads of elements of one vector in the frame -> the instruction that permutes its lanes."""

from __future__ import annotations

from tcsym.codegen.cpu.memory import load
from tcsym.codegen.scalar.addresses import address
from tcsym.codegen.scalar.casts import from_memory
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.expressions import value
from tcsym.codegen.scalar.values import Code, Val, bits_of, memory_kind
from tcsym.frontend.program import Read
from tcsym.index.expr import Index, var
from tcsym.ir.loops import Buffer

_PERMUTATIONS = {
    ("float", 8): "avx2.permps",
    ("i32", 8): "avx2.permd",
    ("float", 16): "avx512.permvar.sf.512",
    ("i32", 16): "avx512.permvar.si.512",
    ("double", 8): "avx512.permvar.df.512",
    ("i64", 8): "avx512.permvar.di.512",
}


def is_permuted(context: Context, buffer: Buffer, r: Read) -> bool:
    """Lanes have elements of one vector in the frame, which a single instruction permutes."""
    width = context.width
    whole = context.machine.lanes(buffer.dtype.bits) == width
    whole = whole and (memory_kind(buffer.dtype), width) in _PERMUTATIONS
    one = buffer.space == "stack" and [n.as_int() for n in buffer.shape] == [width]
    plain = r.unwritten is None and not any(r.checked)
    return whole and one and plain and not isinstance(r.subscripts[0], Index)


def permuted(context: Context, buffer: Buffer, r: Read) -> Val:
    """The element of each lane, in its register type. Contract: `is_permuted`."""
    (place,) = r.subscripts
    assert not isinstance(place, Index) and context.lane_variable is not None
    at = address(context, buffer, (var(context.lane_variable),))
    vector = load(context, at, buffer, None)
    places = context.code.spread(value(context, place), context.width)
    return from_memory(context.code, _permute(context.code, vector, places), buffer.dtype)


def _permute(code: Code, a: Val, places: Val) -> Val:
    """The lanes of a whole vector at `places`."""
    name = f"llvm.x86.{_PERMUTATIONS[a.kind, a.lanes]}"
    places = code.convert("sext", places, f"i{bits_of(a.kind)}")
    code.function.module.declare(a.type, name, f"{a.type}, {places.type}")
    text = code.function.pure(f"call {a.type} @{name}({a.typed}, {places.typed})")
    return Val(text, a.kind, a.lanes)
