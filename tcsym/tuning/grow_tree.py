# SPDX-License-Identifier: Apache-2.0
"""What options lose at sizes -> a decision tree: grown fine, then pruned to what pays.

Cost-complexity pruning (Breiman, Friedman, Olshen and Stone, "Classification and Regression
Trees", 1984): a part of the tree stays if it saves enough for each of its splits together, so a
split that pays only with those below it is found, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tcsym.options import Options
from tcsym.tuning.tree import Leaf, Predicate, Split, Tree

Figures = NDArray[np.float64]
Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]
Sizes = NDArray[np.int64]

LARGEST = 10**6  # of a size that another is divided by
FILLED = (4, 6, 8, 16)  # elements, of what a last tile or vector is full of


class Question(Struct, frozen=True):
    """What a threshold is for: a product of sizes, by another one, or how full a last block is."""

    sizes: tuple[int, ...]
    divisor: int = 0
    other: tuple[int, ...] = ()

    def answers(self, values: Sizes) -> Figures:
        product = values[:, self.sizes].astype(np.float64).prod(axis=1)
        if self.divisor:
            return np.asarray((product - 1) % self.divisor)
        if not self.other:
            return np.asarray(product)
        by = values[:, self.other].astype(np.float64).prod(axis=1)
        return np.where(by > 0, product / np.maximum(by, 1), np.inf)

    def between(self, low: float, high: float) -> Predicate:
        """Holds for answers of `high` and more, not for `low` and less."""
        if self.divisor:
            return Predicate(self.sizes, int(high), self.divisor)
        if not self.other:
            return Predicate(self.sizes, least=_between(int(low), int(high)))
        share = _simplest(low, high)
        return Predicate(self.sizes, share.numerator, 0, self.other, share.denominator)


def questions(n: int) -> list[Question]:
    """About `n` sizes: the product of all (work), one, two, their ratio; the last block of each."""
    every = tuple(range(n))
    found = [Question(every)] * (n > 1) + [Question((k,)) for k in every]
    found += [Question(pair) for pair in combinations(every, 2)] if n > 2 else []
    found += [Question((a,), other=(b,)) for a, b in combinations(every, 2)]
    return found + [Question((k,), divisor=d) for k in every for d in FILLED]


class Node(Struct, frozen=True):
    """`loss`: with one leaf here. weight, n_sizes: of the sizes that come here. No test: a leaf."""

    options: Options
    loss: float
    weight: float
    n_sizes: int
    test: Predicate | None = None
    below: tuple[Node, ...] = ()


class Ground(Struct, frozen=True):
    """What a tree is grown on, sizes by options, the default first.

    logs: of times by the default's. loss: how bad that is, weighted.
    """

    options: tuple[Options, ...]
    values: Sizes
    logs: Matrix
    loss: Matrix
    weights: Figures


def grown(ground: Ground, depth: int, least: int) -> Node:
    """As deep as it gets; leaves have at least so many sizes."""
    asked = questions(ground.values.shape[1])
    answers = np.array([q.answers(ground.values) for q in asked])
    every = np.arange(len(ground.values))

    def grow(rows: Rows, depth: int) -> Node:
        node = _leaf(ground, rows)
        possible = float(ground.loss[rows].min(axis=1).sum())
        if depth == 0 or len(rows) < 2 * least or node.loss <= possible:
            return node
        found = _best_split(ground.loss[rows], answers[:, rows], least)
        if found is None:
            return node
        k, low, high = found
        holds = answers[k][rows] >= high
        below = grow(rows[holds], depth - 1), grow(rows[~holds], depth - 1)
        test = asked[k].between(low, high)
        return Node(node.options, node.loss, node.weight, node.n_sizes, test, below)

    return grow(every, depth)


def pruned(node: Node, needed: Callable[[Node], float]) -> Tree:
    """Without parts that save less than is needed for each split of theirs."""
    return _pruned(node, needed)[0]


def _pruned(node: Node, needed: Callable[[Node], float]) -> tuple[Tree, float, int]:
    """With its loss, and how many leaves it has."""
    leaf = Leaf(node.options)
    if node.test is None:
        return leaf, node.loss, 1
    (then, a, n), (orelse, b, m) = (_pruned(x, needed) for x in node.below)
    if then == orelse or node.loss - a - b < needed(node) * (n + m - 1):
        return leaf, node.loss, 1
    return Split(node.test, then, orelse), a + b, n + m


def _leaf(ground: Ground, rows: Rows) -> Node:
    """Least loss over some sizes; only options that are no slower than the default there."""
    means = ground.weights[rows] @ ground.logs[rows]
    losses = np.where(means <= means[0] + 1e-12, ground.loss[rows].sum(axis=0), np.inf)
    k = int(np.argmin(losses))
    weight = float(ground.weights[rows].sum())
    return Node(ground.options[k], float(losses[k]), weight, len(rows))


def _best_split(loss: Matrix, answers: Matrix, least: int) -> tuple[int, float, float] | None:
    """The question whose two leaves lose least, and the answers on either side."""
    best, found = math.inf, None
    for k, keys in enumerate(answers):
        order = np.argsort(keys, kind="stable")
        ordered, below = keys[order], np.cumsum(loss[order], axis=0)
        both = below[:-1].min(axis=1) + (below[-1] - below[:-1]).min(axis=1)
        both[ordered[:-1] == ordered[1:]] = math.inf
        both[: least - 1] = math.inf
        both[len(both) - least + 1 :] = math.inf
        at = int(np.argmin(both))
        if both[at] < best:
            best, found = float(both[at]), (k, float(ordered[at]), float(ordered[at + 1]))
    return found


def _between(low: int, high: int) -> int:
    """A round number about the geometric mean: low < it <= high."""
    middle = math.sqrt(max(1, low) * high)
    unit = 1 << max(0, int(math.log2(middle)) - 2)
    rounded = round(middle / unit) * unit
    return rounded if low < rounded <= high else low + 1


def _simplest(low: float, high: float) -> Fraction:
    """The fraction with the least denominator, low < it <= high; these are ratios of sizes."""
    if math.isinf(high):
        return Fraction(int(low) + 1)
    least, most = (Fraction(x).limit_denominator(LARGEST) for x in (low, high))
    denominator = 1
    while not math.floor(most * denominator) > least * denominator:
        denominator += 1
    return Fraction(math.floor(most * denominator), denominator)
