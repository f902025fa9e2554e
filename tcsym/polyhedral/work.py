"""Loop IR -> rough number of scalar operations, over sizes and outer loop variables."""

from __future__ import annotations

from typing import assert_never

from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    IndexValue,
    Read,
    Select,
    Unary,
)
from tcsym.index import ONE, ZERO, Index, index, substitute
from tcsym.loop_ir import (
    Allocate,
    Block,
    Branch,
    Holds,
    HorizontalReduce,
    Loop,
    Node,
    Prefetch,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
    value_children,
)

_CHEAP = frozenset({"fabs", "fmin", "fmax", "fma", "floor", "ceil", "trunc", "copysign", "sqrt"})
_TRANSCENDENTAL = 10


def node_work(n: Node) -> Index:
    match n:
        case Store(_, _, value) | Update(_, _, _, value):
            return index(1 + value_work(value))
        case Verify(value):
            return index(value_work(value))
        case Loop():
            extent = n.upper - n.lower
            inside = substitute(node_work(n.body), {n.variable: n.upper})
            return extent * inside
        case Branch(_, a, b):
            return node_work(a) if b is None else node_work(a) + node_work(b)
        case Block(body):
            return sum((node_work(x) for x in body), ZERO)
        case Allocate(_, body):
            return node_work(body)
        case Prefetch() | TransposeBlock():
            return ONE
        case _:
            assert_never(n)


def value_work(v: Value) -> int:
    below = sum(map(value_work, value_children(v)))
    match v:
        case Const() | IndexValue():
            return below
        case Call(function, _):
            return below + (1 if function in _CHEAP else _TRANSCENDENTAL)
        case HorizontalReduce():
            return below + v.width
        case Read() | Cast() | Unary() | Binary() | Compare() | Select() | Holds():
            return below + 1
        case _:
            assert_never(v)
