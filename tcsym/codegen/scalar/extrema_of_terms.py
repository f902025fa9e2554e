# SPDX-License-Identifier: Apache-2.0
"""Extrema of unrolled terms -> one of all of them, which asks once whether one is NaN (`extrema`).

unrolled k in 0:3: acc[r] max= X[r + k]    ->    acc[r] max= max(X[r], X[r + 1], X[r + 2])
"""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from tcsym.frontend.program import Binary
from tcsym.index.expr import index
from tcsym.ir.loops import Kernel, Loop, Node, Update, value_dtype
from tcsym.ir.traverse import loads, map_inner, substitute_value

MOST_COMPARED = 16  # values that are compared before the first is used again


def extrema_of_terms(kernel: Kernel) -> Kernel:
    registers = {b.name for b in kernel.buffers if b.space == "register" and b.dtype.is_float}
    body = _combined(kernel.body, registers)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _combined(n: Node, registers: set[str]) -> Node:
    nest = _nest(n)
    x = nest[-1].body if nest else None
    if not isinstance(x, Update) or x.op not in ("min", "max") or x.buffer not in registers:
        return map_inner(n, lambda y: _combined(y, registers))
    terms = [y for y in nest if y.order == "reduction"]
    counts = [y.upper.as_int() or 0 for y in terms]
    moved = {v for s in x.subscripts for v in s.variables()}
    own = any(r.tensor == x.buffer for r in loads(x.value))
    if own or not 1 < prod(counts) <= MOST_COMPARED or moved & {y.variable for y in terms}:
        return n
    values = [x.value]
    for y, count in zip(terms, counts, strict=True):
        at = [{y.variable: index(k)} for k in range(count)]
        values = [substitute_value(v, place) for v in values for place in at]
    value, dtype = values[0], value_dtype(x.value)
    for v in values[1:]:
        value = Binary(x.op, value, v, dtype)  # type: ignore[arg-type]
    node: Node = replace(x, value=value)
    for y in reversed([y for y in nest if y not in terms]):
        node = replace(y, body=node)
    return node


def _nest(n: Node) -> list[Loop]:
    """Loops right inside of one another that are unrolled, whose terms all are there, or lanes."""
    found = list[Loop]()
    while isinstance(n, Loop) and n.kind in ("unrolled", "vector"):
        if n.order == "reduction" and (n.kind == "vector" or n.mask is not None):
            return []
        found.append(n)
        n = n.body
    return found
