# SPDX-License-Identifier: Apache-2.0
"""Whether all elements of an argument are finite: one pass over them at launch.

Where they are, 0 times an element is 0: a sum may leave it out, or add it.
"""

from __future__ import annotations

from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.index_code import as_val, number
from tcsym.index.expr import ONE, choose, index
from tcsym.ir.loops import Buffer
from tcsym.types import DType

EXPONENTS = {  # all bits of an exponent: those of infinities and NaN have them all
    DType.FLOAT16: 0x7C00,
    DType.BFLOAT16: 0x7F80,
    DType.FLOAT32: 0x7F80_0000,
    DType.FLOAT64: 0x7FF0_0000_0000_0000,
}
LANES = {2: 16, 4: 8, 8: 8}  # by bytes of an element


def all_finite(context: Context, buffer: Buffer) -> str:
    """1 if the elements are finite; 0 if not, or if the buffer is not to be scanned."""
    name = f"tcsym_kernel.finite.{buffer.dtype}"
    module = context.module
    if name not in module.names:
        module.names.add(name)
        module.functions.append(_text(name, buffer.dtype))
    total = ONE
    for n in buffer.shape:
        total = total * n
    count = as_val(number(context, choose(buffer.scanned, total, index(-1)))).text
    pointer = context.pointers[buffer.name]
    return context.function.result(f"call i64 @{name}(ptr {pointer}, i64 {count})")


def _text(name: str, dtype: DType) -> str:
    """An exponent of ones alone carries into the sign's bit when one is added. n < 0: 0."""
    kind, lanes, size = f"i{8 * dtype.bytes}", LANES[dtype.bytes], dtype.bytes
    ones = EXPONENTS[dtype]
    v, zero = f"<{lanes} x {kind}>", "zeroinitializer"
    mask, one = (f"splat ({kind} {k})" for k in (ones, ones & -ones))
    return f"""define internal i64 @{name}(ptr %p, i64 %n) #1 {{
start:
  %whole = and i64 %n, {-2 * lanes}
  %some = icmp sgt i64 %whole, 0
  %first = select i1 %some, i64 %whole, i64 0
  br i1 %some, label %vectors, label %rest
vectors:
  %i = phi i64 [ 0, %start ], [ %next, %vectors ]
  %a = phi {v} [ {zero}, %start ], [ %a.new, %vectors ]
  %b = phi {v} [ {zero}, %start ], [ %b.new, %vectors ]
  %at.x = getelementptr {kind}, ptr %p, i64 %i
  %at.y = getelementptr {kind}, ptr %at.x, i64 {lanes}
  %x = load {v}, ptr %at.x, align {size}
  %y = load {v}, ptr %at.y, align {size}
  %exponent.x = and {v} %x, {mask}
  %exponent.y = and {v} %y, {mask}
  %carry.x = add {v} %exponent.x, {one}
  %carry.y = add {v} %exponent.y, {one}
  %a.new = or {v} %a, %carry.x
  %b.new = or {v} %b, %carry.y
  %next = add i64 %i, {2 * lanes}
  %more = icmp slt i64 %next, %whole
  br i1 %more, label %vectors, label %rest
rest:
  %u = phi {v} [ {zero}, %start ], [ %a.new, %vectors ]
  %w = phi {v} [ {zero}, %start ], [ %b.new, %vectors ]
  %both = or {v} %u, %w
  %carried = icmp slt {v} %both, {zero}
  %bits = bitcast <{lanes} x i1> %carried to i{lanes}
  %none = icmp eq i{lanes} %bits, 0
  br label %check
check:
  %j = phi i64 [ %first, %rest ], [ %j.next, %single ]
  %c = phi {kind} [ 0, %rest ], [ %c.new, %single ]
  %left = icmp slt i64 %j, %n
  br i1 %left, label %single, label %done
single:
  %at.z = getelementptr {kind}, ptr %p, i64 %j
  %z = load {kind}, ptr %at.z, align {size}
  %exponent.z = and {kind} %z, {ones}
  %carry.z = add {kind} %exponent.z, {ones & -ones}
  %c.new = or {kind} %c, %carry.z
  %j.next = add i64 %j, 1
  br label %check
done:
  %last = icmp sge {kind} %c, 0
  %known = icmp sge i64 %n, 0
  %finite = and i1 %none, %last
  %found = and i1 %finite, %known
  %one = zext i1 %found to i64
  ret i64 %one
}}
"""
