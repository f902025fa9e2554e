# SPDX-License-Identifier: Apache-2.0
"""Nests that need nothing but constants -> a part of the kernel that runs when these are bound.

Partial evaluation by binding time: a temporary is bound if all that writes it are nests outside of
loops that read constants and bound temporaries only, over sizes that the constants' shapes tell.
Packed panels of a constant operand are such, once they are made before all loops.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import (
    FALSE,
    ONE,
    ZERO,
    Condition,
    Index,
    all_of,
    any_of,
    choose,
    condition_variables,
    eq,
    negate,
    var,
)
from tcsym.ir.allocate import buffer_bytes
from tcsym.ir.compiled import BINDING
from tcsym.ir.loops import Allocate, Block, Branch, Kernel, Node, Verify, block
from tcsym.ir.traverse import allocated_in, map_node, walk
from tcsym.schedule.analysis.access import accesses

_AT_BINDING = eq(var(BINDING), ONE)
_NOTHING = Block(())


class _Nest(Struct, frozen=True):
    """A nest outside of loops, and the conditions around it."""

    node: Node
    guards: tuple[Condition, ...]


def _nests(node: Node, guards: tuple[Condition, ...] = ()) -> Iterator[_Nest]:
    match node:
        case Block(body):
            for x in body:
                yield from _nests(x, guards)
        case Branch(c, a, b):
            yield from _nests(a, (*guards, c))
            if b is not None:
                yield from _nests(b, (*guards, negate(c)))
        case Allocate(_, body):
            yield from _nests(body, guards)
        case _:
            yield _Nest(node, guards)


def bound_buffers(kernel: Kernel) -> frozenset[str]:
    """The temporaries that a run at binding may fill. `kernel`: without allocations."""
    if not kernel.constants:
        return frozenset()
    sizes = _sizes_of_constants(kernel)
    placed = allocated_in(kernel.body)
    free = [b for b in kernel.buffers if b.space == "arena" and b.name not in placed]
    arena = [b for b in free if not b.private]
    shaped = frozenset(b.name for b in arena if _variables(*b.shape) <= sizes)
    return _filled_by_constants(kernel, shaped, sizes)


def _sizes_of_constants(kernel: Kernel) -> frozenset[str]:
    """Those that are known once the constants are."""
    known = [kernel.buffer(n) for n in kernel.constants]
    extents = [e for b in known for e in (*b.shape, *(b.strides or ()))]
    return frozenset(n for e in extents for n in e.variables() if e == var(n))


def _variables(*indices: Index) -> frozenset[str]:
    return frozenset[str]().union(*(e.variables() for e in indices))


def _filled_by_constants(
    kernel: Kernel, candidates: frozenset[str], sizes: frozenset[str]
) -> frozenset[str]:
    """Those of the candidates that only nests of constants write. sizes: those that such a nest may
    depend on."""
    nests = list(_nests(kernel.body))
    moving = frozenset((*kernel.sizes, *kernel.launched)) - sizes
    found = candidates & frozenset(n for x in nests for n in _written(x.node))
    while True:
        bound = found | frozenset(kernel.constants)
        others = [x for x in nests if not _is_bound(x, bound, moving, frozenset(kernel.sizes))]
        left = found - frozenset(n for x in others for n in _written(x.node))
        if left == found:
            return found
        found = left


def _written(node: Node) -> frozenset[str]:
    return frozenset(a.buffer for a in accesses(node) if a.written)


def _is_bound(
    nest: _Nest, bound: frozenset[str], moving: frozenset[str], sizes: frozenset[str]
) -> bool:
    """It touches nothing else, cannot fail, and its conditions are known before a call runs."""
    if not condition_variables(all_of(nest.guards)) <= sizes:
        return False
    if any(isinstance(x, Verify) for x, _ in walk(nest.node)):
        return False
    if any(a.buffer not in bound or any(a.checked) for a in accesses(nest.node)):
        return False
    used = set[str]()

    def seen(e: Index) -> Index:
        used.update(e.variables())
        return e

    map_node(nest.node, on_index=seen)
    return not used & moving


def bound_apart(kernel: Kernel, bound: frozenset[str]) -> Kernel:
    """The kernel whose nests that fill `bound` run at binding, and all others in calls."""
    body, used = kernel.body, frozenset((*kernel.sizes, *kernel.launched))
    bound = _filled_by_constants(kernel, bound, used)
    if not bound:
        return kernel
    filling, calling = _parts(body, bound)
    held = tuple(b.name for b in kernel.buffers if b.name in bound)
    buffers = tuple(replace(b, space="argument") if b.name in bound else b for b in kernel.buffers)
    return replace(
        kernel,
        body=Branch(_AT_BINDING, filling, calling),
        sizes=(*kernel.sizes, BINDING),
        arguments=(*kernel.arguments, *held),
        buffers=buffers,
        held=held,
    )


def _parts(node: Node, bound: frozenset[str]) -> tuple[Node, Node]:
    """What fills `bound`, and the rest."""
    match node:
        case Block(body):
            parts = [_parts(x, bound) for x in body]
            return block(*[a for a, _ in parts]), block(*[b for _, b in parts])
        case Branch(c, a, b):
            then = _parts(a, bound)
            orelse = (_NOTHING, _NOTHING) if b is None else _parts(b, bound)
            return _branch(c, then[0], orelse[0]), _branch(c, then[1], orelse[1])
        case _:
            return (node, _NOTHING) if _written(node) & bound else (_NOTHING, node)


def _branch(c: Condition, then: Node, orelse: Node) -> Node:
    return _NOTHING if then == orelse == _NOTHING else Branch(c, then, orelse)


def held_bytes(kernel: Kernel) -> tuple[tuple[str, Index], ...]:
    """Bytes of each of `held`: none with sizes at which no run at binding fills it."""
    if not kernel.held:
        return ()
    branches = (x for x, _ in walk(kernel.body) if isinstance(x, Branch))
    part = next(x for x in branches if x.condition == _AT_BINDING)
    filled: dict[str, Condition] = {}
    for nest in _nests(part.then):
        for n in _written(nest.node):
            filled[n] = any_of((filled.get(n, FALSE), all_of(nest.guards)))
    most = {n: buffer_bytes(kernel.buffer(n)) for n in kernel.held}
    return tuple([(n, choose(filled[n], bytes_, ZERO)) for n, bytes_ in most.items()])
