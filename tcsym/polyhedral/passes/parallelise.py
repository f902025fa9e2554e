"""The outermost loops proved parallel -> loops on threads, with the work of an iteration."""

from __future__ import annotations

from dataclasses import replace

from tcsym.frontend.program import Call
from tcsym.index import ONE, ZERO, Index, index
from tcsym.loop_ir import (
    Allocate,
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Prefetch,
    Store,
    TransposeBlock,
    Update,
    Verify,
    block,
    map_node,
    subvalues,
)
from tcsym.polyhedral.passes.bounds import eliminate, extent, relax, trip_bound

CALL_OPERATIONS = 10


def parallelise(kernel: Kernel) -> Kernel:
    """Every outermost serial loop with order `parallel` gets kind `parallel`, and a work."""
    return replace(kernel, body=_outermost(kernel.body, frozenset(kernel.sizes)))


def without_work(node: Node) -> Node:
    """`node` with no work noted on its loops: passes change it, `parallelise` finds it anew."""
    return map_node(node, lambda x: replace(x, work=ONE) if isinstance(x, Loop) else x)


def is_free(loop: Loop) -> bool:
    """May become a loop on threads."""
    return loop.kind == "serial" and loop.order == "parallel"


def _outermost(node: Node, known: frozenset[str]) -> Node:
    match node:
        case Loop():
            if is_free(node) and extent(node) != ONE:
                work = loop_work((node,), known) if node.work == ONE else node.work
                return replace(node, kind="parallel", work=work)
            return replace(node, body=_outermost(node.body, known | {node.variable}))
        case Block(body):
            return block(*(_outermost(x, known) for x in body)) if body else node
        case Branch(c, a, b):
            return Branch(c, _outermost(a, known), b and _outermost(b, known))
        case Allocate(name, body):
            return Allocate(name, _outermost(body, known))
        case _:
            return node


def loop_work(loops: tuple[Loop, ...], known: frozenset[str]) -> Index:
    """Bound of the scalar operations of one iteration of a perfect chain.

    In the variables `known` around it.
    """
    total = operations(loops[-1].body, known | {x.variable for x in loops})
    return _without(total, loops, known)


def _without(total: Index, loops: tuple[Loop, ...], known: frozenset[str]) -> Index:
    if not total.variables() & {x.variable for x in loops}:
        return total
    bound = eliminate(total, loops, True)
    for most in (total, _increasing(total)):
        bound = bound if bound is not None else relax(most, known, True)
    return ONE if bound is None or not bound.variables() <= known else bound


def _increasing(e: Index) -> Index:
    """`e` without what it subtracts: extents are differences."""
    return Index(tuple((atom, c) for atom, c in e.terms if c > 0), max(0, e.constant))


def operations(node: Node, known: frozenset[str]) -> Index:
    """Bound of the scalar operations of `node`, in the variables `known` around it."""
    match node:
        case Store() | Update() | Verify():
            values = list(subvalues(node.value))
            calls = sum(isinstance(v, Call) for v in values)
            return index(len(values) + CALL_OPERATIONS * calls)
        case Loop():
            trips = relax(trip_bound(node), known, True) or ONE
            inner = operations(node.body, known | {node.variable})
            return _without(inner * trips, (node,), known)
        case Branch(_, a, b):
            then, orelse = operations(a, known), ZERO if b is None else operations(b, known)
            return then if then == orelse else then + orelse
        case Block(body):
            return sum((operations(x, known) for x in body), ZERO)
        case Allocate(_, body):
            return operations(body, known)
        case TransposeBlock():
            return index(node.block * node.block)
        case Prefetch():
            return ZERO
