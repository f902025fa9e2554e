# SPDX-License-Identifier: Apache-2.0
"""Rows of a buffer that a loop reads, a stride apart -> how far each lies from the first of them.

A pointer a row is too many where a window has many: all are moved by every loop around, and some
are spilled. One pointer serves them all, and few multiples of the stride (`addresses.moved_by`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.index_code import atom_variables
from tcsym.index.expr import ZERO, Atom, Index, of_atom
from tcsym.ir.loops import Buffer, Node, Store, Update
from tcsym.ir.traverse import loads, walk

LEAST_ROWS = 4  # pointers of fewer rows cost less than to add multiples of a stride to one

Terms = tuple[tuple[Atom, int], ...]
Groups = dict[tuple[str, Terms], dict[Atom, int]]


def from_first_row(context: Context, buffer: Buffer, offset: Index) -> Index:
    """A multiple of one stride: how far an access lies behind the first row of its loop's."""
    groups = _groups(context)
    if not groups:
        return ZERO
    for atom, first in groups.get((buffer.name, offset.terms), {}).items():
        return of_atom(atom) * -first
    for atom, c, others in _without_one(context, offset):
        first = groups.get((buffer.name, others), {}).get(atom, c)
        if first != c:
            return of_atom(atom) * (c - first)
    return ZERO


def _without_one(context: Context, offset: Index) -> Iterator[tuple[Atom, int, Terms]]:
    """Each term that sizes alone tell, and the others."""
    sizes = context.kernel.sizes
    for atom, c in offset.terms:
        if atom_variables(atom).issubset(sizes):
            yield atom, c, tuple(t for t in offset.terms if t[0] != atom)


def _groups(context: Context) -> Groups:
    """By what all rows share: the strides between them, and the multiple in the first row."""
    body = context.body
    if body is None:
        return {}
    known = context.row_groups.get(id(body))
    if known is None:
        known = context.row_groups[id(body)] = (_groups_in(context, body), body)
    return known[0]


def _groups_in(context: Context, body: Node) -> Groups:
    found: dict[tuple[str, Terms], dict[Atom, set[int]]] = {}
    offsets = dict.fromkeys(_offsets(context, body))
    for name, offset in offsets:
        for atom, c, others in _without_one(context, offset):
            found.setdefault((name, others), {}).setdefault(atom, set()).add(c)
    for name, offset in offsets:
        for multiples in found.get((name, offset.terms), {}).values():
            multiples.add(0)
    groups: Groups = {}
    for key, strides in found.items():
        for atom, multiples in strides.items():
            if len(multiples) >= LEAST_ROWS:
                groups.setdefault(key, {})[atom] = min(multiples)
    return groups


def _offsets(context: Context, body: Node) -> Iterator[tuple[str, Index]]:
    """Of all that the body reads at places that indices tell."""
    for n, _ in walk(body):
        if isinstance(n, Store | Update):
            reads = loads(n.value)
        else:
            continue
        for r in reads:
            if all(isinstance(s, Index) for s in r.subscripts):
                yield r.tensor, context.offset_of(context.buffers[r.tensor], r.subscripts)
