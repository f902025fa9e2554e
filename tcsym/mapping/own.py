# SPDX-License-Identifier: Apache-2.0
"""What a point of the band owns of a buffer becomes a temporary that lives around its statements.

Loops of the band are proved parallel: no two of their iterations write one element. So elements
that only loops of the band move are a point's own, from its first statement to its last, and what a
temporary of the nest has beyond loops of the band is a row that each point has for itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import Index
from tcsym.ir.loops import Buffer, Node, Store, Update, allocated, block
from tcsym.ir.traverse import walk
from tcsym.mapping.nest import Nest
from tcsym.mapping.plan import Refused
from tcsym.mapping.tree import Mapping_, Place, accessed, redirected, variables_of


def own(mapping: Mapping_, nest: Nest, shared: frozenset[str]) -> Mapping_:
    """The tree with temporaries of the points of its band. shared: buffers that live on."""
    made, buffers = list[str](), dict(mapping.buffers)
    places, stores = dict[str, Place](), list[Store]()
    for name, uses in _uses(nest.body).items():
        b = buffers[name]
        if not uses.is_written:
            continue
        if b.space == "argument" or name in shared:
            if len(uses.at) > 1 or not uses.is_summed or not _is_held(nest, next(iter(uses.at))):
                continue
            (at,) = uses.at
            new = f"{name}.acc"
            buffers[new] = Buffer(new, b.dtype, (), "arena", padded=True)
            if b.dtype is not b.dtype.accumulator:
                raise Refused(f"sums of {b.dtype} in memory")
            if not uses.starts:
                raise Refused(f"{name} is added to what it was before")
            places[name] = lambda _, new=new: (new, ())  # type: ignore[misc]
            stores.append(Store(name, at, Read(new, (), b.dtype), name))
        else:
            kept = [d for d in range(len(b.shape)) if not _is_own(nest, d, uses.at)]
            shape = tuple(b.shape[d] for d in kept)
            buffers[new := name] = replace(b, shape=shape, strides=None, padded=not shape)
            places[name] = lambda s, n=name, k=kept: (n, tuple(s[d] for d in k))  # type: ignore[misc]
        made.append(new)
    body = block(redirected(nest.body, places), *stores)
    for new in reversed(made):
        body = allocated(new, body)
    for x in reversed(nest.band):
        body = replace(x, body=body)
    return replace(mapping, node=body, buffers=buffers)


class _Uses(Struct):
    """Of a buffer. starts: the first statement that accesses it stores to it."""

    starts: bool
    at: dict[tuple[Index, ...], None] = field(default_factory=dict)
    is_written: bool = False
    is_summed: bool = False


def _uses(body: Node) -> dict[str, _Uses]:
    """Of all buffers, the first that is accessed first."""
    found = dict[str, _Uses]()
    for x, _ in walk(body):
        for name, at, written, _ in accessed(x) if isinstance(x, Store | Update) else ():
            starts = isinstance(x, Store) and x.buffer == name
            uses = found.setdefault(name, _Uses(starts))
            uses.at[at] = None
            uses.is_written |= written
            uses.is_summed |= isinstance(x, Update) and x.buffer == name
    return found


def _is_held(nest: Nest, at: tuple[Index, ...]) -> bool:
    return variables_of(at) <= {*nest.names, *nest.sizes, *nest.around}


def _is_own(nest: Nest, d: int, uses: Iterable[tuple[Index, ...]]) -> bool:
    """A point has one place in dimension `d`, wherever it is used."""
    at = {s[d] for s in uses}
    return len(at) == 1 and _is_held(nest, tuple(at))
