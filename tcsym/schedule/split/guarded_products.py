# SPDX-License-Identifier: Apache-2.0
"""A guarded product in a sum, `c ? a*b : 0` -> a product of guarded factors.

`(c ? a : 0) * (c ? b : 0)`: a guarded read can be padded, a guarded product cannot. The second
factor keeps its guard, as 0 times an infinity is no zero, if it may be one; it is loaded without
asking, which is legal where all its subscripts are inside.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import (
    Binary,
    Const,
    Expr,
    Read,
    Select,
    with_children,
)
from tcsym.index.expr import Index
from tcsym.ir.bounds import eliminate, is_nonnegative
from tcsym.ir.loops import Kernel, Loop, Node, Update, Value
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.analysis.casts import is_finite, is_zero, rebuilt, under_casts
from tcsym.schedule.analysis.loops import find_loop, loops_around, replace_loop
from tcsym.trees import fold, leaves


def guard_factors(kernel: Kernel, nest: str) -> Kernel:
    """Guarded products that the nest sums, with guards on their factors."""
    outside = loops_around(kernel.body, nest)
    changed: dict[Value, Expr] = {}
    for x, around in walk(find_loop(kernel.body, nest)):
        if isinstance(x, Update) and x.op == "add" and isinstance(x.value, Select):
            apart = _apart(kernel, x.value, (*outside, *around))
            if apart is not None:
                changed[x.value] = apart

    def term(x: Node) -> Node:
        if isinstance(x, Update) and x.op == "add" and x.value in changed:
            return replace(x, value=changed[x.value])
        return x

    body = replace_loop(kernel.body, nest, lambda loop: map_node(loop, term))
    return replace(kernel, body=body) if changed else kernel


def _apart(kernel: Kernel, v: Select, loops: tuple[Loop, ...]) -> Expr | None:
    if not is_zero(v.orelse):
        return None
    factors = _factors(v.then)
    reads = {f: r for f in factors if isinstance(r := under_casts(f), Read)}
    if len(factors) < 2 or any(f not in reads and not _is_plain(f) for f in factors):
        return None
    outside = [f for f, r in reads.items() if not is_inside(kernel, r, loops)]
    if not reads or len(outside) > 1:
        return None
    first = outside[0] if outside else next(iter(reads))
    guarded = {f: _guarded(f, r, v, eager=f != first) for f, r in reads.items()}
    guarded |= {f: f for f in factors if f not in reads or (f != first and is_finite(f))}
    return _with_factors(v.then, guarded)


def _factors(e: Expr) -> tuple[Expr, ...]:
    """What is multiplied, in the order in which it stands."""
    return tuple(leaves(e, _sides))


def _sides(e: Expr) -> tuple[Expr, ...]:
    x = under_casts(e)
    is_product = isinstance(x, Binary) and x.op == "mul" and not x.exact
    return (x.left, x.right) if is_product else ()  # type: ignore[union-attr]


def _with_factors(e: Expr, new: dict[Expr, Expr]) -> Expr:
    def value(x: Expr, parts: list[Expr]) -> Expr:
        return rebuilt(x, with_children(under_casts(x), parts)) if parts else new[x]

    return fold(e, _sides, value)


def _is_plain(e: Expr) -> bool:
    """A number that keeps a zero as it is."""
    return isinstance(e, Const) and 0 < e.value < float("inf")


def _guarded(factor: Expr, read: Read, v: Select, *, eager: bool) -> Expr:
    zero = Const(0, read.dtype)
    return rebuilt(factor, Select(v.condition, read, zero, read.dtype, eager))


def is_inside(kernel: Kernel, r: Read, loops: tuple[Loop, ...]) -> bool:
    """Every point of the loops, guarded or not, reads an element."""
    if any(r.checked) or r.unwritten is not None:
        return False
    sizes = frozenset(kernel.sizes)
    for s, n in zip(r.subscripts, kernel.buffer(r.tensor).shape):
        if not isinstance(s, Index):
            return False
        low, high = eliminate(s, loops, False), eliminate(s, loops, True)
        if low is None or high is None:
            return False
        if not (is_nonnegative(low, sizes) and is_nonnegative(n - 1 - high, sizes)):
            return False
    return True
