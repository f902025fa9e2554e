# SPDX-License-Identifier: Apache-2.0
"""What a point of the band owns of a buffer becomes a temporary that lives around its statements.

Loops of the band are proved parallel: no two of their iterations write one element. So elements
that only loops of the band move are a point's own, from its first statement to its last, and what a
temporary of the nest has beyond loops of the band is a row that each point has for itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import Index
from tcsym.ir.loops import Branch, Buffer, Loop, Node, Store, Update, allocated, block
from tcsym.ir.traverse import loads, walk
from tcsym.mapping.nest import Nest, analyse
from tcsym.mapping.plan import Refused
from tcsym.mapping.tree import (
    Mapping_,
    Place,
    accessed,
    redirected,
    replaced,
    unused,
    variables_of,
)


def own(mapping: Mapping_, nest: Nest) -> Mapping_:
    """The tree with temporaries of the points of its band, and of nests inside that have sums."""
    m = _of_band(mapping, nest)
    for x, around in [*walk(m.node)]:
        inside = around[len(nest.band) :]
        if len(around) < len(nest.band) or not isinstance(x, Loop) or x.order != "parallel":
            continue
        if any(y.order == "parallel" for y in inside) or not _has_sums(x):
            continue
        names = frozenset(y.variable for y in around)
        part = analyse(x, m.buffers, nest.sizes, nest.around | names)
        made = _of_band(replace(m, node=x), replace(part, shared=frozenset(m.buffers)))
        m = replace(made, node=replaced(m.node, x.variable, lambda _, n=made.node: n))  # type: ignore[misc]
    return m


def _has_sums(x: Loop) -> bool:
    return any(isinstance(y, Loop) and y.order == "reduction" for y, _ in walk(x.body))


def _of_band(mapping: Mapping_, nest: Nest) -> Mapping_:
    made, buffers = list[str](), dict(mapping.buffers)
    places, loaded, stored = dict[str, Place](), list[Store](), list[Store]()
    guarded = {b for x, _ in walk(nest.body) if isinstance(x, Branch) for b, *_ in accessed(x)}
    for name, uses in _uses(nest.body).items():
        b, ats = buffers[name], {at: None for _, at in uses}
        writes = [x for x, _ in uses if x.buffer == name]
        if not writes or (nest.lasts(name) and name in guarded):
            continue
        if nest.lasts(name):
            is_summed = any(isinstance(x, Update) for x in writes)
            at = next(iter(ats))
            if len(ats) > 1 or not is_summed or not _is_held(nest, at):
                continue
            if b.dtype is not b.dtype.accumulator:
                raise Refused(f"sums of {b.dtype} in memory")
            new = unused(name, "acc", buffers)
            buffers[new] = Buffer(new, b.dtype, (), "arena", padded=True)
            if _is_needed(name, uses[0][0]):
                loaded.append(Store(new, (), Read(name, at, b.dtype), new))
            places[name] = lambda _, new=new: (new, ())  # type: ignore[misc]
            stored.append(Store(name, at, Read(new, (), b.dtype), name))
        else:
            kept = [d for d in range(len(b.shape)) if not _is_own(nest, d, ats)]
            shape = tuple(b.shape[d] for d in kept)
            buffers[new := name] = replace(b, shape=shape, strides=None, padded=not shape)
            places[name] = lambda s, n=name, k=kept: (n, tuple(s[d] for d in k))  # type: ignore[misc]
        made.append(new)
    body = block(*loaded, redirected(nest.body, places), *stored)
    for new in reversed(made):
        body = allocated(new, body)
    for x in reversed(nest.band):
        body = replace(x, body=body)
    return replace(mapping, node=body, buffers=buffers)


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


def _is_held(nest: Nest, at: tuple[Index, ...]) -> bool:
    return variables_of(at) <= {*nest.names, *nest.sizes, *nest.around}


def _is_own(nest: Nest, d: int, uses: Iterable[tuple[Index, ...]]) -> bool:
    """A point has one place in dimension `d`, wherever it is used."""
    at = {s[d] for s in uses}
    return len(at) == 1 and _is_held(nest, tuple(at))
