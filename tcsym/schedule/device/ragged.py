"""Rows of which each reads its own ranges -> nests in which all that is parallel is threads.

    for b: lo = off[b], hi = off[b + 1]: for d: sum over j in lo:hi
->  for b: for d: lo = off[b], hi = off[b + 1]: sum over j in lo:hi

Each thread then reads the ends of its row's range. Checks of a range are made under the condition
that all loops inside have iterations, so none is lost where those have none.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.ir.loops import Loop, Node
from tcsym.ir.traverse import map_node
from tcsym.schedule.order.parallelise import independent_as_parallel


def parallel_outside(node: Node) -> Node:
    """`node` with parallel loops around what is read of ranges, where they may be."""
    return map_node(independent_as_parallel(node), _swapped)


def _swapped(n: Node) -> Node:
    if not isinstance(n, Loop) or n.value is None:
        return n
    inner = n.body
    if not isinstance(inner, Loop) or inner.order != "parallel":
        return n
    if n.variable in inner.lower.variables() | inner.upper.variables():
        return n
    return replace(inner, body=_swapped(replace(n, body=inner.body)))
