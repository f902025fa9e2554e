# SPDX-License-Identifier: Apache-2.0
"""Reductions of a few terms, known in number -> one expression, without an accumulator."""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from tcsym.frontend.program import Binary, Expr
from tcsym.index.expr import ZERO, index
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Loop, Node, Store, Update, block, value_dtype
from tcsym.ir.traverse import substitute_value
from tcsym.schedule.analysis.access import subscript_variables
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import chain_of, children
from tcsym.schedule.tile.vector_rows import tree

MOST_TERMS = 16


def expand_reductions(body: Node) -> Node:
    """Reductions of few terms, known in number, that start from the identity, as expressions."""
    out: list[Node] = []
    for x in children(body):
        chain = chain_of(x)
        before = out[-1] if out else None
        update = chain[-1].body if chain else None
        value = None
        if isinstance(update, Update) and isinstance(before, Store) and _starts(before, update):
            value = _expression(chain, update, before)
        if value is None:
            out.append(x)
        else:
            assert isinstance(before, Store)
            out[-1] = replace(before, value=value, name=update.name)  # type: ignore[union-attr]
    return block(*out)


def _starts(before: Store, update: Update) -> bool:
    place = before.buffer == update.buffer and before.subscripts == update.subscripts
    dtype = value_dtype(before.value)
    return place and before.value == identity(update.op, dtype)


def _expression(chain: tuple[Loop, ...], update: Update, before: Store) -> Expr | None:
    trips = [extent(x).as_int() if x.lower == ZERO else None for x in chain]
    known = [n for n in trips if n is not None]
    same_type = value_dtype(update.value) is value_dtype(before.value)
    if len(known) < len(trips) or not 0 < prod(known) <= MOST_TERMS or not same_type:
        return None
    moved = {x.variable for x in chain} & subscript_variables(update.subscripts)
    if moved or any(x.order != "reduction" for x in chain):
        return None
    terms: list[Expr] = [update.value]  # type: ignore[list-item]
    for x, n in zip(chain, known):
        terms = [
            substitute_value(t, {x.variable: index(k)})  # type: ignore[misc]
            for t in terms
            for k in range(n)
        ]
    dtype = value_dtype(before.value)
    return tree(lambda a, b: Binary(update.op, a, b, dtype), terms)
