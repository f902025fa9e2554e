# SPDX-License-Identifier: Apache-2.0
"""Kernel, sizes -> the parallel or block loops that a call of these sizes may launch.

Conditions that depend on more than sizes (loop variables, addresses) may hold or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from msgspec import Struct

from tcsym.index.expr import Condition, Index
from tcsym.index.values import evaluate, holds
from tcsym.ir.device import DeviceNode
from tcsym.ir.loops import (
    LAUNCHED,
    THREADS,
    Allocate,
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Verify,
)
from tcsym.process.threads import get_num_threads


def launched(kernel: Kernel, sizes: Mapping[str, int]) -> Iterator[Loop]:
    """The outermost loops to launch that a call may come to; `sizes`: those the kernel is given."""
    values = {**sizes, **chosen(kernel, sizes)}
    yield from {id(x): x for x in _Given(values, {}).launched(kernel.body)}.values()


def chosen(kernel: Kernel, values: Mapping[str, int]) -> dict[str, int]:
    """What a launch chooses by these sizes of the body, as far as they tell: on the threads that
    are said, or else on as many as calls have now."""
    found, given = dict[str, int](), {THREADS: get_num_threads(), **values}
    for c in kernel.choices:
        if given.keys() >= {*c.costs.variables}:
            costs = c.costs.at(given)
            found[c.variable] = costs.index(min(costs))
    return found


class _Given(Struct, frozen=True):
    """Sizes of the body, and the values of expressions found so far."""

    values: Mapping[str, int]
    found: dict[Index, int]

    def launched(self, n: Node) -> Iterator[Loop]:
        match n:
            case Loop():
                if not self.is_empty(n):
                    if n.kind in LAUNCHED:
                        yield n
                    else:
                        yield from self.launched(n.body)
            case Branch(c, then, orelse):
                held = self.held(c)
                if held is not False:
                    yield from self.launched(then)
                if held is not True and orelse is not None:
                    yield from self.launched(orelse)
            case Block(body):
                for x in body:
                    yield from self.launched(x)
            case Allocate(_, body):
                yield from self.launched(body)
            case Store() | Update() | Verify() | TransposeBlock() | DeviceNode():
                pass
            case _:
                assert_never(n)

    def held(self, c: Condition) -> bool | None:
        """None where it depends on more than the sizes."""
        try:
            return holds(c, self.values, self.found)
        except KeyError:
            return None

    def is_empty(self, loop: Loop) -> bool:
        try:
            upper = evaluate(loop.upper, self.values, self.found)
            return upper <= evaluate(loop.lower, self.values, self.found)
        except KeyError:
            return False
