# SPDX-License-Identifier: Apache-2.0
"""Proved tree -> for each temporary, the loops to whose iterations its contents are private.

A temporary is private to a loop if every element read in an iteration was written earlier in the
same iteration (of it and all loops around): then no value crosses iterations, and each may have its
own storage. Loops count from outside: private to a loop implies private to those around it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from functools import reduce

import islpy as isl
from msgspec import Struct

from tcsym.frontend.program import Range
from tcsym.index.expr import TRUE, Condition, Index, all_of, ge, lt, var
from tcsym.index.values import condition_substitute, substitute
from tcsym.polyhedral.relations import IN, OUT, Relations
from tcsym.polyhedral.scop import Access, Scop, ScopStatement
from tcsym.polyhedral.tree import Tree, TreeLoop, leaves


class _Use(Struct, frozen=True):
    """An access in its place: `position` in the text of the tree, `loops` around it."""

    statement: ScopStatement
    access: Access
    position: int
    loops: tuple[TreeLoop, ...]

    def along(self, loop: TreeLoop) -> int:
        """Position of the iterator that a loop around it goes along, else -1."""
        return self.statement.position(loop.value(self.statement.name))


def private_loops(tree: Tree, scop: Scop, relations: Relations) -> dict[str, frozenset[str]]:
    """By temporary: variables of the loops to each of whose iterations it is private."""
    uses = _uses(tree, scop)
    found: dict[str, frozenset[str]] = {}
    for tensor in scop.tensors:
        if tensor.role != "temporary":
            continue
        writes, reads = uses.get(tensor.name, ([], []))
        depth = _private_depth(writes, reads, relations)
        loops = (*writes, *reads)[0].loops[:depth] if writes or reads else ()
        found[tensor.name] = frozenset(loop.variable for loop in loops)
    return found


def _uses(tree: Tree, scop: Scop) -> dict[str, tuple[list[_Use], list[_Use]]]:
    """By tensor: its writes and its reads, in the order of the tree."""
    found: dict[str, tuple[list[_Use], list[_Use]]] = defaultdict(lambda: ([], []))
    for k, (name, loops) in enumerate(leaves(tree)):
        s = scop.statement(name)
        if s.write is not None:
            found[s.target][0].append(_Use(s, s.write, k, loops))
        for a in s.reads:
            found[a.tensor][1].append(_Use(s, a, k, loops))
    return found


def _private_depth(writes: list[_Use], reads: list[_Use], relations: Relations) -> int:
    """How many of the common loops of all uses (outermost first) the tensor is private to."""
    depth = _common(*writes, *reads)
    positions = [w.position for w in writes]
    for r in reads:
        seen = 0
        for w in reversed(writes[: bisect_left(positions, r.position)]):  # the last feeds most
            if seen >= depth:
                break
            seen = max(seen, _common(w, r) if _feeds(w, r) else 0)
        if seen < depth:
            depth = _fed_depth(writes, r, seen, depth, relations)
    return depth


def _common(*uses: _Use) -> int:
    """How many loops all uses share, from outside, each along an iterator of all of them."""
    count = 0
    for level in zip(*(u.loops for u in uses)):
        if len({loop.variable for loop in level}) != 1:
            break
        if any(u.along(loop) < 0 for u, loop in zip(uses, level)):
            break
        count += 1
    return count


# ---- by comparing subscripts


def _feeds(w: _Use, r: _Use) -> bool:
    """Each element `r` reads was written by `w`, which stands before it, in the same iteration of
    all common loops."""
    if w.statement.positions:
        return False  # what is scattered only may be written
    common = w.loops[: _common(w, r)]
    shared = {loop.variable for loop in common}
    mine, yours = _renaming(w), _renaming(r)
    if not (
        mine.keys() >= set(w.statement.iterators) and yours.keys() >= set(r.statement.iterators)
    ):
        return False  # a loop that is not plain
    own = {v: x for v, x in _ranges(w).items() if v not in shared}
    ranges = _ranges(r)
    chosen: dict[str, Index] = {}
    for a, b in zip(w.access.subscripts, r.access.subscripts):
        if a is None or b is None:
            return False
        a, b = substitute(a, mine), substitute(b, yours)
        v = next((v for v in own if a == var(v)), None)
        if v is None:
            if a != b or a.variables() & own.keys():
                return False
        elif chosen.setdefault(v, b) != b or not _within(b, own[v], ranges):
            return False
    return chosen.keys() == own.keys() and _no_stricter(
        w.statement.condition, mine, r.statement.condition, yours
    )


def _renaming(u: _Use) -> dict[str, Index]:
    """Iterators as loop variables (plain loops only)."""
    out: dict[str, Index] = {}
    for loop in u.loops:
        v = u.statement.iterator(loop.value(u.statement.name))
        if v is not None:
            out[v] = var(loop.variable)
    return out


def _ranges(u: _Use) -> dict[str, Range]:
    out: dict[str, Range] = {}
    for loop in u.loops:
        v = u.statement.iterator(loop.value(u.statement.name))
        if v is not None:
            out[loop.variable] = u.statement.range_of(v)
    return out


def _within(b: Index, own: Range, ranges: Mapping[str, Range]) -> bool:
    """`b` is a loop variable with the same bounds."""
    return any(
        b == var(v) and (x.lower, x.upper) == (own.lower, own.upper) for v, x in ranges.items()
    )


def _no_stricter(
    c: Condition, mine: dict[str, Index], other: Condition, yours: dict[str, Index]
) -> bool:
    return c == TRUE or condition_substitute(c, mine) == condition_substitute(other, yours)


# ---- by isl


def _fed_depth(writes: list[_Use], r: _Use, least: int, most: int, relations: Relations) -> int:
    """Within one iteration of that many loops (least … most) all that `r` reads was written."""
    certain = [w for w in writes if not w.statement.positions]
    exact = [w for w in certain if relations.is_exact(w.statement, w.access)]
    read = _inside_tensor(relations.access(r.statement, r.access), r.access, relations)
    for depth in range(most, least, -1):
        fed = [m for w in exact if (m := _fed(w, r, depth, relations)) is not None]
        if fed and read.is_subset(reduce(lambda a, b: a.union(b), fed)):
            return depth
    return least


def _inside_tensor(read: isl.Map, access: Access, relations: Relations) -> isl.Map:
    """A gather reads inside the tensor."""
    tensor = relations.scop.tensor(access.tensor)
    if all(s is not None for s in access.subscripts):
        return read
    names = [f"c{k}" for k in range(len(tensor.shape))]
    box = all_of(
        c
        for name, extent in zip(names, tensor.shape)
        for c in (ge(var(name), 0), lt(var(name), extent))
    )
    return read.intersect_range(relations.presburger.set(tensor.name, names, box))


def _fed(w: _Use, r: _Use, depth: int, relations: Relations) -> isl.Map | None:
    """{ instance of r -> element that w wrote before it, in one iteration of `depth` loops }"""
    pairs = isl.Map.from_domain_and_range(
        relations.domain(r.statement), relations.domain(w.statement)
    )
    before: list[isl.Map] = []
    for k, loop in enumerate(w.loops[: _common(w, r)]):
        i, j = r.along(loop), w.along(loop)
        if i < 0 or j < 0:
            return None
        if k >= depth:
            before.append(pairs.order_gt(IN, i, OUT, j))
        pairs = pairs.equate(IN, i, OUT, j)
    if w.position < r.position:
        before.append(pairs)
    if not before:
        return None
    write = relations.access(w.statement, w.access)
    return reduce(lambda a, b: a.union(b), before).apply_range(write)
