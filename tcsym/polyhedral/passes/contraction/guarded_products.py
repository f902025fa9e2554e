"""A guarded product in a sum, `c ? a*b : 0` -> a product of guarded factors.

`(c ? a : 0) * (c ? b : 0)`: a guarded read can be padded, a guarded product cannot. The second
factor keeps its guard, as 0 times an infinity is no zero, if it may be one; it is loaded without
asking, which is legal where all its subscripts are inside.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.frontend.program import Binary, Const, Expr, Read, Select
from tcsym.index import Index
from tcsym.loop_ir import Kernel, Loop, Node, Update, map_node, walk
from tcsym.polyhedral.passes.common.bounds import eliminate, is_nonnegative
from tcsym.polyhedral.passes.common.casts import is_finite, is_zero, rebuilt, under_casts
from tcsym.polyhedral.passes.common.loops import find_loop, loops_around, replace_loop


def guard_factors(kernel: Kernel, nest: str) -> Kernel:
    """Guarded products that the nest sums, with guards on their factors."""
    outside = loops_around(kernel.body, nest)
    changed: dict[Expr, Expr] = {}
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
    product = under_casts(v.then)
    if not isinstance(product, Binary) or product.op != "mul" or product.exact:
        return None
    if not is_zero(v.orelse):
        return None
    for a, b in ((product.left, product.right), (product.right, product.left)):
        read, other = under_casts(a), under_casts(b)
        if isinstance(read, Read) and isinstance(other, Read) and is_inside(kernel, other, loops):
            first = _guarded(a, read, v)
            second = b if is_finite(b) else _guarded(b, other, v, eager=True)
            return rebuilt(v.then, Binary("mul", first, second, product.dtype))
    return None


def _guarded(factor: Expr, read: Read, v: Select, *, eager: bool = False) -> Expr:
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
