# SPDX-License-Identifier: Apache-2.0
"""Temporaries shrink to what one iteration of their private loops needs, and get a place."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import (
    ZERO,
    Index,
    condition_variables,
    maximum,
    minimum,
    of_atom,
    var,
    weighted_sum,
)
from tcsym.index.values import substitute
from tcsym.ir.bounds import eliminate, extent_from, relax
from tcsym.ir.loops import (
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Space,
    Store,
    TransposeBlock,
    Update,
    Value,
)
from tcsym.ir.traverse import allocated_in, map_node
from tcsym.mapping.tree import REGISTER_ELEMENTS, memory_for
from tcsym.schedule.analysis.access import Access, accesses, subscript_variables
from tcsym.schedule.analysis.touched import nodes_with, rewrite_uses, uses_in


class Hull(Struct, frozen=True):
    """What a dimension keeps: subscripts lose private terms, if `dropped`, and `base`."""

    base: Index
    extent: Index
    dropped: bool


def contract_storage(kernel: Kernel) -> Kernel:
    """Drop the terms of private loops from every temporary's subscripts, keep the hull of the rest.

    Buffers whose subscripts then consist of unrolled and vector variables become registers; small
    constant ones go on the stack, the rest stays in the arena. Needs `privatise`. Packed panels and
    accumulators of lanes already have their shape; what has a place has all.
    """
    placed = allocated_in(kernel.body)
    for b in kernel.buffers:
        if b.name in placed:
            continue
        if b.padded:
            kernel = kernel.with_buffer(replace(b, space=_space(b, kernel.body)))
        elif b.space == "arena":
            kernel = _contract_one(kernel, b)
    return kernel


Uses = tuple[tuple[Access, tuple[Loop, ...]], ...]


def _contract_one(kernel: Kernel, b: Buffer) -> Kernel:
    uses = tuple(uses_in(kernel.body, b.name))
    if not uses:
        return kernel
    sizes = frozenset(kernel.sizes)
    ranges = _Ranges(b, sizes)
    hulls = [_hull(b, d, uses, ranges) for d in range(len(b.shape))]
    kept = [d for d, h in enumerate(hulls) if h is None or h.extent.as_int() != 1]
    kept = _lanes_last(_with_lanes(b, kept, uses), uses)
    body = _rewrite(kernel.body, b, hulls, kept)
    extents = [b.shape[d] if h is None else h.extent for d, h in enumerate(hulls)]
    shape = tuple(extent_from(extents[d], sizes) for d in kept)
    small = replace(b, shape=shape, strides=None)
    space = _space(small, body)
    padded = space == "register" and not is_guarded(body, b.name)
    small = replace(small, space=space, padded=padded)
    return replace(kernel, body=body).with_buffer(small)


def _moves_in_lanes(b: Buffer, d: int, uses: Uses) -> bool:
    """Lanes or unrolled copies, perhaps masked ones beyond the extent, move along the dimension."""
    for a, around in uses:
        lanes = {x.variable for x in around if x.kind in ("vector", "unrolled")} - b.private
        if lanes & subscript_variables(a.subscripts[d : d + 1]):
            return True
    return False


def _with_lanes(b: Buffer, kept: list[int], uses: Uses) -> list[int]:
    """`kept` and what tells lanes apart: a vector of which one lane is used has elements, too."""
    for a, around in uses:
        lanes = {x.variable for x in around if x.kind == "vector"} - b.private
        moved = [d for d, s in enumerate(a.subscripts) if lanes & subscript_variables((s,))]
        if moved and not set(moved) & set(kept):
            kept = sorted({*kept, *moved})
    return kept


def _lanes_last(dimensions: list[int], uses: Uses) -> list[int]:
    """The dimensions with the one that lanes move in, if there is just one, at the end.

    Those that a block goes along stay in order.
    """
    if any(a.spans for a, _ in uses):
        return dimensions
    moved: set[int] = set()
    for a, around in uses:
        lanes = {x.variable for x in around if x.kind == "vector"}
        moved |= {d for d in dimensions if lanes & subscript_variables(a.subscripts[d : d + 1])}
    if len(moved) != 1:
        return dimensions
    return [*(d for d in dimensions if d not in moved), *moved]


def is_guarded(node: Node, buffer: str) -> bool:
    """Some write of the buffer happens in only some lanes, by a condition."""
    for x, around in nodes_with(node, buffer):
        lanes = {y.variable for y in around if y.kind in ("vector", "unrolled")}
        varies = isinstance(x, Branch) and lanes & condition_variables(x.condition)
        if varies and any(a.written and a.buffer == buffer for a in accesses(x)):
            return True
    return False


Range = tuple[Index, Index, Index]


class _Ranges:
    """Least and greatest values of a buffer's subscripts without private terms, found once each."""

    def __init__(self, b: Buffer, sizes: frozenset[str]) -> None:
        self._private = b.private
        self._sizes = sizes
        self._inner: dict[int, tuple[Loop, ...]] = {}
        self._found: dict[tuple[Index, int], Range | None] = {}

    def __call__(self, s: Index, around: tuple[Loop, ...]) -> Range | None:
        """With the private terms that were dropped; None: not bounded by sizes. Keep `around`."""
        key = s, id(around)
        if key not in self._found:
            self._found[key] = self._range(s, around)
        return self._found[key]

    def _range(self, s: Index, around: tuple[Loop, ...]) -> Range | None:
        rest = _drop(s, self._private)
        inner = self._inner.get(id(around))
        if inner is None:  # masked lanes count: a register has them all
            shared = [x for x in around if x.variable not in self._private]
            inner = tuple([x if x.mask is None else replace(x, mask=None) for x in shared])
            self._inner[id(around)] = inner
        low, high = eliminate(rest, inner, False), eliminate(rest, inner, True)
        low = None if low is None else relax(low, self._sizes, False)
        high = None if high is None else relax(high, self._sizes, True)
        return None if low is None or high is None else (low, high, s - rest)


def _hull(b: Buffer, d: int, uses: Uses, ranges: _Ranges) -> Hull | None:
    """What dimension d keeps; None: everything, with its subscripts as they are."""
    lows: list[Index] = []
    highs: list[Index] = []
    dropped = False
    parts: dict[frozenset[str], Index] = {}
    for a, around in uses:
        s = a.subscripts[d]
        if not isinstance(s, Index) or a.checks(d) or d in a.spans:
            return None
        found = ranges(s, around)
        if found is None or not _same_part(parts, found[2], around, b.private):
            return None
        lows.append(found[0])
        highs.append(found[1])
        dropped = dropped or found[2] != ZERO
    base, extent = minimum(*lows), maximum(*highs) - minimum(*lows) + 1
    known, declared = extent.as_int(), b.shape[d].as_int()
    larger = known is None or (declared is not None and declared <= known)
    # what is no register has masks where lanes are beyond its end
    has_all = known is not None and known <= REGISTER_ELEMENTS and _moves_in_lanes(b, d, uses)
    if not dropped and larger and not has_all:
        return Hull(ZERO, b.shape[d], False)
    return Hull(base, extent, dropped)


def _same_part(
    parts: dict[frozenset[str], Index],
    dropped: Index,
    around: tuple[Loop, ...],
    private: frozenset[str],
) -> bool:
    """All uses in the same private loops drop the same, which no other loop changes (lanes and
    copies may: another dimension keeps them). Else an element would be sought at another place.
    """
    used = dropped.variables()
    others = [x for x in around if x.variable in used - private]
    if any(x.kind in ("serial", "parallel") for x in others):
        return False
    same_lanes = {x.variable: var(f"lane {k}") for k, x in enumerate(others)}
    loops = frozenset(x.variable for x in around if x.variable in private)
    part = substitute(dropped, same_lanes)
    return parts.setdefault(loops, part) == part


def _drop(e: Index, private: frozenset[str]) -> Index:
    kept = [(of_atom(a), c) for a, c in e.terms]
    return weighted_sum([t for t in kept if not t[0].variables() & private], e.constant)


def _rewrite(node: Node, b: Buffer, hulls: list[Hull | None], kept: list[int]) -> Node:
    def one(s: Index, d: int) -> Index:
        hull = hulls[d]
        if hull is None:
            return s
        return (_drop(s, b.private) if hull.dropped else s) - hull.base

    def plain(subscripts: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(one(subscripts[d], d) for d in kept)

    def statement(x: Node) -> Node:
        if isinstance(x, Store | Update) and x.buffer == b.name:
            return replace(x, subscripts=plain(x.subscripts))
        if isinstance(x, TransposeBlock) and x.target == b.name:
            column = _place(x.target_column, len(b.shape), kept)
            x = replace(x, target_subscripts=plain(x.target_subscripts), target_column=column)
        if isinstance(x, TransposeBlock) and x.source == b.name:
            row = _place(x.source_row, len(b.shape), kept)
            x = replace(x, source_subscripts=plain(x.source_subscripts), source_row=row)
        return x

    def value(v: Value) -> Value:
        if not isinstance(v, Read) or v.tensor != b.name:
            return v
        old = v.subscripts
        new = tuple(one(s, d) if isinstance(s := old[d], Index) else s for d in kept)
        return replace(v, subscripts=new, checked=tuple(v.checked[d] for d in kept if v.checked))

    return rewrite_uses(node, b.name, lambda n: map_node(n, statement, value))


def _place(dimension: int, rank: int, kept: list[int]) -> int:
    """Where a kept dimension is now, both counted from the end."""
    return kept.index(dimension + rank) - len(kept)


def _space(b: Buffer, node: Node) -> Space:
    uses = list(uses_in(node, b.name))
    kinds = {x.variable: x.kind for _, around in uses for x in around}
    plain = all(
        isinstance(s, Index) and all(kinds.get(v) in ("unrolled", "vector") for v in s.variables())
        for a, _ in uses
        for s in a.subscripts
    )
    return memory_for(b, plain and not any(a.spans for a, _ in uses))
