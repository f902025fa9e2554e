# SPDX-License-Identifier: Apache-2.0
"""Perfectly nested loops that walk every buffer like one loop -> that loop, over merged dimensions.

Rows of an image that lie one behind the other are one long row: short rows then fill vectors, and
the remainder is paid once. Two dimensions of a buffer merge into one by rewriting subscripts
(a, b) -> a * extent + b wherever the buffer is used; the memory stays as it is. Where another use
needs both, as a check of a position does, an argument's rows run on from one to the next here only.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Expr, IndexValue, Read
from tcsym.index.expr import ONE, ZERO, Index, condition_variables, var
from tcsym.index.linear import linear_coefficient
from tcsym.ir.bounds import extent, is_nonnegative
from tcsym.ir.loops import Branch, Buffer, Holds, Kernel, Loop, Node, Store, Update, Value, Verify
from tcsym.ir.traverse import map_node, substitute_node, subvalues, walk
from tcsym.schedule.analysis.access import Access, accesses, subscript_variables
from tcsym.schedule.analysis.loops import find_loop, loops_in, replace_loop
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.schedule.analysis.touched import rewrite_uses, uses_in


class _Pair(Struct, frozen=True):
    """`outer` holds just `inner`. `dimensions`: by buffer, that of `outer`; of `inner` the next, if
    they merge: else only here rows run on from one to the next."""

    outer: Loop
    inner: Loop
    dimensions: dict[str, int]


def merge_loops(kernel: Kernel, names: Names) -> Kernel:
    """Every pair of nested loops of one order that can be one loop is one.

    Contract: full-size buffers, as before any schedule. A buffer in the caller's strides merges no
    dimensions.
    """
    todo = [x.variable for x in loops_in(kernel.body)]
    while todo:  # from the innermost ones; one that two became may be of a pair again
        loop = find_loop(kernel.body, todo.pop())
        inner = loop.body
        pair = _pair(kernel, loop, inner) if isinstance(inner, Loop) else None
        if pair is not None:
            kernel, name = _merged(kernel, pair, names)
            todo.append(name)
    return kernel


def _pair(kernel: Kernel, outer: Loop, inner: Loop) -> _Pair | None:
    sizes = frozenset(kernel.sizes)
    if outer.order != inner.order or inner.order == "sequential":
        return None
    extents = (extent(outer), extent(inner))
    plain = outer.lower == inner.lower == ZERO and all(is_nonnegative(n, sizes) for n in extents)
    if not plain or outer.variable in inner.upper.variables():
        return None
    pair = frozenset((outer.variable, inner.variable))
    if not _only_in_subscripts(inner.body, pair):
        return None
    dimensions: dict[str, int] = {}
    apart: set[str] = set()
    for a in accesses(inner.body):
        own = len(kernel.buffer(a.buffer).private & pair)
        if own == 1:
            return None
        if _is_one_row(a, outer, inner) or (own == 0 and not _uses(a, pair)):
            apart.add(a.buffer)
            continue
        d = _dimension(kernel.buffer(a.buffer), a, outer, inner)
        if d is None or dimensions.setdefault(a.buffer, d) != d:
            return None
    merged = {x: d for x, d in dimensions.items() if _can_merge(kernel.body, x, d)}
    run_on = dimensions.keys() - merged.keys()  # whose rows must not be told apart by subscripts
    if run_on & apart or any(kernel.buffer(x).space != "argument" for x in run_on):
        return None
    return _Pair(outer, inner, merged)


def _only_in_subscripts(node: Node, pair: frozenset[str]) -> bool:
    """Nothing in `node` but subscripts depends on the loops `pair`."""
    for x, _ in walk(node):
        if isinstance(x, Loop) and x.end_variables & pair:
            return False
        if isinstance(x, Branch) and condition_variables(x.condition) & pair:
            return False
        if isinstance(x, Store | Update | Verify) and _value_depends(x.value, pair):
            return False
    return True


def _value_depends(v: Value, pair: frozenset[str]) -> bool:
    for x in subvalues(v):
        if isinstance(x, IndexValue) and x.index.variables() & pair:
            return True
        if isinstance(x, Holds) and condition_variables(x.condition) & pair:
            return True
        if isinstance(x, Read) and x.unwritten and condition_variables(x.unwritten) & pair:
            return True
    return False


def _uses(a: Access, pair: frozenset[str]) -> bool:
    return bool(subscript_variables(a.subscripts) & pair)


def _is_one_row(a: Access, outer: Loop, inner: Loop) -> bool:
    """One subscript moves with both loops, and with the outer by whole rows of the inner."""
    pair = {outer.variable, inner.variable}
    moved = [s for s in a.subscripts if subscript_variables((s,)) & pair]
    if len(moved) != 1 or not isinstance(moved[0], Index):
        return False
    step = linear_coefficient(moved[0], inner.variable)
    rows = linear_coefficient(moved[0], outer.variable)
    return step is not None and rows is not None and rows == step * extent(inner)


def _dimension(b: Buffer, a: Access, outer: Loop, inner: Loop) -> int | None:
    """d with subscripts d, d + 1 equal to the loop variables, which nothing else moves with."""
    pair = {outer.variable, inner.variable}
    if b.strides is not None:
        return None
    for d, (s, t) in enumerate(zip(a.subscripts, a.subscripts[1:])):
        if s == var(outer.variable) and t == var(inner.variable):
            others = (*a.subscripts[:d], *a.subscripts[d + 2 :])
            whole = b.shape[d + 1] == extent(inner)
            return d if whole and not subscript_variables(others) & pair else None
    return None


def _can_merge(node: Node, buffer: str, d: int) -> bool:
    """No use of the two dimensions is checked at run time, gathers, or slides."""
    return all(
        isinstance(s, Index) and not a.checks(k) and _is_position(s)
        for a, _ in uses_in(node, buffer)
        for k, s in ((d, a.subscripts[d]), (d + 1, a.subscripts[d + 1]))
    )


def _is_position(s: Index) -> bool:
    """A constant, or a loop variable and perhaps a constant."""
    return not s.terms or (len(s.terms) == 1 and s.terms[0][1] == 1)


def _merged(kernel: Kernel, pair: _Pair, names: Names) -> tuple[Kernel, str]:
    """With one loop, of that name."""
    outer, inner = pair.outer, pair.inner
    name = names.fresh(f"{_stem(outer.variable)}_{_stem(inner.variable)}")
    body = substitute_node(inner.body, {outer.variable: ZERO, inner.variable: var(name)})
    upper, steps = extent(outer) * extent(inner), outer.steps
    if steps is not None:
        steps = replace(steps, each=steps.each * extent(inner))
    loop = replace(outer, variable=name, upper=upper, body=body, work=ONE, steps=steps)
    kernel = replace(kernel, body=replace_loop(kernel.body, outer.variable, lambda _: loop))
    for buffer, d in pair.dimensions.items():
        kernel = _with_merged_dimensions(kernel, buffer, d)
    return replace_private(kernel, {outer.variable: (name,), inner.variable: (name,)}), name


def _stem(variable: str) -> str:
    return variable.partition(".")[0]


def _with_merged_dimensions(kernel: Kernel, buffer: str, d: int) -> Kernel:
    b = kernel.buffer(buffer)
    n = b.shape[d + 1]

    def one(subscripts: tuple[Index | Expr, ...]) -> tuple[Index | Expr, ...]:
        s, t = subscripts[d : d + 2]
        assert isinstance(s, Index) and isinstance(t, Index)
        return (*subscripts[:d], s * n + t, *subscripts[d + 2 :])

    def statement(x: Node) -> Node:
        if isinstance(x, Store | Update) and x.buffer == buffer:
            return replace(x, subscripts=one(x.subscripts))
        return x

    def value(v: Value) -> Value:
        if not isinstance(v, Read) or v.tensor != buffer:
            return v
        checked = (*v.checked[:d], *v.checked[d + 1 :]) if v.checked else ()
        return replace(v, subscripts=one(v.subscripts), checked=checked)

    shape = (*b.shape[:d], b.shape[d] * n, *b.shape[d + 2 :])
    body = rewrite_uses(kernel.body, buffer, lambda n: map_node(n, statement, value))
    kernel = replace(kernel, body=body)
    return kernel.with_buffer(replace(b, shape=shape))
