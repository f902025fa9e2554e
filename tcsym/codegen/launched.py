"""Kernel, sizes -> the parallel loops that a call of these sizes may launch.

Conditions that depend on more than sizes (loop variables, addresses) may hold or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from tcsym.codegen.sizes import viewed_values
from tcsym.index import Condition
from tcsym.index_values import evaluate, holds
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
)


def launched(kernel: Kernel, sizes: Mapping[str, int]) -> Iterator[Loop]:
    """The outermost parallel loops that a call may come to; `sizes`: those the kernel is given."""
    values = dict(sizes)
    if kernel.view is not None:
        viewed = viewed_values(kernel.view)
        values |= {name: evaluate(e, sizes) for name, e in viewed.items()}
    yield from _launched(kernel.body, values)


def _launched(n: Node, values: Mapping[str, int]) -> Iterator[Loop]:
    match n:
        case Loop():
            if not _is_empty(n, values):
                if n.kind == "parallel":
                    yield n
                else:
                    yield from _launched(n.body, values)
        case Branch(c, then, orelse):
            held = _held(c, values)
            if held is not False:
                yield from _launched(then, values)
            if held is not True and orelse is not None:
                yield from _launched(orelse, values)
        case Block(body):
            for x in body:
                yield from _launched(x, values)
        case Allocate(_, body):
            yield from _launched(body, values)
        case Store() | Update() | Verify() | Prefetch() | TransposeBlock():
            pass
        case _:
            assert_never(n)


def _held(c: Condition, values: Mapping[str, int]) -> bool | None:
    """None where it depends on more than the values."""
    try:
        return holds(c, values)
    except KeyError:
        return None


def _is_empty(loop: Loop, values: Mapping[str, int]) -> bool:
    try:
        return evaluate(loop.upper, values) <= evaluate(loop.lower, values)
    except KeyError:
        return False
