"""Whether all elements of an argument are finite: one pass over them at launch.

Where they are, 0 times an element is 0: a sum may leave it out, or add it.
"""

from __future__ import annotations

from tcsym.codegen.context import Context
from tcsym.codegen.index_code import as_val, number
from tcsym.index import ONE, choose, index
from tcsym.loop_ir import Buffer
from tcsym.types import DType

KINDS = {DType.FLOAT32: "float", DType.FLOAT64: "double"}
LANES = 8


def all_finite(context: Context, buffer: Buffer) -> str:
    """1 if the elements are finite; 0 if not, or if the buffer is not to be scanned."""
    kind = KINDS[buffer.dtype]
    name = f"tcsym_kernel.finite.{kind}"
    module = context.module
    if name not in module.names:
        module.names.add(name)
        module.functions.append(_text(name, kind, buffer.dtype.bytes))
    total = ONE
    for n in buffer.shape:
        total = total * n
    count = as_val(number(context, choose(buffer.scanned, total, index(-1)))).text
    pointer = context.pointers[buffer.name]
    return context.function.result(f"call i64 @{name}(ptr {pointer}, i64 {count})")


def _text(name: str, kind: str, size: int) -> str:
    """x - x is 0 if x is finite, else NaN, which stays in a sum. n < 0: 0."""
    v = f"<{LANES} x {kind}>"
    zero = "zeroinitializer"
    return f"""define internal i64 @{name}(ptr %p, i64 %n) #1 {{
start:
  %whole = and i64 %n, {-2 * LANES}
  %some = icmp sgt i64 %whole, 0
  %first = select i1 %some, i64 %whole, i64 0
  br i1 %some, label %vectors, label %rest
vectors:
  %i = phi i64 [ 0, %start ], [ %next, %vectors ]
  %a = phi {v} [ {zero}, %start ], [ %a.new, %vectors ]
  %b = phi {v} [ {zero}, %start ], [ %b.new, %vectors ]
  %at.x = getelementptr {kind}, ptr %p, i64 %i
  %at.y = getelementptr {kind}, ptr %at.x, i64 {LANES}
  %x = load {v}, ptr %at.x, align {size}
  %y = load {v}, ptr %at.y, align {size}
  %no.x = fsub {v} %x, %x
  %no.y = fsub {v} %y, %y
  %a.new = fadd {v} %a, %no.x
  %b.new = fadd {v} %b, %no.y
  %next = add i64 %i, {2 * LANES}
  %more = icmp slt i64 %next, %whole
  br i1 %more, label %vectors, label %rest
rest:
  %u = phi {v} [ {zero}, %start ], [ %a.new, %vectors ]
  %w = phi {v} [ {zero}, %start ], [ %b.new, %vectors ]
  %sum = fadd {v} %u, %w
  %is = fcmp ord {v} %sum, %sum
  %bits = bitcast <{LANES} x i1> %is to i{LANES}
  %all = icmp eq i{LANES} %bits, -1
  br label %check
check:
  %j = phi i64 [ %first, %rest ], [ %j.next, %single ]
  %s = phi {kind} [ 0.0, %rest ], [ %s.new, %single ]
  %left = icmp slt i64 %j, %n
  br i1 %left, label %single, label %done
single:
  %at.z = getelementptr {kind}, ptr %p, i64 %j
  %z = load {kind}, ptr %at.z, align {size}
  %no.z = fsub {kind} %z, %z
  %s.new = fadd {kind} %s, %no.z
  %j.next = add i64 %j, 1
  br label %check
done:
  %last = fcmp ord {kind} %s, %s
  %known = icmp sge i64 %n, 0
  %both = and i1 %all, %last
  %found = and i1 %both, %known
  %one = zext i1 %found to i64
  ret i64 %one
}}
"""
