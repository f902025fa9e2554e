# SPDX-License-Identifier: Apache-2.0
"""Mapped loops -> how often a call executes instructions of each kind, as a program in its sizes.

The loops that would run are walked, whatever plan made them: the version that a size takes, how
often each loop runs, how full its last tile is, copies of operands. Of a loop whose body depends on
its variable the first and the last iteration are looked at, which ends and borders make others, and
three of those between: by Simpson's rule these are right where work grows as in triangles. What
data decide is counted for both: the arms of a choice, and one step of a range.

There is one walk. It writes a straight-line program of counts by kind, or, at prices, of
nanoseconds; that is evaluated at many sizes at once, or compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from math import prod
from typing import Any, cast

import numpy as np

from tcsym.cost.statements import EMPTY, Copies, Leaf, Machinery, is_copied
from tcsym.cost.terms import TERMS, Counts, counts, prices_of
from tcsym.cost.traffic import Traffic
from tcsym.index.expr import all_of, condition_variables, ge
from tcsym.index.straight_line import Numbers, Writer, Written
from tcsym.ir.device import not_on_a_cpu
from tcsym.ir.loops import (
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
from tcsym.options import Options
from tcsym.target.machine import Machine

_ENTRY, _LAUNCH, _BRANCH = counts(entry=1), counts(launch=1), counts(branch=1)
_CALL, _AWAITED, _AGAIN = counts(call=1), counts(awaited=1), counts(again=1)
_THREAD_WORK = 2700  # nanoseconds of work for which a loop takes a thread
_SHARED_LOOPS = Options().parallel_loops  # that nest, whose iterations threads share
Weigh = Callable[[Counts], Any]  # counts of one thing -> what is summed up


def counted(kernel: Kernel, machine: Machine, sizes: Mapping[str, Any]) -> Counts:
    """Rows of counts by `TERMS`, one for each choice of sizes, and of THREADS if these are not one;
    arrays of equal length, one a size. What the kernel chooses is the cheapest, if it is not given.
    The work is that of all threads together.
    """
    return _at(kernel, machine, sizes, lambda found: found, len(TERMS))


def nanoseconds(kernel: Kernel, machine: Machine, sizes: Mapping[str, Any]) -> Counts:
    """What a call takes at each choice of sizes by the machine's prices."""
    return _at(kernel, machine, sizes, priced(machine), 1)[:, 0]


def priced(machine: Machine) -> Weigh:
    prices = prices_of(machine)
    return lambda counts: float(counts @ prices)


def _at(
    kernel: Kernel, machine: Machine, sizes: Mapping[str, Any], weigh: Weigh, width: int
) -> Numbers:
    sizes = {**_chosen(kernel, sizes), **sizes}
    writer = Writer(sizes)
    known = {v: writer.constant(0) for v in kernel.launched}
    known |= {THREADS: writer.constant(1)} | writer.variables
    walker = Walk(kernel, machine, writer, weigh)
    total = walker.of_call(kernel.body, known)
    n = len(next(iter(sizes.values()))) if sizes else 1
    return np.broadcast_to(writer.columns[total], (n, width)).copy()


def _chosen(kernel: Kernel, sizes: Mapping[str, Any]) -> dict[str, Numbers]:
    """The cheapest versions of all choices that sizes do not tell."""
    values, found = {THREADS: 1, **sizes}, dict[str, Numbers]()
    for c in kernel.choices:
        costs = np.broadcast_arrays(*c.costs.evaluate(values))
        found[c.variable] = np.argmin([x[:, 0] for x in costs], 0)
    return found


def _last(n: Node) -> Node:
    """What copies stand in front of, which threads make each for themselves."""
    n = n.body if isinstance(n, Allocate) else n
    return n.body[-1] if isinstance(n, Block) and n.body else n


class Walk:
    """Of one kernel. What equal parts for its variables make of a node is written once.

    on_threads: outermost loops whose iterations threads may share take the time of the thread that
    has most of them; else, or where THREADS is not known, the work of all threads counts.
    """

    on_threads = False

    def __init__(self, kernel: Kernel, machine: Machine, writer: Writer, weigh: Weigh) -> None:
        self.kernel, self.machine = kernel, machine
        self.machinery = Machinery.of(kernel, machine)
        self.writer, self.weigh = writer, weigh
        self.leaves: dict[tuple[object, ...], Leaf] = {}
        self.read: dict[int, frozenset[str]] = {}
        self.names: dict[int, tuple[str, ...]] = {}
        self.copied: dict[int, bool] = {}
        self.known: dict[tuple[object, ...], int | Leaf] = {}
        self.together: dict[tuple[int, ...], Leaf] = {}
        self.costs: dict[tuple[int, float], tuple[Leaf, int]] = {}

    def of_call(self, n: Node, known: Mapping[str, int]) -> int:
        """With what it takes to call, and to wait for memory."""
        w = self.writer
        lines = Traffic(self.kernel, self.machine, w).of_call(n, known)
        total = w.add(self.walked(n, known), self.weighed(_CALL))
        for each, price in zip(lines, (_AWAITED, _AGAIN)):
            total = w.add(total, w.multiply(each, self.weighed(price)))
        return total

    def walked(self, n: Node, known: Mapping[str, int]) -> int:
        return self.closed(self.node(n, Written(self.writer, known), None, ()))

    def node(
        self, n: Node, values: Written, loop: str | None, tile: tuple[Copies, ...]
    ) -> int | Leaf:
        """A leaf if there is no loop and nothing to choose."""
        match n:
            case TransposeBlock() if not self.machinery.has_masks:
                return self._clipped(n, values)
            case Store() | Update() | Verify() | TransposeBlock():
                place = id(n), loop, tile
                if place not in self.leaves:
                    self.leaves[place] = self.machinery.leaf(n, loop, tile)
                return self.leaves[place]
            case Loop() | Branch() | Block():
                key = (id(n), loop, tile, *values.parts_of(self._names(n)))
                if key not in self.known:
                    self.known[key] = self._found(n, values, loop, tile)
                return self.known[key]
            case Allocate(_, body):
                return self.node(body, values, loop, tile)
        raise not_on_a_cpu(n)

    def _clipped(self, n: TransposeBlock, values: Written) -> int:
        """A block, and more if some of its rows or columns are not there."""
        whole = self.closed(self.machinery.leaf(n, None, ()))
        ragged = self.writer.add(whole, self.weighed(self.machinery.clipped(n)))
        condition = all_of((ge(n.rows, n.block), ge(n.columns, n.block)))
        if not values.know(condition_variables(condition)):
            return whole
        return self.writer.choose(values.condition(condition), whole, ragged)

    def _found(
        self, n: Loop | Branch | Block, values: Written, loop: str | None, tile: tuple[Copies, ...]
    ) -> int | Leaf:
        match n:
            case Loop() if self.on_threads and loop is None and n.order == "parallel":
                return self._shared(n, values, self.closed(self._loop(n, values, loop, tile)))
            case Loop():
                return self._loop(n, values, loop, tile)
            case Branch():
                return self._branch(n, values, loop, tile)
            case Block(body):
                return self._block([self.node(x, values, loop, tile) for x in body])

    def weighed(self, found: Counts) -> int:
        return self.writer.constant(self.weigh(found))

    def closed(self, x: int | Leaf) -> int:
        return self._of_leaf(x, 0) if isinstance(x, Leaf) else x

    def _of_leaf(self, leaf: Leaf, step: float) -> int:
        """An iteration with a part of a step, or all of it where there is no loop."""
        key = id(leaf), step
        if key not in self.costs:
            found = leaf.once()
            if step:
                found = leaf.iteration(self.machinery.registers) + counts(step=step)
            self.costs[key] = leaf, self.weighed(found)
        return self.costs[key][1]

    def _block(self, parts: list[int | Leaf]) -> int | Leaf:
        leaves = [x for x in parts if isinstance(x, Leaf)]
        loops = [x for x in parts if not isinstance(x, Leaf)]
        key = tuple(map(id, leaves))
        if key not in self.together:
            self.together[key] = leaves[0] if len(leaves) == 1 else Leaf.together(leaves)
        leaf = self.together[key]
        return reduce(self.writer.add, loops, self.closed(leaf)) if loops else leaf

    def _loop(
        self, n: Loop, values: Written, loop: str | None, tile: tuple[Copies, ...]
    ) -> int | Leaf:
        w = self.writer
        if n.kind in ("vector", "unrolled") and self._is_copied(n):
            lane = values.with_variable(n.variable, w.constant(0))
            return self.node(n.body, lane, loop, (*tile, Copies.of(n)))
        is_found = n.value is not None or n.at is not None
        start = w.constant(0) if is_found else values.index(n.lower)
        trips = w.constant(1)
        if not is_found:
            trips = w.greatest(w.less(values.index(n.upper), start), w.constant(0))
        step = 1 / max(1, n.unroll)
        before = self.weighed(_LAUNCH if n.kind == "parallel" else _ENTRY)

        def body(iteration: int) -> int | Leaf:
            at = w.add(start, iteration)
            return self.node(n.body, values.with_variable(n.variable, at), n.variable, ())

        first = body(w.constant(0))
        if isinstance(first, Leaf):
            each = w.multiply(trips, self._of_leaf(first, step))
            once = w.multiply(self._some(trips), self.weighed(first.before))
            total = w.add(w.add(each, before), once)
        elif n.variable not in self._read(n.body):
            total = w.add(w.multiply(trips, w.add(first, self.weighed(counts(step=step)))), before)
        else:
            each = w.multiply(trips, self.weighed(counts(step=step)))
            total = w.add(w.add(each, before), self._all(trips, lambda i: self.closed(body(i))))
        return w.multiply(total, w.constant(prod(x.count for x in tile)))

    def _shared(self, n: Loop, values: Written, total: int) -> int:
        """What the thread takes that has most iterations, beside what it takes to begin others."""
        w, trips = self.writer, self.writer.constant(1)
        one, node = w.constant(1), cast(Node, n)
        for _ in range(_SHARED_LOOPS):
            if not isinstance(node, Loop) or node.order != "parallel" or node.kind != "serial":
                break
            if not values.know(node.end_variables):
                break
            extent = w.less(values.index(node.upper), values.index(node.lower))
            trips, node = w.multiply(trips, w.greatest(extent, one)), _last(node.body)
        most = w.greatest(w.quotient(total, w.constant(_THREAD_WORK)), one)
        threads = w.least(values.variable(THREADS), w.least(most, trips))
        rounds = w.quotient(w.add(trips, w.less(threads, one)), threads)
        begun = w.multiply(w.least(w.less(threads, one), one), self.weighed(_LAUNCH))
        return w.add(w.quotient(w.multiply(total, rounds), trips), begun)

    def _all(self, trips: int, of: Callable[[int], int]) -> int:
        """The sum of so many iterations, each of which may take another time.

        With two there is nothing between, where it counts nothing which is looked at: the first.
        """
        w = self.writer
        first = of(w.constant(0))
        last = w.greatest(w.less(trips, w.constant(1)), w.constant(0))
        inner = w.greatest(w.less(trips, w.constant(2)), w.constant(0))
        ends = w.add(w.multiply(self._some(trips), first), w.multiply(self._some(last), of(last)))
        middle = of(w.quotient(last, w.constant(2)))
        if middle == first:
            return w.add(ends, w.multiply(inner, first))
        second, before_last = of(w.least(w.constant(1), inner)), of(inner)
        between = w.add(w.add(second, before_last), w.multiply(w.constant(4), middle))
        return w.add(ends, w.multiply(w.multiply(inner, w.constant(1 / 6)), between))

    def _some(self, trips: int) -> int:
        """1 if there is an iteration."""
        return self.writer.least(trips, self.writer.constant(1))

    def _branch(
        self, n: Branch, values: Written, loop: str | None, tile: tuple[Copies, ...]
    ) -> int | Leaf:
        w = self.writer
        known = values.know(condition_variables(n.condition))
        truth = values.condition(n.condition) if known else None
        taken = None if truth is None else w.value(truth)
        arms = (n.then, n.orelse)
        then, orelse = (
            EMPTY if x is None or taken == 1 - which else self.node(x, values, loop, tile)
            for x, which in zip(arms, (1, 0), strict=True)
        )
        if truth is not None:
            cost = w.choose(truth, self.closed(then), self.closed(orelse))
            return w.add(cost, self.weighed(_BRANCH))
        if isinstance(then, Leaf) and isinstance(orelse, Leaf):
            return Leaf.together((then, orelse, Leaf(_BRANCH, counts())))
        return w.add(w.add(self.closed(then), self.closed(orelse)), self.weighed(_BRANCH))

    def _read(self, n: Node) -> frozenset[str]:
        """Variables on which it depends how long it takes."""
        found = self.read.get(id(n))
        if found is None:
            match n:
                case Loop():
                    found = n.end_variables | self._read(n.body)
                case Branch(condition, then, orelse):
                    found = condition_variables(condition) | self._read(then)
                    found |= frozenset() if orelse is None else self._read(orelse)
                case Block(body):
                    found = frozenset[str]().union(*map(self._read, body))
                case Allocate(_, body):
                    found = self._read(body)
                case TransposeBlock() if not self.machinery.has_masks:
                    found = n.rows.variables() | n.columns.variables()
                case _:
                    found = frozenset()
            self.read[id(n)] = found
        return found

    def _names(self, n: Node) -> tuple[str, ...]:
        found = self.names.get(id(n))
        if found is None:
            found = self.names[id(n)] = tuple(sorted(self._read(n)))
        return found

    def _is_copied(self, n: Loop) -> bool:
        if id(n) not in self.copied:
            self.copied[id(n)] = is_copied(n)
        return self.copied[id(n)]
