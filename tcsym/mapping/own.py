# SPDX-License-Identifier: Apache-2.0
"""What a point of the band owns of a buffer becomes a temporary that lives around its statements.

Loops of the band are proved parallel: no two of their iterations write one element. So elements
that only loops of the band move are a point's own, from its first statement to its last, and what a
temporary of the nest has beyond loops of the band is a row that each point has for itself.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import Index
from tcsym.ir.loops import Buffer, Node, Store, Update, allocated, block
from tcsym.ir.traverse import walk
from tcsym.mapping.nest import Nest
from tcsym.mapping.plan import Refused
from tcsym.mapping.tree import Mapping_, accessed, redirected, variables_of


def own(mapping: Mapping_, nest: Nest, shared: frozenset[str]) -> Mapping_:
    """The tree with temporaries of the points of its band. shared: buffers that live on."""
    body, made, buffers = nest.body, list[str](), dict(mapping.buffers)
    for name in dict.fromkeys(b for b, _, written, _ in accessed(body) if written):
        b = buffers[name]
        uses = {at: None for n, at, _, _ in accessed(body) if n == name}
        if b.space == "argument" or name in shared:
            if len(uses) > 1 or not _is_summed(body, name) or not _is_held(nest, next(iter(uses))):
                continue
            (at,) = uses
            new = f"{name}.acc"
            buffers[new] = Buffer(new, b.dtype, (), "arena", padded=True)
            if b.dtype is not b.dtype.accumulator:
                raise Refused(f"sums of {b.dtype} in memory")
            if not _starts(body, name):
                raise Refused(f"{name} is added to what it was before")
            body = redirected(body, name, lambda _, new=new: (new, ()))  # type: ignore[misc]
            body = block(body, Store(name, at, Read(new, (), b.dtype), name))
        else:
            kept = [d for d in range(len(b.shape)) if not _is_own(nest, d, list(uses))]
            shape = tuple(b.shape[d] for d in kept)
            buffers[new := name] = replace(b, shape=shape, strides=None, padded=not shape)
            body = redirected(body, name, lambda s, n=name, k=kept: (n, tuple(s[d] for d in k)))  # type: ignore[misc]
        made.append(new)
    for new in reversed(made):
        body = allocated(new, body)
    for x in reversed(nest.band):
        body = replace(x, body=body)
    return replace(mapping, node=body, buffers=buffers)


def _is_summed(body: Node, name: str) -> bool:
    return any(isinstance(x, Update) and x.buffer == name for x, _ in walk(body))


def _is_held(nest: Nest, at: tuple[Index, ...]) -> bool:
    return variables_of(at) <= {*nest.names, *nest.sizes, *nest.around}


def _starts(body: Node, name: str) -> bool:
    """The first access is a store of the element."""
    for x, _ in walk(body):
        if isinstance(x, Store | Update) and any(b == name for b, *_ in accessed(x)):
            return isinstance(x, Store) and x.buffer == name
    return False


def _is_own(nest: Nest, d: int, uses: list[tuple[Index, ...]]) -> bool:
    """A point has one place in dimension `d`, wherever it is used."""
    at = {s[d] for s in uses}
    return len(at) == 1 and _is_held(nest, tuple(at))
