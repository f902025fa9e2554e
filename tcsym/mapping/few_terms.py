# SPDX-License-Identifier: Apache-2.0
"""Sums of a few copies of terms, each a read -> one expression, without what they start from."""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from tcsym.frontend.program import Binary, Expr
from tcsym.index.expr import ZERO, index
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Block, Loop, Node, Store, Update, block, value_dtype
from tcsym.ir.traverse import loads, map_node, substitute_value
from tcsym.mapping.tree import variables_of
from tcsym.schedule.analysis.identities import identity

MOST_TERMS = 16
NOTHING = Block(())


def as_expressions(node: Node) -> Node:
    """All sums of the tree that are. Products stay: each is added as it is made."""
    return map_node(node, _joined)


def _joined(x: Node) -> Node:
    if not isinstance(x, Block):
        return x
    out = list[Node]()
    for y in x.body:
        made = _made(out[-1], y) if out else None
        out[-1:] = [made] if made is not None else [*out[-1:], y]
    return block(*out)


def _made(before: Node, y: Node) -> Node | None:
    """What starts a sum and the sum, in the same points, as one statement."""
    first, second = _loops(before), _loops(y)
    terms = [x for x in second if x.order == "reduction"]
    points = [replace(x, body=NOTHING) for x in second[len(terms) :]]
    start, update = _inside(before), _inside(y)
    if not isinstance(start, Store) or not isinstance(update, Update) or not terms:
        return None
    alike = [replace(x, body=NOTHING) for x in first] == points
    same = (start.buffer, start.subscripts) == (update.buffer, update.subscripts)
    dtype = value_dtype(start.value)
    if not alike or not same or start.value != identity(update.op, dtype):
        return None
    if value_dtype(update.value) is not dtype or len(loads(update.value)) != 1:
        return None
    value = _expression(terms, update)
    if value is None:
        return None
    node: Node = replace(start, value=value, name=update.name)
    for x in reversed(first):
        node = replace(x, body=node)
    return node


def _expression(terms: list[Loop], update: Update) -> Expr | None:
    counts = [extent(x).as_int() or 0 for x in terms]
    plain = all(x.kind == "unrolled" and x.mask is None and x.lower == ZERO for x in terms)
    moving = variables_of(update.subscripts) & {x.variable for x in terms}
    if not plain or moving or not 0 < prod(counts) <= MOST_TERMS:
        return None
    found: list[Expr] = [update.value]  # type: ignore[list-item]
    for x, n in zip(terms, counts, strict=True):
        at = [{x.variable: index(k)} for k in range(n)]
        found = [substitute_value(v, k) for v in found for k in at]  # type: ignore[misc]
    dtype = value_dtype(update.value)
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=False)
        odd = found[-1:] if len(found) % 2 else []
        found = [*(Binary(update.op, a, b, dtype) for a, b in pairs), *odd]
    return found[0]


def _loops(node: Node) -> list[Loop]:
    found = list[Loop]()
    while isinstance(node, Loop):
        found.append(node)
        node = node.body
    return found


def _inside(node: Node) -> Node:
    while isinstance(node, Loop):
        node = node.body
    return node
