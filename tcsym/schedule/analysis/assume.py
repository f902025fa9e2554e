# SPDX-License-Identifier: Apache-2.0
"""What the context says of sizes -> no branch that it decides, no minimum that it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from msgspec.structs import replace

from tcsym.frontend.program import Select
from tcsym.index.expr import FALSE, TRUE, Condition, Index
from tcsym.ir.device import DeviceNode
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Holds,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
    block,
)
from tcsym.ir.traverse import map_node
from tcsym.sizes.context import (
    Interval,
    Ranges,
    decided,
    interval,
    ranges_of,
    simplified,
    simplified_condition,
)


def assume(kernel: Kernel) -> Kernel:
    """The kernel for sizes in its context: what loop variables range over is followed inwards."""
    if not kernel.context:
        return kernel
    return replace(kernel, body=assumed(kernel.body, ranges_of(kernel.context)))


def in_context(kernel: Kernel, condition: Condition) -> Condition:
    """`condition` on sizes, as far as the kernel's context leaves it open."""
    if not kernel.context:
        return condition
    return decided(condition, ranges_of(kernel.context))


def assumed(n: Node, ranges: Ranges) -> Node:
    """`n` without what these ranges and those of its loops decide."""
    match n:
        case Block(body):
            return block(*(assumed(x, ranges) for x in body))
        case Loop():
            return _loop(n, ranges)
        case Branch(c, a, b):
            condition = simplified_condition(c, ranges)
            if condition == TRUE:
                return assumed(a, ranges)
            orelse = None if b is None else assumed(b, ranges)
            if condition == FALSE:
                return block() if orelse is None else orelse
            return Branch(condition, assumed(a, ranges), orelse)
        case Allocate(b, body):
            return Allocate(b, assumed(body, ranges))
        case Store() | Update() | Verify() | TransposeBlock() | DeviceNode():
            return map_node(n, None, _value(ranges), lambda i: simplified(i, ranges))
        case _:
            assert_never(n)


def _loop(n: Loop, ranges: Ranges) -> Node:
    lower, upper = simplified(n.lower, ranges), simplified(n.upper, ranges)
    low, high = interval(lower, ranges).low, interval(upper, ranges).high
    if low is not None and high is not None and high <= low:
        return block()
    inside = {**ranges, n.variable: Interval(low, None if high is None else high - 1)}
    mask = n.mask and _mask(n.mask, upper, ranges)
    body = assumed(n.body, inside)
    return replace(n, lower=lower, upper=upper, mask=mask, body=body)


def _mask(mask: Index, upper: Index, ranges: Ranges) -> Index | None:
    """None where no iteration is masked."""
    mask = simplified(mask, ranges)
    left = interval(mask - upper, ranges).low
    return None if left is not None and left >= 0 else mask


def _value(ranges: Ranges) -> Callable[[Value], Value]:
    def choose(v: Value) -> Value:
        if not (isinstance(v, Select) and isinstance(v.condition, Holds)):
            return v
        condition = decided(v.condition.condition, ranges)
        if condition in (TRUE, FALSE):
            return v.then if condition == TRUE else v.orelse
        return v

    return choose
