"""Loops that find positions -> the same inside loops over what each thread owns.

No two threads may add to one element, and each adds in the order of the text, so that results are
the same in every call. Where rows are scattered, `G[id[j], d] += Y[j, d]`, threads own columns d
and go through all rows; where single elements are, threads own elements and look for theirs.
"""

from __future__ import annotations

from itertools import takewhile

from msgspec.structs import replace

from tcsym.index.expr import var
from tcsym.ir.loops import Block, Loop, Node, Store, Update, block
from tcsym.schedule.analysis.loops import chain_of, loops_in, position_in
from tcsym.schedule.analysis.names import Names


def owned(loop: Loop, names: Names) -> Loop | None:
    """None where one thread has to do it all."""
    found = position_in(loop)
    if found is None:
        return None
    inside = {x.variable for x in loops_in(loop)}
    columns = tuple(takewhile(lambda x: x.order == "parallel", chain_of(found.body)))
    rest = columns[-1].body if columns else found.body
    moved = columns or (found,)
    bounds = frozenset[str]().union(*(x.lower.variables() | x.upper.variables() for x in moved))
    if bounds & inside or not _adds(rest):
        return None
    if not columns:
        element = names.fresh(found.variable)
        mine = replace(found, lower=var(element), upper=var(element) + 1)
        body = _with(loop, found, mine)
        return Loop(element, found.lower, found.upper, body, "serial", "parallel")
    first, *others = columns
    node = _with(loop, found, replace(found, body=rest))
    for x in reversed(others):
        node = replace(x, body=node)
    return replace(first, body=node)


def _adds(node: Node) -> bool:
    """One statement, perhaps in loops of its own sum: nothing else is written."""
    match node:
        case Update() | Store():
            return True
        case Loop():
            return _adds(node.body)
        case _:
            return False


def _with(node: Node, old: Loop, new: Node) -> Node:
    """`node` with `new` in the place of `old`."""
    match node:
        case Loop():
            return new if node is old else replace(node, body=_with(node.body, old, new))
        case Block(body):
            return block(*(_with(x, old, new) for x in body))
        case _:
            return node
