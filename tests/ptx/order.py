# SPDX-License-Identifier: Apache-2.0
"""Blocks of a function -> the order in which threads that have parted run them.

The threads that are behind in this order go first. All blocks of a loop stand together, behind its
head and before what follows, so that threads which leave a loop wait for those still in it, and
the sides of a branch are done before what both go to. Nothing depends on it but the time: which
threads are together is what barriers and warps ask for themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.ptx.text import Block

Edges = dict[int, list[int]]


def ranks(blocks: Sequence[Block]) -> list[int]:
    """The place of each block in the order."""
    edges = {k: _following(b) for k, b in enumerate(blocks)}
    places = [0] * len(blocks)
    for place, block in enumerate(_ordered(range(len(blocks)), edges, 0)):
        places[block] = place
    return places


def _following(block: Block) -> list[int]:
    return [] if block.ending == "return" else list(dict.fromkeys((block.then, block.taken)))


def _ordered(nodes: Iterable[int], edges: Edges, first: int) -> Iterator[int]:
    """Loops as a whole, what leads to something before it; inside a loop likewise, without the
    edges to its head."""
    among = set(nodes)
    kept = {n: [x for x in edges[n] if x in among] for n in among}
    for part in _components(sorted(among, key=lambda n: (n != first, n)), kept):
        if len(part) == 1:
            yield part[0]
            continue
        inside = set(part)
        entered = [x for n in among - inside for x in kept[n] if x in inside]
        head = first if first in inside else min(entered, default=min(part))
        yield head
        without = {n: [x for x in kept[n] if x != head] for n in inside - {head}}
        following = [x for x in kept[head] if x in inside and x != head]
        yield from _ordered(without, without, min(following, default=min(without)))


def _components(nodes: Sequence[int], edges: Edges) -> list[list[int]]:
    """Strongly connected parts, what leads to others first (Kosaraju)."""
    finished: list[int] = []
    seen: set[int] = set()
    for n in nodes:
        finished += _visited(n, edges, seen)
    back: Edges = {n: [] for n in nodes}
    for n in nodes:
        for x in edges[n]:
            back[x].append(n)
    seen = set()
    return [part for n in reversed(finished) if (part := _visited(n, back, seen))]


def _visited(start: int, edges: Edges, seen: set[int]) -> list[int]:
    """What is reached and was not seen; a node comes when all behind it has."""
    if start in seen:
        return []
    seen.add(start)
    done: list[int] = []
    path = [(start, iter(edges[start]))]
    while path:
        node, following = path[-1]
        step = next((x for x in following if x not in seen), None)
        if step is None:
            done.append(node)
            path.pop()
        else:
            seen.add(step)
            path.append((step, iter(edges[step])))
    return done
