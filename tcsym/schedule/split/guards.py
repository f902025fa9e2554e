# SPDX-License-Identifier: Apache-2.0
"""Innermost loops with guarded loads -> one loop for each range in which the guard is decided.

Padding, concatenation and stencils ask at every point whether it lies inside. On a row that is a
range: the loads in it need no guard and no mask, and outside of it there are none.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import Expr, Select
from tcsym.index.expr import (
    ONE,
    TRUE,
    Condition,
    FloorDiv,
    Index,
    IsZero,
    NonNegative,
    all_of,
    condition_variables,
    maximum,
    minimum,
    negate,
    of_atom,
    var,
)
from tcsym.index.values import conjuncts
from tcsym.ir.bounds import at_least, at_most
from tcsym.ir.loops import Branch, Kernel, Loop, Node, Store, Value, block
from tcsym.ir.traverse import loads, map_node, subvalues
from tcsym.schedule.analysis.access import stride
from tcsym.schedule.analysis.loops import (
    find_loop,
    is_leaf,
    loops_in,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.version.versioning import duplicate

MOST_GUARDS = 2  # kinds: each is up to three copies of the loop


class _Guard(Struct, frozen=True):
    """`condition` equals `holds` where `outside` is true and lower <= variable < upper.

    None: no bound on that side.
    """

    condition: Expr
    holds: bool
    outside: Condition
    lower: Index | None
    upper: Index | None


def split_guards(kernel: Kernel, names: Names) -> Kernel:
    """Guards of at most two kinds leave each innermost parallel loop along memory."""
    for loop in loops_in(kernel.body):
        if is_leaf(loop) and loop.order == "parallel" and _runs_along_memory(kernel, loop):
            kernel = _split(kernel, loop.variable, names, MOST_GUARDS)
    return kernel


def _runs_along_memory(kernel: Kernel, loop: Loop) -> bool:
    return all(
        isinstance(x, Store) and stride(kernel.buffer(x.buffer), x.subscripts, loop.variable) == ONE
        for x, _ in statements_in(loop.body)
    )


def _split(kernel: Kernel, variable: str, names: Names, most: int) -> Kernel:
    loop = find_loop(kernel.body, variable)
    guard = _guard_of(loop) if most else None
    if guard is None:
        return kernel
    kernel, node, parts = _pieces(kernel, loop, guard, names)
    kernel = replace(kernel, body=replace_loop(kernel.body, variable, lambda _: node))
    for part in parts:
        kernel = _split(kernel, part, names, most - 1)
    return kernel


def _guard_of(loop: Loop) -> _Guard | None:
    """The first condition around loads that decides a range of the loop, or all of it."""
    for x, _ in statements_in(loop.body):
        for v in subvalues(x.value):
            if isinstance(v, Select) and (loads(v.then) or loads(v.orelse)):
                guard = _range_of(v.condition, loop)
                if guard is not None:
                    return guard
    return None


def _range_of(e: Expr, loop: Loop) -> _Guard | None:
    whole = as_condition(e)
    if whole is None:
        return None
    for holds, c in ((True, whole), (False, negate(whole))):
        bounds = _bounds(c, loop.variable)
        if bounds is not None:
            outside, lowers, uppers = bounds
            lower = maximum(*lowers) if lowers else None
            upper = minimum(*uppers) if uppers else None
            return _Guard(e, holds, outside, lower, upper)
    return None


def without_quotient(d: Index) -> Index:
    """What is at least 0 where `d` is: of x/n + y, x + n*y; of y - x/n, n*(y + 1) - 1 - x."""
    quotients = [(a, k) for a, k in d.terms if isinstance(a, FloorDiv)]
    if len(quotients) != 1:
        return d
    (a, k) = quotients[0]
    n = a.divisor.as_int()
    if n is None or n < 1 or abs(k) != 1:
        return d
    rest = d - of_atom(a) * k
    return a.dividend + rest * n if k == 1 else rest * n + (n - 1) - a.dividend


def _bounds(c: Condition, v: str) -> tuple[Condition, list[Index], list[Index]] | None:
    """`c` as a conjunction of what does not depend on `v` and of bounds of it, or None."""
    outside: list[Condition] = []
    lowers: list[Index] = []
    uppers: list[Index] = []
    for part in conjuncts(c):
        if v not in condition_variables(part):
            outside.append(part)
            continue
        if not isinstance(part, NonNegative | IsZero):
            return None
        bound = without_quotient(part.index) if isinstance(part, NonNegative) else part.index
        step = bound.coefficient(v)
        rest = bound - var(v) * step
        if abs(step) != 1 or v in rest.variables():
            return None
        edge = -rest if step == 1 else rest  # v >= edge, or v <= edge
        if step == 1 or isinstance(part, IsZero):
            lowers.append(edge)
        if step == -1 or isinstance(part, IsZero):
            uppers.append(edge + 1)
    return all_of(outside), lowers, uppers


def _pieces(
    kernel: Kernel, loop: Loop, guard: _Guard, names: Names
) -> tuple[Kernel, Node, tuple[str, ...]]:
    """What stands for `loop`, and the names of the loops in it."""
    sizes = frozenset(kernel.sizes)
    first = last = None
    if guard.lower is not None:
        first = at_most(at_least(guard.lower, loop.lower, sizes), loop.upper, sizes)
    if guard.upper is not None:
        start = loop.lower if first is None else first
        last = at_least(at_most(guard.upper, loop.upper, sizes), start, sizes)
    within = replace(loop, lower=first or loop.lower, upper=last or loop.upper)
    inside = _resolved(within, guard, guard.holds)
    outside = _resolved(loop, guard, not guard.holds)
    parts = [loop.variable]

    def copy(lower: Index, upper: Index) -> Node:
        nonlocal kernel
        made = replace(outside, lower=lower, upper=upper)
        kernel, node, new = duplicate(kernel, made, names)
        parts.append(new[loop.variable])
        return node

    before = None if first is None else copy(loop.lower, first)
    after = None if last is None else copy(last, loop.upper)
    node = block(before, inside, after)
    if guard.outside != TRUE:
        node = Branch(guard.outside, node, copy(loop.lower, loop.upper))
    return kernel, node, tuple(parts)


def _resolved(loop: Loop, guard: _Guard, truth: bool) -> Loop:
    def value(v: Value) -> Value:
        if isinstance(v, Select) and v.condition == guard.condition:
            return v.then if truth else v.orelse
        return v

    changed = map_node(loop, on_value=value)
    assert isinstance(changed, Loop)
    return changed
