"""The outermost loops proved parallel -> loops on threads, with the work that decides at run time."""

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
    subvalues,
)
from tcsym.polyhedral.passes.bounds import eliminate, extent

CALL_OPERATIONS = 10


def parallelise(kernel: Kernel) -> Kernel:
    """Every outermost serial loop with order `parallel` gets kind `parallel` and its work."""
    return replace(kernel, body=_outermost(kernel.body))


def _outermost(node: Node) -> Node:
    match node:
        case Loop():
            if node.kind == "serial" and node.order == "parallel" and extent(node) != ONE:
                return replace(node, kind="parallel", work=loop_work(node))
            return replace(node, body=_outermost(node.body))
        case Block(body):
            return block(*map(_outermost, body)) if body else node
        case Branch(c, a, b):
            return Branch(c, _outermost(a), b and _outermost(b))
        case Allocate(name, body):
            return Allocate(name, _outermost(body))
        case _:
            return node


def loop_work(loop: Loop) -> Index:
    """Scalar operations of one iteration, as a bound free of the variables of inner loops."""
    work = eliminate(operations(loop.body), (loop,), True)
    return ONE if work is None else work


def operations(node: Node) -> Index:
    """Scalar operations of `node`; free of the variables of loops inside it."""
    match node:
        case Store() | Update() | Verify():
            values = list(subvalues(node.value))
            calls = sum(isinstance(v, Call) for v in values)
            return index(len(values) + CALL_OPERATIONS * calls)
        case Loop():
            total = operations(node.body) * extent(node)
            bound = eliminate(total, (node,), True)
            return ONE if bound is None else bound
        case Branch(_, a, b):
            return operations(a) + (ZERO if b is None else operations(b))
        case Block(body):
            return sum((operations(x) for x in body), ZERO)
        case Allocate(_, body):
            return operations(body)
        case TransposeBlock():
            return index(node.block * node.block)
        case Prefetch():
            return ZERO
