# SPDX-License-Identifier: Apache-2.0
"""Guards among conversions -> where other passes look for them.

`c ? float(a) : 0` of an element is `float(c ? a : 0)`: its padded copy is as narrow as the tensor.
A term of a sum, `float(c ? a*b : 0)`, is `c ? float(a*b) : 0`: a guarded product.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Binary, Cast, Const, Read, Select
from tcsym.index.expr import Index
from tcsym.ir.loops import Kernel, Node, Update, Value
from tcsym.ir.traverse import map_node, map_value
from tcsym.schedule.analysis.casts import guard_outside, is_zero, rebuilt, under_casts


def canonical_guards(kernel: Kernel) -> Kernel:
    def place(x: Node) -> Node:
        if not isinstance(x, Update):
            return x
        value = map_value(x.value, _around_element, _same)
        return replace(x, value=_around_term(value) if x.op == "add" else value)

    return replace(kernel, body=map_node(kernel.body, place))


def _same(i: Index) -> Index:
    return i


def _around_element(v: Value) -> Value:
    if not isinstance(v, Select) or not isinstance(v.then, Cast) or not is_zero(v.orelse):
        return v
    x = under_casts(v.then)
    if not isinstance(x, Read):
        return v
    return rebuilt(v.then, Select(v.condition, x, Const(0, x.dtype), x.dtype, v.eager))


def _around_term(v: Value) -> Value:
    outside = guard_outside(v) if isinstance(v, Cast) else v
    is_product = isinstance(outside, Select) and isinstance(under_casts(outside.then), Binary)
    return outside if is_product else v
