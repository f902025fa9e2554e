# SPDX-License-Identifier: Apache-2.0
"""Which versions of a nest are worth making, and what each costs at the sizes of a call.

The sizes of a nest are sampled as calls may have them: each log-uniform in the kernel's context, or
small; no argument empty; not too many points. At the samples the costs of all versions are counted;
kept are those without which calls would take longer in the geometric mean.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from tcsym.cost.counting import Walk, priced
from tcsym.index.expr import TRUE, Condition, Index, condition_variables
from tcsym.index.straight_line import Numbers, Writer, Written
from tcsym.index.values import evaluate
from tcsym.ir.loops import THREADS, Branch, Kernel, Loop, Node
from tcsym.ir.traverse import walk
from tcsym.sizes.context import Known
from tcsym.target.machine import Machine

SAMPLES = 192
CODE_PRICE = 0.05  # by how much less time in the mean goes with more loops, both as logarithms
WORST = 0.02  # of what is lost at the worst sizes, beside the mean
THREADS_OF_CALLS = (1, 2, 8, 16)
_MICROSECOND = 1e3
_DRAWS = 8 * SAMPLES
_LARGEST, _ALONE, _SMALL, _SELDOM = 4096, 1 << 24, 4, 0.2  # _ALONE: where there is no other
_EVEN = 0.25  # powers of two, of which tiles and panels are multiples, as others hardly are
_LEAST_POINTS, _MOST_POINTS = 8.0, 29.0  # as logarithms to base 2
_MOST_SCALE = 1.5


class Counting:
    """Costs of trees among buffers of a kernel, at samples of the sizes that they move with.

    on_threads: these share outermost loops; there are one or several in a call. common: numbers of
    some sizes that calls have together.
    """

    def __init__(
        self,
        kernel: Kernel,
        machine: Machine,
        sizes: frozenset[str],
        on_threads: bool = False,
        common: Iterable[Mapping[str, int]] = (),
    ) -> None:
        found = samples(kernel, sizes, common)
        if on_threads:
            found[THREADS] = np.array([THREADS_OF_CALLS[k % 4] for k in range(SAMPLES)], np.float64)
        self.writer = Writer(found)
        self._machine, self._weigh, self._on_threads = machine, priced(machine), on_threads
        self._known = {v: self.writer.constant(0) for v in kernel.launched}
        self._known |= {THREADS: self.writer.constant(1)} | self.writer.variables

    def cost(self, kernel: Kernel, tree: Node, others: Iterable[str], where: Condition) -> int:
        """Of a call of the tree alone, if the condition holds. others: loops that are around."""
        w, known = self.writer, {**dict.fromkeys(others, self.writer.constant(0)), **self._known}
        walker = Walk(replace(kernel, body=tree), self._machine, w, self._weigh)
        walker.on_threads = self._on_threads
        total = walker.of_call(tree, known)
        return w.choose(Written(w, known).condition(where), total, w.constant(math.inf))

    def with_share(self, cost: int, other: int, times: Index) -> int:
        """A cost, and another one once in so many times."""
        w = self.writer
        n = w.greatest(Written(w, self._known).index(times), w.constant(1))
        return w.add(cost, w.quotient(other, n))

    def worth_making(
        self, costs: Sequence[int], always: Sequence[bool], loops: Sequence[int]
    ) -> list[int]:
        """Numbers of the versions to keep: those that together lose least, with the price of their
        loops. One of them always can be. From none, versions are taken, left out, and exchanged
        while that is better. Calls count by how long they take."""
        found = (np.maximum(self.writer.columns[x][:, 0], 1) for x in costs)  # of no iteration
        logarithms = [np.broadcast_to(np.log(x), (SAMPLES,)) for x in found]
        least: Numbers = np.minimum.reduce(logarithms)
        weights = np.log1p(np.exp(least) / _MICROSECOND)

        def lost(kept: frozenset[int]) -> float:
            if not any(always[k] for k in kept):
                return math.inf
            more: Numbers = np.minimum.reduce([logarithms[k] for k in kept]) - least
            price = CODE_PRICE * math.log(1 + sum(loops[k] for k in kept))
            return float(np.average(more, weights=weights) + WORST * more.max()) + price

        best, kept = math.inf, frozenset[int]()
        while True:
            toggled = [kept ^ {k} for k in range(len(costs))]
            others = [kept ^ {k, n} for k in kept for n in range(len(costs)) if n not in kept]
            near = min((*toggled, *others), key=lost)
            if not lost(near) < best:
                return sorted(kept)
            best, kept = lost(near), near


def loops_of(tree: Node) -> int:
    """That are code by themselves: what a tree takes to compile goes with these."""
    return sum(isinstance(x, Loop) and x.kind not in ("vector", "unrolled") for x, _ in walk(tree))


def sizes_of(kernel: Kernel, tree: Node, where: Condition = TRUE) -> frozenset[str]:
    """Those on which it depends how long a tree takes, and whether the condition holds."""
    found = condition_variables(where)
    for x, _ in walk(tree):
        match x:
            case Loop():
                found |= x.end_variables
            case Branch():
                found |= condition_variables(x.condition)
    return found & frozenset(kernel.sizes)


def samples(
    kernel: Kernel, sizes: frozenset[str], common: Iterable[Mapping[str, int]] = (), seed: int = 0
) -> dict[str, Numbers]:
    """The same for equal sizes, contexts and shapes of arguments. common: numbers of some sizes
    that calls have together as often as any others."""
    context = {k.name: k for k in kernel.context}
    names = [name for name in kernel.sizes if name in sizes]
    known = tuple(context.get(name, Known(name, 1, None)) for name in names)
    shapes = (kernel.buffer(name).shape for name in kernel.arguments)
    moving = (e for shape in shapes for e in shape if not e.is_constant)
    extents = frozenset(e for e in moving if e.variables() <= sizes)
    often = (frozenset(), *(frozenset(c.items()) for c in common))
    return dict(zip(names, _sampled(known, extents, often, seed), strict=True))


@lru_cache(8)  # nests of the same sizes have the same
def _sampled(
    known: Sequence[Known],
    extents: frozenset[Index],
    common: Sequence[frozenset[tuple[str, int]]],
    seed: int,
) -> list[Numbers]:
    draw, rows = random.Random(seed), list[dict[str, int]]()
    for n in range(_DRAWS):
        row = {**_drawn(known, draw), **dict(common[len(rows) // 4 % len(common)])}
        is_last = n >= _DRAWS - SAMPLES + len(rows)  # enough, whatever they are
        if is_last or all(evaluate(e, row) > 0 for e in extents):
            rows.append(row)
        if len(rows) == SAMPLES:
            break
    return [np.array([r[k.name] for r in rows], np.float64) for k in known]


def _drawn(known: Sequence[Known], draw: random.Random) -> dict[str, int]:
    largest = _LARGEST if len(known) > 1 else _ALONE
    logs = [_logarithm(k, draw, largest) for k in known]
    points = draw.uniform(_LEAST_POINTS, _MOST_POINTS)
    scale = min(points / max(1.0, sum(logs)), _MOST_SCALE)
    logs = [x * scale for x in logs]
    if draw.random() < _EVEN:
        logs = [float(round(x)) for x in logs]
    return {k.name: _clipped(k, 2**x, largest) for k, x in zip(known, logs)}


def _logarithm(k: Known, draw: random.Random, largest: int) -> float:
    low = max(1, k.low)
    high = max(low, min(k.high or math.inf, max(largest, 16 * low)))
    if draw.random() < _SELDOM:
        high = min(high, low + _SMALL - 1)
    return draw.uniform(math.log2(low), math.log2(high + 1))


def _clipped(k: Known, value: float, largest: int) -> int:
    low, high = max(1, k.low), max(largest, 16 * k.low) if k.high is None else k.high
    found = int(max(low, min(high, value)))
    return max(k.step, found // k.step * k.step)
