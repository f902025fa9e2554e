# SPDX-License-Identifier: Apache-2.0
"""What a point of the band owns of a buffer becomes a temporary that lives around its statements.

Loops of the band are proved parallel: no two of their iterations write one element. So elements
that only loops of the band move are a point's own, from its first statement to its last, and what a
temporary of the nest has beyond loops of the band is a row that each point has for itself. Nests
inside of the band are such nests again, whose points own what no other of them uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import Index
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    Loop,
    Node,
    Store,
    Update,
    allocated,
    block,
)
from tcsym.ir.traverse import loads, map_inner, walk
from tcsym.mapping.carried import with_carried
from tcsym.mapping.nest import Nest, band_at
from tcsym.mapping.plan import Refused
from tcsym.mapping.tree import Mapping_, Place, accessed, redirected, unused, variables_of


def own(mapping: Mapping_, nest: Nest) -> Mapping_:
    """The tree with temporaries of the points of its band, and of the bands inside."""
    known = frozenset((*nest.names, *nest.sizes, *nest.around))
    lasting = frozenset(b for b in nest.buffers if nest.lasts(b))
    buffers = dict(mapping.buffers)
    body = _Owned(known, lasting, buffers).body(with_carried(nest.body, buffers))
    for x in reversed(nest.band):
        body = replace(x, body=body)
    return replace(mapping, node=body, buffers=buffers)


class _Owned(Struct, frozen=True):
    """known: variables of the band and of what is around it. lasting: buffers that others find as
    the band leaves them. `buffers` is changed."""

    known: frozenset[str]
    lasting: frozenset[str]
    buffers: dict[str, Buffer]

    def body(self, node: Node) -> Node:
        made, uses = list[str](), _uses(node)
        branches = (x for x, _ in walk(node) if isinstance(x, Branch))
        guarded = [y for x in branches for y, _ in walk(x) if isinstance(y, Store | Update)]
        places, loaded, stored = dict[str, Place](), list[Store](), list[Store]()
        inner = self._of_one_band(node)
        for name, found in uses.items():
            b, ats = self.buffers[name], {at: None for _, at in found}
            writes = [x for x, _ in found if x.buffer == name]
            is_sure = any(x not in guarded for x, _ in found)
            if not writes or name in inner or (name in self.lasting and not is_sure):
                continue
            if name in self.lasting:
                is_summed = any(isinstance(x, Update) for x in writes)
                at = next(iter(ats))
                if len(ats) > 1 or not is_summed or not self._is_held(at):
                    continue
                new = unused(name, "acc", self.buffers)
                self.buffers[new] = Buffer(new, b.dtype, (), "arena", padded=True)
                if b.dtype is not b.dtype.accumulator:
                    raise Refused(f"sums of {b.dtype} in memory")
                if found[0][0] in guarded or _is_needed(name, found[0][0]):
                    loaded.append(Store(new, (), Read(name, at, b.dtype), new))
                places[name] = lambda _, new=new: (new, ())  # type: ignore[misc]
                stored.append(Store(name, at, Read(new, (), b.dtype), name))
            else:
                kept = [d for d in range(len(b.shape)) if not self._is_own(d, ats)]
                shape = tuple(b.shape[d] for d in kept)
                self.buffers[new := name] = replace(b, shape=shape, strides=None, padded=not shape)
                places[name] = lambda s, n=name, k=kept: (n, tuple(s[d] for d in k))  # type: ignore[misc]
            made.append(new)
        body = block(*loaded, self._inside(redirected(node, places), inner), *stored)
        for new in reversed(made):
            body = allocated(new, body)
        return body

    def _of_one_band(self, node: Node) -> frozenset[str]:
        """Temporaries that a single band inside uses."""
        used = [{b for b, *_ in accessed(x)} for x in parts(node)]
        bands = [isinstance(x, Loop) and x.order == "parallel" for x in parts(node)]
        found = {b for x, is_band in zip(used, bands, strict=True) if is_band for b in x}
        return frozenset(b for b in found - self.lasting if sum(b in x for x in used) == 1)

    def _inside(self, node: Node, inner: frozenset[str]) -> Node:
        """The same of the bands inside."""
        if isinstance(node, Block | Allocate | Branch):
            return map_inner(node, lambda x: self._inside(x, inner))
        if not isinstance(node, Loop) or node.order != "parallel":
            return node
        band = band_at(node)
        known = self.known.union(x.variable for x in band)
        lasting = frozenset(self.buffers) - inner
        body = _Owned(known, lasting, self.buffers).body(band[-1].body)
        for x in reversed(band):
            body = replace(x, body=body)
        return body

    def _is_held(self, at: tuple[Index, ...]) -> bool:
        return variables_of(at) <= self.known

    def _is_own(self, d: int, uses: Iterable[tuple[Index, ...]]) -> bool:
        """A point has one place in dimension `d`, wherever it is used."""
        at = {s[d] for s in uses}
        return len(at) == 1 and self._is_held(tuple(at))


def parts(node: Node) -> Iterator[Node]:
    """What runs one after the other, or does not."""
    match node:
        case Block(body):
            for x in body:
                yield from parts(x)
        case Allocate(_, body):
            yield from parts(body)
        case Branch(_, a, b):
            yield from parts(a)
            yield from parts(b or Block(()))
        case _:
            yield node


def _uses(body: Node) -> dict[str, list[tuple[Store | Update, tuple[Index, ...]]]]:
    """Of all buffers the statements that access them, and where."""
    found = dict[str, list[tuple[Store | Update, tuple[Index, ...]]]]()
    for x, _ in walk(body):
        if isinstance(x, Store | Update):
            for name, at, *_ in accessed(x):
                found.setdefault(name, []).append((x, at))
    return found


def _is_needed(name: str, first: Store | Update) -> bool:
    """The first statement that accesses the buffer needs what was there before."""
    is_read = any(r.tensor == name for r in loads(first.value))
    return is_read or first.buffer != name or isinstance(first, Update)
