# SPDX-License-Identifier: Apache-2.0
"""Mapped loops, many choices of sizes -> how often a call executes instructions of each kind.

The loops that would run are walked, whatever plan made them: the version that a size takes, how
often each loop runs, how full its last tile is, copies of operands. Of a loop whose body depends on
its variable the first and the last iteration are looked at, which ends and borders make others, and
three of those between: by Simpson's rule these are right where work grows as in triangles. What
data decide is counted for both: the arms of a choice, and one step of a range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from tcsym.cost.statements import Copies, Leaf, Machinery, is_copied
from tcsym.cost.terms import TERMS, Counts, counts, prices_of
from tcsym.index.columns import Column, Columns, Integers
from tcsym.index.expr import condition_variables
from tcsym.ir.device import not_on_a_cpu
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
from tcsym.target.machine import Machine

_ENTRY, _LAUNCH, _BRANCH = counts(entry=1), counts(launch=1), counts(branch=1)
_ZERO, _ONE = Column(np.zeros(1, np.int64)), Column(np.ones(1, np.int64))


def counted(kernel: Kernel, machine: Machine, sizes: Mapping[str, Integers]) -> Counts:
    """Rows of counts by `TERMS`, one for each choice of sizes, and of THREADS if these are not one;
    arrays of equal length, one a size. The work is that of all threads together.
    """
    n = len(next(iter(sizes.values()))) if sizes else 1
    known = {**dict.fromkeys(kernel.launched, _ZERO), THREADS: _ONE}
    known |= {name: Column(values.astype(np.int64)) for name, values in sizes.items()}
    walker = _Walk(kernel, machine)
    found = walker.closed(walker.node(kernel.body, Columns(known), None, ())) + counts(call=1)
    return np.broadcast_to(found, (n, len(TERMS))).copy()


def nanoseconds(kernel: Kernel, machine: Machine, sizes: Mapping[str, Integers]) -> Counts:
    """What a call takes at each choice of sizes by the machine's prices."""
    return np.asarray(counted(kernel, machine, sizes) @ prices_of(machine))


def _all(trips: Integers, of: Callable[[Integers], Counts]) -> Counts:
    """The sum of so many iterations, each of which may take another time."""
    last = np.maximum(trips - 1, 0)
    inner = np.maximum(trips - 2, 0)
    second, before_last = np.minimum(1, last), np.maximum(trips - 2, 0)
    middle = of(second) + 4 * of((second + before_last) // 2) + of(before_last)
    ends = (trips > 0)[:, None] * of(np.zeros(1, np.int64)) + (trips > 1)[:, None] * of(last)
    return np.asarray(ends + inner[:, None] * middle / 6)


class _Walk:
    """Of one kernel. What equal values of its variables make of a node is computed once."""

    def __init__(self, kernel: Kernel, machine: Machine) -> None:
        self.machinery = Machinery.of(kernel, machine)
        self.leaves: dict[tuple[object, ...], Leaf] = {}
        self.read: dict[int, frozenset[str]] = {}
        self.known: dict[tuple[object, ...], Counts | Leaf] = {}
        self.columns: dict[bytes, Column] = {}

    def node(
        self, n: Node, values: Columns, loop: str | None, tile: tuple[Copies, ...]
    ) -> Counts | Leaf:
        """A leaf if there is no loop and nothing to choose."""
        match n:
            case Store() | Update() | Verify() | Prefetch() | TransposeBlock():
                place = id(n), loop, tile
                if place not in self.leaves:
                    self.leaves[place] = self.machinery.leaf(n, loop, tile)
                return self.leaves[place]
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
                return self._block([self.node(x, values, loop, tile) for x in body])
            case Allocate(_, body):
                return self.node(body, values, loop, tile)
        raise not_on_a_cpu(n)

    def closed(self, x: Counts | Leaf) -> Counts:
        return x.once() if isinstance(x, Leaf) else x

    def _block(self, parts: list[Counts | Leaf]) -> Counts | Leaf:
        leaf = Leaf.together(x for x in parts if isinstance(x, Leaf))
        loops = [x for x in parts if not isinstance(x, Leaf)]
        return sum(loops, leaf.once()) if loops else leaf

    def _loop(
        self, n: Loop, values: Columns, loop: str | None, tile: tuple[Copies, ...]
    ) -> Counts | Leaf:
        if n.kind in ("vector", "unrolled") and is_copied(n):
            lane = values.with_variable(n.variable, _ZERO)
            return self.node(n.body, lane, loop, (*tile, Copies.of(n)))
        is_found = n.value is not None or n.at is not None
        start = _ZERO if is_found else values.of(n.lower)
        trips = np.ones(1, np.int64)
        if not is_found:
            trips = np.maximum(values.of(n.upper).array - start.array, 0)
        step, times = counts(step=1 / max(1, n.unroll)), trips[:, None]
        before = _LAUNCH if n.kind == "parallel" else _ENTRY

        def body(iteration: Integers) -> Counts | Leaf:
            at = self._column(start.array + iteration)
            return self.node(n.body, values.with_variable(n.variable, at), n.variable, ())

        first = body(np.zeros(1, np.int64))
        if isinstance(first, Leaf):
            total = times * (first.iteration() + step) + before + (times > 0) * first.before
        elif n.variable not in self._read(n.body):
            total = times * (first + step) + before
        else:
            total = times * step + before + _all(trips, lambda i: self.closed(body(i)))
        return np.asarray(total * prod(x.count for x in tile))

    def _branch(
        self, n: Branch, values: Columns, loop: str | None, tile: tuple[Copies, ...]
    ) -> Counts | Leaf:
        then = self.node(n.then, values, loop, tile)
        empty = Leaf.together(())
        orelse = empty if n.orelse is None else self.node(n.orelse, values, loop, tile)
        if values.know(condition_variables(n.condition)):
            holds = values.holds(n.condition)[:, None]
            return np.where(holds, self.closed(then), self.closed(orelse)) + _BRANCH
        if isinstance(then, Leaf) and isinstance(orelse, Leaf):
            return Leaf.together((then, orelse, Leaf(_BRANCH, counts())))
        return self.closed(then) + self.closed(orelse) + _BRANCH

    def _column(self, values: Integers) -> Column:
        """The same object for equal values, so that what they make is found again."""
        return self.columns.setdefault(values.tobytes(), Column(values))

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
