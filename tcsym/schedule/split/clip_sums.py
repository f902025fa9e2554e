# SPDX-License-Identifier: Apache-2.0
"""Sums that count some terms only -> sums over these terms.

`serial k in 0:N { Y[..] += k <= i ? v : 0 }`, where i is known outside, runs to i and asks nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import Expr, Select
from tcsym.index.expr import (
    Condition,
    Index,
    IsZero,
    NonNegative,
    Not,
    condition_variables,
    maximum,
    minimum,
    negate,
    var,
)
from tcsym.ir.loops import Kernel, Loop, Node, Update
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.split.residue_guards import Guarded, guarded

Guard = tuple[Expr, bool]
End = tuple[bool, Index]  # of a range: is it the lower one, where it is


def clip_sums(kernel: Kernel) -> Kernel:
    """All serial loops that hold nothing but updates under such conditions."""
    return replace(kernel, body=map_node(kernel.body, lambda x: _clipped(x, lambda _: True)))


def clip_in_sizes(kernel: Kernel) -> Kernel:
    """The same where sizes alone say which terms count, `t > 0`: nests stay boxes."""
    sizes = frozenset(kernel.sizes)

    def known(end: Index) -> bool:
        return end.variables() <= sizes

    return replace(kernel, body=map_node(kernel.body, lambda x: _clipped(x, known)))


def _clipped(x: Node, admits: Callable[[Index], bool]) -> Node:
    if not isinstance(x, Loop) or x.kind != "serial" or x.order != "reduction":
        return x
    ends = {g: end for g in _shared_guards(x) if (end := _end(g, x)) and admits(end[1])}
    if not ends:
        return x

    def without(n: Node) -> Node:
        if not isinstance(n, Update):
            return n
        terms = _guarded(n)
        kept = tuple(g for g in terms.guards if g not in ends)
        return replace(n, value=replace(terms, guards=kept).value())

    start = maximum(x.lower, *(e for is_lower, e in ends.values() if is_lower))
    stop = minimum(x.upper, *(e for is_lower, e in ends.values() if not is_lower))
    body = map_node(x.body, without)
    return replace(x, lower=start, upper=maximum(start, stop), body=body)


def _shared_guards(x: Loop) -> tuple[Guard, ...]:
    """What all updates in the loop ask, if it is known in front of it but for its own variable."""
    found: list[tuple[Guard, ...]] = []
    inside: set[str] = set()
    for n, _ in walk(x.body):
        if isinstance(n, Loop):
            inside.add(n.variable)
        elif isinstance(n, Update):
            found.append(_guarded(n).guards)
        elif not hasattr(n, "body"):
            return ()
    first, *others = found or [()]
    shared = (g for g in first if all(g in other for other in others))
    exact = ((g, _exact(g)) for g in shared)
    return tuple(g for g, c in exact if c and inside.isdisjoint(condition_variables(c)))


def _guarded(n: Update) -> Guarded:
    """Its value where all guards hold; where one does not, it changes nothing."""
    v = n.value
    if not isinstance(v, Select):
        return Guarded((), v, None)  # type: ignore[arg-type]
    return guarded(v, identity(n.op, v.dtype))


def _exact(guard: Guard) -> Condition | None:
    """The guard as a condition."""
    test, holds = guard
    c = as_condition(test)
    return c if c is None or holds else negate(c)


def _end(guard: Guard, loop: Loop) -> End | None:
    """The end of the loop's range that it says."""
    c = _exact(guard)
    v = var(loop.variable)
    if isinstance(c, Not) and isinstance(c.condition, IsZero):  # all but the first, or the last
        e = c.condition.index
        if e in (v - loop.lower, loop.lower - v):
            return True, loop.lower + 1
        return (False, loop.upper - 1) if e in (v - loop.upper + 1, loop.upper - 1 - v) else None
    if not isinstance(c, NonNegative):
        return None
    factor = c.index.coefficient(loop.variable)
    rest = c.index - v * factor
    if abs(factor) != 1 or loop.variable in rest.variables():
        return None
    return (True, -rest) if factor == 1 else (False, rest + 1)
