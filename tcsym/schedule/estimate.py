# SPDX-License-Identifier: Apache-2.0
"""Mapped loops, many choices of sizes -> the estimated time at each, in sixteenths of a cycle.

What `analysis.cost` bounds over sizes for loops of threads, this evaluates for whole kernels at
given sizes: which version a launch chooses, how often each loop runs, how full its last tile is.
It knows no memory, so it ranks codes of one program, and does not time them. A loop's first and its
last iteration are looked at; those between count as the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from tcsym.index.columns import Column, Columns, Integers
from tcsym.index.expr import condition_variables
from tcsym.ir.device import DeviceNode, not_on_a_cpu
from tcsym.ir.loops import (
    THREADS,
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
from tcsym.ir.traverse import walk
from tcsym.schedule.analysis.cost import PLAIN, STEP, TRANSPOSED, Copies, Costs, is_copied
from tcsym.target.machine import Machine

Figures = NDArray[np.float64]

_ENTRY, _LAUNCH = 64, 200  # of a loop, and of one whose iterations may go to threads
_BRANCH = 16


def estimated(kernel: Kernel, machine: Machine, sizes: Mapping[str, Integers]) -> Figures:
    """Estimated time of a call at each choice of sizes, and of THREADS if these are not one; arrays
    of equal length, one a size."""
    n = len(next(iter(sizes.values()))) if sizes else 1
    known = {name: Column(np.zeros(1, np.int64)) for name in kernel.launched}
    known[THREADS] = Column(np.ones(1, np.int64))
    known |= {name: Column(values.astype(np.int64)) for name, values in sizes.items()}
    found = _Estimate(kernel, machine).node(kernel.body, Columns(known), None, ())
    return np.broadcast_to(np.asarray(found, np.float64), (n,)).copy()


class _Estimate:
    """Of one kernel. What equal values of its variables make of a node is computed once."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        self.costs = Costs.of(kernel, machine)
        self.read: dict[int, frozenset[str]] = {}
        self.known: dict[tuple[object, ...], Figures | float] = {}

    def node(
        self, n: Node, values: Columns, loop: str | None, tile: tuple[Copies, ...]
    ) -> Figures | float:
        match n:
            case Store() | Update() | Verify():
                return self.costs.of_statement(n, loop, tile)
            case Loop() | Branch():
                key = (id(n), loop, tile, *values.of_names(self._read(n)))
                if key not in self.known:
                    self.known[key] = (
                        self._loop(n, values, loop, tile)
                        if isinstance(n, Loop)
                        else self._branch(n, values, loop, tile)
                    )
                return self.known[key]
            case Block(body):
                return sum((self.node(x, values, loop, tile) for x in body), 0.0)
            case Allocate(_, body):
                return self.node(body, values, loop, tile)
            case TransposeBlock():
                return TRANSPOSED * n.height * n.block
            case Prefetch():
                return PLAIN
            case DeviceNode():
                raise not_on_a_cpu(n)
            case _:
                assert_never(n)

    def _loop(
        self, n: Loop, values: Columns, loop: str | None, tile: tuple[Copies, ...]
    ) -> Figures | float:
        if n.kind in ("vector", "unrolled") and is_copied(n):
            return self.node(n.body, values, loop, (*tile, Copies.of(n)))
        start = values.of(n.lower)
        trips = np.maximum(values.of(n.upper).array - start.array, 0)
        if n.at is not None:  # one of them runs
            trips = np.minimum(trips, 1)
        step = STEP / n.unroll
        first = self.node(n.body, values.with_variable(n.variable, start), n.variable, ()) + step
        total = trips * first
        if n.variable in self._read(n.body):
            end = Column(start.array + np.maximum(trips - 1, 0))
            last = self.node(n.body, values.with_variable(n.variable, end), n.variable, ()) + step
            total = total + np.minimum(trips, 1) * (last - first)
        entry = _LAUNCH if n.kind == "parallel" else _ENTRY
        return np.asarray(total * prod(x.count for x in tile) + entry, np.float64)

    def _branch(
        self, n: Branch, values: Columns, loop: str | None, tile: tuple[Copies, ...]
    ) -> Figures | float:
        then = self.node(n.then, values, loop, tile)
        orelse = 0.0 if n.orelse is None else self.node(n.orelse, values, loop, tile)
        if not values.know(condition_variables(n.condition)):  # of lanes: both arms take time
            return np.maximum(then, orelse) + _BRANCH
        return np.asarray(np.where(values.holds(n.condition), then, orelse) + _BRANCH)

    def _read(self, n: Node) -> frozenset[str]:
        """Variables on which it depends how long it takes."""
        if id(n) not in self.read:
            found = frozenset[str]()
            for x, _ in walk(n):
                if isinstance(x, Loop):
                    found |= x.lower.variables() | x.upper.variables()
                elif isinstance(x, Branch):
                    found |= condition_variables(x.condition)
            self.read[id(n)] = found
        return self.read[id(n)]
