"""Measurements at several sizes -> a decision tree over sizes, proved by isl to be a partition.

Leaves hold the options that lose least against the best option at each of their sizes; large losses
count more than in proportion, as the worst case matters, too. A split must pay. From few sizes it
must pay more, as they say little of those between them. From many, what lies between is predicted
first (`smooth`), and the tree is grown from both; how fine it may be is what loses least at sizes
that were held out. Far outside of what was measured, the default serves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcsym.index import Condition, any_of
from tcsym.options import Options
from tcsym.records import dataclass
from tcsym.tuning.smooth import predicted
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Box, Leaf, Predicate, Split, Tree, contexts, leaf_of

SHALLOW, DEEPEST = 3, 8  # levels from few sizes and from many
MANY, FOLDS = 40, 4
LEAST_SAVED, UNSURE = 0.006, 0.1  # from few sizes, of a node's time; the second by their number
SAVINGS = (0.0003, 0.001, 0.003, 0.01, 0.03)  # from many, of the time of all sizes
LEAST_SIZES = 12  # in a leaf, of many and predicted ones
CONVEX, MOST_LOST = 2.0, 0.7  # 20 % lost count as much as six times 4 %; more than 100 % as 100 %
UNMEASURED = 0.5
PER_FIELD, BY_ISL = 0.0005, 0.03  # what a field must save; isl takes long to schedule
DIVISORS = (8, 16)
BEYOND = 4  # times the largest measured extent, and a share of the smallest
Values = tuple[int, ...]
Costs = Mapping[Options, Mapping[Values, Ratio]]
Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]
Sizes = NDArray[np.int64]


def lost(regret: Any) -> Any:
    """How bad it is to be slower by that logarithm (a number or an array)."""
    capped = np.minimum(regret, MOST_LOST)
    return capped + CONVEX * capped * capped


@dataclass(frozen=True, slots=True)
class _Measured:
    """What is known, sizes by options, the default first. `logs` are worse by their noise.

    values: the sizes. loss: weighted `lost`, with what the options' fields must save.
    """

    options: tuple[Options, ...]
    values: Sizes
    logs: Matrix
    loss: Matrix
    weights: Matrix

    @staticmethod
    def of(options: tuple[Options, ...], values: Sizes, logs: Matrix, weights: Matrix) -> _Measured:
        least = [PER_FIELD * len(o.changed()) + BY_ISL * (o.scheduler == "isl") for o in options]
        regret = logs - logs.min(axis=1, keepdims=True)
        loss = weights[:, None] * (lost(regret) + np.array(least))
        return _Measured(options, values, logs, loss, weights)

    def with_predicted(self, others: Sizes) -> _Measured:
        """As many again, by weight, at sizes where nothing was measured."""
        logs = np.concatenate([self.logs, predicted(self.values, self.logs, others)])
        each = np.full(len(others), self.weights.sum() / max(1, len(others)))
        weights = np.concatenate([self.weights, each])
        values = np.concatenate([self.values, others])
        return _Measured.of(self.options, values, logs, weights)

    def part(self, rows: Rows) -> _Measured:
        return _Measured.of(self.options, self.values[rows], self.logs[rows], self.weights[rows])

    def best(self, rows: Rows) -> tuple[float, int]:
        """Least loss over some sizes; only options that are no slower than the default there."""
        means = self.weights[rows] @ self.logs[rows]
        losses = np.where(means <= means[0] + 1e-12, self.loss[rows].sum(axis=0), np.inf)
        k = int(np.argmin(losses))
        return float(losses[k]), k


def _log(ratio: Ratio | None) -> float:
    return UNMEASURED if ratio is None else ratio.log + ratio.noise


@dataclass(frozen=True, slots=True)
class _Rule:
    """When a split pays: it saves `share` of all, and `own` (with `unsure` by sizes) of a node."""

    depth: int
    share: float
    own: float = 0.0
    unsure: float = 0.0
    least_sizes: int = 1

    def needed(self, n_sizes: int, weight: float, total: float) -> float:
        return max(self.share * total, (self.own + self.unsure / n_sizes) * weight)


def learn_tree(
    costs: Costs,
    weights: Mapping[Values, float],
    deepest: int | None = None,
    between: Sequence[Values] = (),
) -> Tree:
    """The tree for these sizes; `costs` has the default options, with ratios of 1.

    weights: importance of each size; they sum to 1. deepest: most levels, None: by the sizes.
    between: further sizes that the tree is for.
    """
    measured, others = _measured(costs, weights), _array(between, len(next(iter(weights))))
    if len(weights) < MANY:
        depth = SHALLOW if deepest is None else deepest
        return _bounded(_grown(measured, _Rule(depth, 0.0, LEAST_SAVED, UNSURE)), measured, depth)
    depth = DEEPEST if deepest is None else deepest
    rules = [_Rule(depth, share, least_sizes=LEAST_SIZES) for share in reversed(SAVINGS)]
    tried = _held_out(measured, others, rules)
    rule = min(rules, key=lambda rule: tried[rule])
    return _bounded(_grown(measured.with_predicted(others), rule), measured, depth)


def held_out(
    costs: Costs, weights: Mapping[Values, float], between: Sequence[Values]
) -> dict[Values, float]:
    """What every fourth size loses (logarithm of time) by a tree that is learned without it."""
    sizes = list(weights)
    rest = {v: w for k, (v, w) in enumerate(weights.items()) if k % FOLDS}
    tree = learn_tree(costs, rest, None, between)
    found: dict[Values, float] = {}
    for v in sizes[::FOLDS]:
        logs = {o: _log(c.get(v)) for o, c in costs.items()}
        found[v] = logs[leaf_of(tree, v).options] - min(logs.values())
    return found


def _measured(costs: Costs, weights: Mapping[Values, float]) -> _Measured:
    options = tuple(sorted(costs, key=lambda o: o != Options()))
    logs = np.array([[_log(costs[o].get(v)) for o in options] for v in weights])
    shares = np.array(list(weights.values()))
    return _Measured.of(options, _array(list(weights), 0), logs, shares)


def _array(sizes: Sequence[Values], n: int) -> Sizes:
    return np.array(sizes, dtype=np.int64).reshape(len(sizes), -1 if sizes else n)


def _grown(measured: _Measured, rule: _Rule) -> Tree:
    return _grow(measured, np.arange(len(measured.values)), rule, rule.depth)


def _bounded(tree: Tree, measured: _Measured, depth: int) -> Tree:
    """Not far from what was measured; without regions (depth 0), everywhere."""
    if tree == Leaf(Options()) or depth == 0 or measured.values.shape[1] == 0:
        return tree
    lows, highs = measured.values.min(axis=0) // BEYOND, measured.values.max(axis=0) * BEYOND
    return Split(Box(tuple(zip(lows.tolist(), highs.tolist()))), tree, Leaf(Options()))


def _held_out(measured: _Measured, others: Sizes, rules: Sequence[_Rule]) -> dict[_Rule, float]:
    """What trees of the rest lose at half of the sizes, and the other way round."""
    every = np.arange(len(measured.values))
    places = {o: k for k, o in enumerate(measured.options)}
    found = dict.fromkeys(rules, 0.0)
    for half in (every % 2 == 0, every % 2 == 1):
        known = measured.part(every[half]).with_predicted(others)
        for rule in rules:
            tree = _grown(known, rule)
            for row in every[~half]:
                chosen = leaf_of(tree, measured.values[row].tolist()).options
                found[rule] += float(measured.loss[row, places[chosen]])
    return found


def _grow(measured: _Measured, rows: Rows, rule: _Rule, depth: int) -> Tree:
    loss, k = measured.best(rows)
    leaf = Leaf(measured.options[k])
    if depth == 0 or len(rows) < 2 * rule.least_sizes:
        return leaf
    found = _best_split(measured, rows, rule.least_sizes)
    weight, total = float(measured.weights[rows].sum()), float(measured.weights.sum())
    if found is None or loss - found[0] < rule.needed(len(rows), weight, total):
        return leaf
    test = found[1]
    holds = np.array([test.holds(v) for v in measured.values[rows].tolist()])
    arms = (_grow(measured, rows[part], rule, depth - 1) for part in (holds, ~holds))
    then, orelse = arms
    return then if then == orelse else Split(test, then, orelse)


def _best_split(measured: _Measured, rows: Rows, least: int) -> tuple[float, Predicate] | None:
    """The loss of the best two leaves, and what tells them apart."""
    values, loss = measured.values[rows], measured.loss[rows]
    best: tuple[float, Predicate] | None = None
    for product in products(values.shape[1]):
        keys = values[:, product].astype(np.float64).prod(axis=1)
        order = np.argsort(keys, kind="stable")
        keys, below = keys[order], np.cumsum(loss[order], axis=0)
        both = below[:-1].min(axis=1) + (below[-1] - below[:-1]).min(axis=1)
        both[keys[:-1] == keys[1:]] = np.inf
        both[: least - 1] = both[len(both) - least + 1 :] = np.inf
        k = int(np.argmin(both))
        if both[k] < (math.inf if best is None else best[0]):
            threshold = _between(int(keys[k]), int(keys[k + 1]))
            best = float(both[k]), Predicate(product, least=threshold)
    for test in divisibility(values.shape[1]):
        divided = values[:, test.sizes].prod(axis=1) % test.divisor == 0
        if least <= divided.sum() <= len(rows) - least:
            both_arms = loss[divided].sum(axis=0).min() + loss[~divided].sum(axis=0).min()
            if both_arms < (math.inf if best is None else best[0]):
                best = float(both_arms), test
    return best


def products(n: int) -> list[tuple[int, ...]]:
    """Sizes that a threshold is for: the product of all (work), one, two."""
    every = tuple(range(n))
    found = [every] * (n > 1) + [(k,) for k in every]
    return found + (list(combinations(every, 2)) if n > 2 else [])


def divisibility(n: int) -> list[Predicate]:
    return [Predicate((k,), divisor=d) for k in range(n) for d in DIVISORS]


def _between(low: int, high: int) -> int:
    """A round number about the geometric mean: low < it <= high."""
    middle = math.sqrt(max(1, low) * high)
    unit = 1 << max(0, int(math.log2(middle)) - 2)
    rounded = round(middle / unit) * unit
    return rounded if low < rounded <= high else low + 1


def prove_partition(tree: Tree, names: tuple[str, ...]) -> None:
    """isl's word that the leaves' contexts are disjoint and cover all sizes; AssertionError."""
    from tcsym.presburger import Presburger

    conditions: list[Condition] = [condition for condition, _ in contexts(tree, names)]
    presburger = Presburger(names)
    covered = presburger.size_set(any_of(conditions))  # makes all opaque products known
    sets = [presburger.size_set(c) for c in conditions]
    for a, b in combinations(sets, 2):
        assert a.intersect(b).is_empty(), f"regions overlap: {tree}"
    for s in sets:
        covered = covered.union(s)
    assert presburger.size_set().is_subset(covered), f"regions leave sizes out: {tree}"
