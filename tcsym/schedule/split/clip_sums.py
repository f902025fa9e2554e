"""Sums that count some terms only -> sums over these terms.

`serial k in 0:N { Y[..] += k <= i ? v : 0 }`, where i is known outside, runs to i and asks nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.affine import as_condition
from tcsym.frontend.infer_paths import is_exact_in_int32
from tcsym.frontend.program import IndexValue, Select
from tcsym.index.expr import (
    Condition,
    Index,
    NonNegative,
    condition_variables,
    maximum,
    minimum,
    var,
)
from tcsym.index.values import conjuncts
from tcsym.ir.loops import Kernel, Loop, Node, Update
from tcsym.ir.traverse import map_node, subvalues, walk
from tcsym.schedule.analysis.identities import identity
from tcsym.types import DType


def clip_sums(kernel: Kernel) -> Kernel:
    """All serial loops that hold updates under one such condition, and nothing else."""
    return replace(kernel, body=map_node(kernel.body, _clipped))


def _clipped(x: Node) -> Node:
    if not isinstance(x, Loop) or x.kind != "serial" or x.order != "reduction":
        return x
    test = _only_test(x)
    if test is None:
        return x
    lower, upper = [x.lower], [x.upper]
    for part in conjuncts(test):
        end = _end(part, x.variable)
        if end is None:
            return x
        (lower if end[0] else upper).append(end[1])

    def plain(n: Node) -> Node:
        if isinstance(n, Update) and isinstance(n.value, Select):
            return replace(n, value=n.value.then)
        return n

    start = maximum(*lower)
    stop = maximum(start, minimum(*upper))
    return replace(x, lower=start, upper=stop, body=map_node(x.body, plain))


def _only_test(x: Loop) -> Condition | None:
    """What all updates in the loop ask, if it is known in front of it but for its own variable."""
    found: set[Condition] = set()
    inside: set[str] = set()
    for n, _ in walk(x.body):
        if isinstance(n, Loop):
            inside.add(n.variable)
        elif isinstance(n, Update):
            v = n.value
            if not isinstance(v, Select) or v.orelse != identity(n.op, v.dtype):
                return None
            test = as_condition(v.condition)
            if test is None or not _is_exact(v, test):
                return None
            found.add(test)
        elif not hasattr(n, "body"):
            return None
    if len(found) != 1:
        return None
    (test,) = found
    used = condition_variables(test)
    return test if x.variable in used and used.isdisjoint(inside) else None


def _is_exact(v: Select, test: Condition) -> bool:
    """What the kernel computes of the test is what it says: nothing wraps."""
    wide = all(x.dtype is DType.INT64 for x in subvalues(v.condition) if isinstance(x, IndexValue))
    return wide or is_exact_in_int32(test)


def _end(c: Condition, variable: str) -> tuple[bool, Index] | None:
    """(is a lower end, the end) of the range that `c` says."""
    if not isinstance(c, NonNegative):
        return None
    factor = c.index.coefficient(variable)
    rest = c.index - var(variable) * factor
    if abs(factor) != 1 or variable in rest.variables():
        return None
    return (True, -rest) if factor == 1 else (False, rest + 1)
