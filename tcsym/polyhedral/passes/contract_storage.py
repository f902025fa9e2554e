"""Temporaries shrink to what one iteration of their private loops needs, and get a place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tcsym.frontend.program import Read
from tcsym.index import ZERO, Index, condition_variables, index, maximum, minimum, of_atom
from tcsym.loop_ir import (
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Prefetch,
    Space,
    Store,
    TransposeBlock,
    Update,
    Value,
    map_node,
    walk,
)
from tcsym.polyhedral.passes.access import accesses
from tcsym.polyhedral.passes.bounds import eliminate, relax
from tcsym.polyhedral.passes.loops import children

STACK_BYTES = 16 * 1024
REGISTER_ELEMENTS = 1024


@dataclass(frozen=True, slots=True)
class Hull:
    """What one dimension keeps: subscripts lose the private terms and `base`; `extent` remains."""

    base: Index
    extent: Index
    dropped: bool


def contract_storage(kernel: Kernel) -> Kernel:
    """Drop the terms of private loops from every temporary's subscripts, keep the hull of the rest.

    Buffers whose subscripts then consist of unrolled and vector variables become registers; small
    constant ones go on the stack, the rest stays in the arena. Needs `privatise`. Packed panels and
    accumulators of lanes already have their shape.
    """
    for b in kernel.buffers:
        if b.padded:
            kernel = kernel.with_buffer(replace(b, space=_space(b, kernel.body)))
        elif b.space == "arena":
            kernel = _contract_one(kernel, b)
    return kernel


def _uses(node: Node, buffer: str) -> Iterator[tuple[tuple[Index, ...], tuple[Loop, ...]]]:
    for x, around in walk(node):
        if isinstance(x, Store | Update | Prefetch | TransposeBlock) or not children(x):
            pass
        if isinstance(x, Loop) or _has_body(x):
            continue
        for a in accesses(x):
            if a.buffer == buffer:
                yield tuple(s if isinstance(s, Index) else ZERO for s in a.subscripts), around


def _has_body(x: Node) -> bool:
    from tcsym.loop_ir import Allocate, Block, Branch

    return isinstance(x, Block | Branch | Allocate)


def _contract_one(kernel: Kernel, b: Buffer) -> Kernel:
    uses = tuple(_uses(kernel.body, b.name))
    if not uses:
        return kernel
    sizes = frozenset(kernel.sizes)
    hulls = [_hull(b, d, uses, sizes) for d in range(len(b.shape))]
    kept = _lanes_last([d for d, h in enumerate(hulls) if h.extent.as_int() != 1], uses)

    def contract(subscripts: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(_without(subscripts[d], b.private, hulls[d]) for d in kept)

    body = _rewrite(kernel.body, b.name, contract)
    small = replace(b, shape=tuple(hulls[d].extent for d in kept), strides=None)
    space = _space(small, body)
    small = replace(
        small, space=space, padded=space == "register" and not _is_guarded(body, b.name)
    )
    return replace(kernel, body=body).with_buffer(small)


def _lanes_last(
    dimensions: list[int], uses: tuple[tuple[tuple[Index, ...], tuple[Loop, ...]], ...]
) -> list[int]:
    """The dimensions with the one that lanes move in, if there is just one, at the end."""
    moved: set[int] = set()
    for subscripts, around in uses:
        lanes = {x.variable for x in around if x.kind == "vector"}
        moved |= {d for d in dimensions if lanes & subscripts[d].variables()}
    if len(moved) != 1:
        return dimensions
    return [*(d for d in dimensions if d not in moved), *moved]


def _is_guarded(node: Node, buffer: str) -> bool:
    """Some write of the buffer happens in only some lanes, by a condition."""
    for x, around in walk(node):
        lanes = {y.variable for y in around if y.kind in ("vector", "unrolled")}
        if isinstance(x, Branch) and lanes & condition_variables(x.condition):
            if any(a.written and a.buffer == buffer for a in accesses(x)):
                return True
    return False


def _hull(
    b: Buffer,
    d: int,
    uses: tuple[tuple[tuple[Index, ...], tuple[Loop, ...]], ...],
    sizes: frozenset[str],
) -> Hull:
    whole = Hull(ZERO, b.shape[d], False)
    lows: list[Index] = []
    highs: list[Index] = []
    dropped = False
    for subscripts, around in uses:
        rest = _drop(subscripts[d], b.private)
        dropped = dropped or rest != subscripts[d]
        inner = tuple(x for x in around if x.variable not in b.private)
        low, high = eliminate(rest, inner, False), eliminate(rest, inner, True)
        low, high = low and relax(low, sizes, False), high and relax(high, sizes, True)
        if low is None or high is None:
            return whole
        lows.append(low)
        highs.append(high)
    base, extent = minimum(*lows), maximum(*highs) - minimum(*lows) + 1
    if not dropped and extent.as_int() is None:
        return whole
    if not dropped and (b.shape[d].as_int() or math.inf) <= (extent.as_int() or 0):
        return whole
    return Hull(base, extent, dropped)


def _drop(e: Index, private: frozenset[str]) -> Index:
    total = index(e.constant)
    for atom, c in e.terms:
        term = of_atom(atom)
        if not term.variables() & private:
            total = total + term * c
    return total


def _without(e: Index, private: frozenset[str], hull: Hull) -> Index:
    return (_drop(e, private) if hull.dropped else e) - hull.base


def _rewrite(node: Node, buffer: str, contract: object) -> Node:
    assert callable(contract)

    def statement(x: Node) -> Node:
        if isinstance(x, Store | Update | Prefetch) and x.buffer == buffer:
            return replace(x, subscripts=contract(x.subscripts))
        if isinstance(x, TransposeBlock) and x.target == buffer:
            x = replace(x, target_subscripts=contract(x.target_subscripts))
        if isinstance(x, TransposeBlock) and x.source == buffer:
            x = replace(x, source_subscripts=contract(x.source_subscripts))
        return x

    def value(v: Value) -> Value:
        if isinstance(v, Read) and v.tensor == buffer:
            return replace(v, subscripts=contract(v.subscripts), checked=())
        return v

    return map_node(node, statement, value)


def _space(b: Buffer, node: Node) -> Space:
    extents = [e.as_int() for e in b.shape]
    if any(e is None for e in extents):
        return "arena"
    count = math.prod(e or 0 for e in extents)
    kinds = {x.variable: x.kind for x, _ in walk(node) if isinstance(x, Loop)}
    used = {v for subs, _ in _uses(node, b.name) for s in subs for v in s.variables()}
    moved = any(
        isinstance(x, TransposeBlock) and b.name in (x.target, x.source) for x, _ in walk(node)
    )
    in_registers = all(kinds.get(v) in ("unrolled", "vector") for v in used)
    if in_registers and not moved and count <= REGISTER_ELEMENTS:
        return "register"
    return "stack" if count * b.dtype.bytes <= STACK_BYTES else "arena"
